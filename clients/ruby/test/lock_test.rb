# frozen_string_literal: true

require_relative "helper"
require "minitest/mock"

# Locks as their callers see them.
class LockingTest < LockTest
  def test_a_lock_is_held_while_its_block_runs
    seen = nil
    result = client.lock("a", purpose: "invoices", attributes: { ticket: "OPS-7", rows: 3, dry: true }) do |lock|
      seen = keys
      assert_held_by lock.uuid
      assert_operator lock.token, :>, 0
      :done
    end
    assert_equal :done, result
    assert_nothing_left
    facts = JSON.parse(seen["#{prefix}a/metadata"])
    assert_equal ["billing", Process.pid, "invoices", "OPS-7", 3, true, "ruby/#{VERSION}"],
                 facts.values_at("owner", "pid", "purpose", "ticket", "rows", "dry", "client")
    taken = Clock.parse(facts["locked_at"])
    assert_equal [taken + 300, taken + 900], %w[alert_at auto_unlock_at].map { Clock.parse(seen["#{prefix}a/#{_1}"]) }
  end

  def test_a_block_whose_work_would_run_after_the_release_is_refused
    lazy = { "Enumerator::Lazy" => -> { [1].lazy.map { flunk } }, "Enumerator" => -> { [1].each },
             "Fiber" => -> { Fiber.new { flunk } }, "Thread" => -> { Thread.new { sleep } },
             "Array" => -> { [Thread.new { sleep }] } }
    lazy.each do |kind, work|
      calls = { lock: ["a"], lock_all: %w[a b], campaign: ["a"], once_per: ["#{kind} job", 60] }
      calls.each do |call, arguments|
        error = assert_raises(RefusedError, "#{call}, #{kind}") { client.public_send(call, *arguments) { work.call } }
        assert_match(/\Athe block of #{call} returned .*#{kind}.*, which has yet to run/, error.message)
      end
    end
    assert_equal 2, client.lock("a") { Thread.new { 2 }.value }
    assert_empty keys.except(*keys.keys.grep(/periods/))
  end

  def test_a_lock_whose_answer_came_after_a_sleep_is_taken_anew
    slept = 0
    now = Clock.method(:now).to_proc
    { lock: :try, lock_all: :acquire_all }.each do |call, taking|
      locks = client
      session(locks).define_singleton_method(:settle) do |step, *rest, **options|
        super(step, *rest, **options).tap { slept += 3000 if step == taking && slept < 6000 }
      end
      Clock.stub(:now, -> { now.call + slept }) { locks.public_send(call, "a") { |held| assert_nil held.lost } }
    end
    assert_operator slept, :>=, 6000
  end

  def test_the_record_says_which_process_holds_the_lock_and_where
    line = __LINE__ + 1
    lock = client.lock("a")
    facts = JSON.parse(keys["#{prefix}a/metadata"])
    first = facts["backtrace"].lines.first.chomp
    assert_match(/\A#{Regexp.escape(__FILE__)}:#{line} in \S*#{__method__}\z/, first)
    refute_match %r{/lib/clustermutex}, facts["backtrace"]
    assert_equal File.read("/proc/self/stat").rpartition(")").last.split[19].to_i, facts["process_start"]
    assert_equal File.read("/proc/sys/kernel/random/boot_id").strip, facts["boot_id"]
    assert_equal File.readlink("/proc/self/ns/pid"), "pid:[#{facts["pid_namespace"]}]"
    lock.release
  end

  def test_a_refusal_says_who_holds_the_lock
    lock = client.lock("a/b", purpose: "the run of August")
    error = assert_raises(HeldError) { client.lock("a/b", wait: 0) }
    assert_instance_of HeldError, error
    assert_equal ["billing", Process.pid, "the run of August", lock.uuid, lock.token],
                 [error.holder.owner, error.holder.pid, error.holder.purpose, error.holder.uuid, error.holder.token]
    assert_equal 0, error.waiting
    who = %r{\Alock "a/b" is held by billing on \S+ \(pid \d+\), taken .* for "the run of August"; auto-unlock in }
    assert_match who, error.message
    lock.release
    client.lock("a/b", wait: 0).release
  end

  def test_a_hostile_record_cannot_break_the_line
    record = { "uuid" => "me", "metadata" => JSON.generate(owner: "x\e[2J\n\u202e", pid: "many", purpose: "p" * 5000) }
    record.each { |field, value| etcd.put("#{prefix}a/#{field}", value) }
    error = assert_raises(HeldError) { client.lock("a", wait: 0) }
    refute_match(/\p{C}/, error.message)
    assert_operator error.message.size, :<, 400
  end

  def test_a_wait_that_runs_out_leaves_the_queue
    lock = client.lock("a")
    error = assert_raises(WaitTimeoutError) { client.lock("a", wait: 1) }
    assert_kind_of HeldError, error
    assert_equal [lock.uuid, 0], [error.holder.uuid, error.waiting]
    eventually("empty queue") { keys.none? { |key, _| key.include?("/.queue/") } }
    lock.release
  end

  def test_threads_exclude_each_other
    count = 0
    Array.new(4) { Thread.new { 5.times { client.lock("a") { count = count.tap { Thread.pass } + 1 } } } }.each(&:join)
    assert_equal 20, count
    assert_nothing_left
  end

  def test_alive_moves_the_deadlines_and_shows_progress
    lock = client.lock("a", alert_after: 100, auto_unlock_after: 200)
    before = keys["#{prefix}a/auto_unlock_at"]
    lock.alive!("3 of 9", auto_unlock_after: 400)
    after = keys
    assert_operator after["#{prefix}a/auto_unlock_at"], :>, before
    assert_match(/\A\d{10}(\.\d+)? 3 of 9\z/, after["#{prefix}a/alive"])
    assert_in_delta 370, lock.time_left, 10
    lock.release
    assert_raises(RefusedError) { lock.alive! }
  end

  def test_a_release_counts_once
    lock = client.lock("a")
    lock.release
    other = client.lock("a")
    lock.release
    assert_held_by other.uuid
    assert_nil lock.lost
    other.release
  end

  def test_inspecting_a_client_reveals_no_secrets
    locks = client(user: "billing", password: "secret")
    assert_equal %i[adopt campaign inspect leader lock lock_all once_at once_per owner reserve],
                 Client.public_instance_methods(false).grep_v(/__/).sort
    assert_equal '#<ClusterMutex::Client owner="billing">', locks.inspect
    assert_equal %i[Attempt Gateway Session], %i[Attempt Gateway Session] - ClusterMutex.constants
  end

  def test_an_endpoint_needs_no_scheme_no_port_and_no_path
    { "etcd-1" => "http://etcd-1:2379", "10.0.0.1:80" => "http://10.0.0.1:80", "[::1]:23" => "http://[::1]:23",
      "https://etcd.example" => "https://etcd.example:2379", "HTTP://a/b/" => "http://a:2379/b" }.each do |text, meant|
      assert_equal "#<#{session(Client.new(text)).gateway.class} #{meant}>", session(Client.new(text)).gateway.inspect
    end
    ["", "ftp://x", "http://", "a b", "http://a:0", "http://a:99999", "http://a?b", "http://a#b", "a\e[2J", "\xff",
     "a,b"].each do |text|
      error = assert_raises(RefusedError, text.inspect) { Client.new([text]) }
      assert_equal "endpoint #{text.to_s.inspect}: want http://HOST:PORT or https://HOST:PORT", error.message
    end
    assert_raises(RefusedError) { Client.new([]) }
    ["http://ann:open-sesame@etcd", "ann:open-sesame@etcd", "https://ann@etcd:2379"].each do |text|
      error = assert_raises(RefusedError) { Client.new(text) }
      assert_equal "an endpoint must not contain a user or password: give them as user and password", error.message
    end
  end

  def test_bad_names_and_options_are_refused_in_one_line
    locks = client
    { "" => {}, "a\nb" => {}, "n" * 257 => {}, nil => {}, "a" => { wait: -1 },
      "b" => { alert_after: 10, auto_unlock_after: 5 },
      "c" => { auto_unlock_after: "soon" }, "d" => { purpose: "x" * 1025 }, "e" => { attributes: { "Bad" => 1 } },
      "f" => { attributes: { owner: "x" } }, "g" => { attributes: { list: [] } }, "h" => { margin: 900 },
      "i" => { attributes: Array.new(65) { |number| ["a#{number}", 1] }.to_h }, "j" => { purpose: "\xff" },
      "k" => { attributes: { ratio: Float::NAN } }, "l" => { heartbeat: 5, auto_unlock_after: 10 },
      "m" => { heartbeat: "yes" } }.each do |name, options|
      error = assert_raises(RefusedError, "#{name.inspect} #{options}") { locks.lock(name, **options) }
      refute_includes error.message, "\n"
    end
    assert_empty keys
    error = assert_raises(RefusedError) { locks.lock("n", auto_unlock_after: 1e12) }
    assert_match(/\Aauto_unlock_after is 10+\.0: want a number of seconds, from 0\.1 to ten years\z/, error.message)
    assert_raises(RefusedError) { client(ca: "/nowhere.pem") }
    assert_raises(RefusedError) { Client.new("http://x", prefix: "/") }
  end
end

# How a holder learns that it lost the lock, or that it is asked to finish.
class LossTest < LockTest
  def force_unlock(lock, ended = "forced", by: "ann", why: "it hangs")
    note = { lock: "a", uuid: lock.uuid, token: lock.token, ended:, by:, why: }
    etcd.put("#{prefix}.history/#{lock.uuid}", JSON.generate(note))
    etcd.call("/v3/kv/deleterange", key: ["#{prefix}a/"].pack("m0"), range_end: ["#{prefix}a0"].pack("m0"))
  end

  def test_a_force_unlock_is_noticed_with_its_reason
    reasons = Queue.new
    lock = client.lock("a", on_lost: ->(error) { reasons << error.reason })
    watched(lock).on_lost { |loss| reasons << loss.reason }
    assert_nil lock.lost
    force_unlock(lock)
    assert_equal %w[forced forced], Timeout.timeout(LONG) { [reasons.pop, reasons.pop] }
    assert_equal "forced", lock.lost
    error = assert_raises(LostError) { lock.alive! }
    assert_equal 'lock "a" was lost: force-unlocked by ann: it hangs', error.message
    assert_equal "forced", assert_raises(LostError) { lock.release }.reason
    lock.on_lost { |loss| reasons << loss.reason }
    assert_equal "forced", Timeout.timeout(LONG) { reasons.pop }
  end

  # Keys and documents that anyone with write permission may have put beside the record.
  def hostile(lock)
    hold = { uuid: lock.uuid, token: lock.token, by: "ann", reason: "x" }
    documents = [hold.merge(token: []), hold.merge(token: "x"), hold.merge(by: 7), [hold], hold.merge(seconds: [])]
    documents = documents.map { |document| JSON.generate(document) }
    documents += [JSON.generate(hold).sub(/}\z/, ',"seconds":1e999}'), "\xff", "[" * 2000, "{\"by\":\"\\ud800\"}"]
    documents.flat_map { |text| [["asked", text], ["extended", text]] } +
      [["\xff\xfe", "x"], ["\xffuuid", "\xff"], ["alive", "\xff \xff"], ["alert_at", "\xff"],
       ["auto_unlock_at", "\xff"]]
  end

  def test_nothing_that_others_write_blinds_a_holder
    hostile(client.lock("a").tap(&:release)).each_index do |number|
      reasons = Queue.new
      _, errors = capture_subprocess_io do
        lock = watched(client.lock("a", on_lost: ->(error) { reasons << error.reason }))
        field, value = hostile(lock)[number]
        etcd.put("#{prefix}a/#{field}", value)
        assert_raises(HeldError, field) { client.lock("a", wait: 0) }
        force_unlock(lock)
        assert_equal "forced", Timeout.timeout(LONG, nil, "blind after #{field} = #{value}") { reasons.pop }
      end
      refute_match(/clustermutex:/, errors)
    end
  end

  def test_the_watching_thread_survives_and_reports_unexpected_errors
    read = [200, '{"header":{},"succeeded":true,"responses":5}']
    proxy = Faults.new(etcd) { |_, body| read unless body.include?("compare") }
    reasons = Queue.new
    _, errors = capture_subprocess_io do
      client(proxy.endpoint).lock("a", auto_unlock_after: 2, on_lost: ->(error) { reasons << error.reason })
      assert_equal "deadline", Timeout.timeout(LONG) { reasons.pop }
    end
    assert_equal 1, errors.lines.grep(/\Aclustermutex: lock "a": .*NoMethodError/).size, errors
  ensure
    etcd.delete("#{prefix}a/uuid")
  end

  def test_alive_and_release_report_a_loss_that_the_watch_missed
    %w[auto_unlocked abandoned].each do |ended|
      lock = client.lock("a", auto_unlock_after: 20)
      force_unlock(lock, ended)
      assert_equal ended, assert_raises(LostError) { lock.alive! }.reason
      lock = client.lock("a")
      force_unlock(lock, ended)
      assert_equal ended, assert_raises(LostError) { lock.release }.reason
    end
  end

  def test_a_block_whose_lock_was_lost_raises_unless_it_raised_itself
    assert_raises(LostError) { client.lock("a") { |lock| force_unlock(lock) } }
    assert_raises(KeyError) do
      client.lock("a") do |lock|
        force_unlock(lock)
        raise KeyError
      end
    end
    assert_equal :left, client.lock("a") { break :left }
    assert_nothing_left
  end

  def test_a_request_to_finish_is_reported_once
    asked = Queue.new
    lock = watched(client.lock("a", on_asked: asked.method(:push)))
    request = { uuid: lock.uuid, token: lock.token, by: "ann", source: "cli", at: "1553682600", reason: "the deploy" }
    etcd.put("#{prefix}a/asked", JSON.generate(request.merge(token: 1))) # meant for another hold
    etcd.put("#{prefix}a/asked", JSON.generate(request))
    heard = Timeout.timeout(LONG) { asked.pop }
    assert_equal ["ann", "the deploy", "cli", 1_553_682_600], [heard.by, heard.reason, heard.source, heard.at.to_i]
    assert_equal heard, lock.asked
    assert_empty asked
    lock.release
  end

  def test_untrusted_texts_cannot_control_a_terminal
    hostile = "\e[2J\u202Eann\u2028\n#{"x" * 3000}"
    asked = Queue.new
    errors = Queue.new
    lock = watched(client.lock("a", on_asked: asked.method(:push), on_lost: errors.method(:push)))
    short = hostile[0, 500] # a request of more than 2 KiB is ignored
    request = { uuid: lock.uuid, token: lock.token, by: short, source: short, reason: short }
    etcd.put("#{prefix}a/asked", JSON.generate(request).sub("ann", '\ud800'))
    heard = Timeout.timeout(LONG) { asked.pop }
    force_unlock(lock, by: hostile, why: hostile)
    error = Timeout.timeout(LONG) { errors.pop }
    assert_equal %w[a forced], [error.lock, error.reason]
    texts = [heard.by, heard.reason, heard.source, error.by, error.why, error.message]
    texts.each { |text| refute_match(/[\p{C}\p{Zl}\p{Zp}]/, text) }
    assert_operator texts.map(&:size).max, :<, 1200
  end

  def test_a_malformed_ending_counts_as_absent
    lock = watched(client.lock("a"))
    force_unlock(lock, "\e[31mforced")
    eventually("loss") { lock.lost }
    assert_equal "deleted", lock.lost
  end

  def test_a_heartbeat_is_a_number_of_seconds_or_an_hour
    lock = client.lock("a", heartbeat: true)
    assert_equal 3600, lock.instance_variable_get(:@settings).heartbeat
    lock.release
    [0, -1].each { |value| assert_raises(RefusedError) { client.lock("a", heartbeat: value) } }
  end

  def test_a_heartbeat_ends_with_the_maximum_hold
    lock = client.lock("a", heartbeat: 1, alert_after: 0.6, auto_unlock_after: 0.6)
    eventually("loss") { lock.lost }
    assert_includes assert_raises(LostError) { lock.alive! }.message, "time ran out: its maximum hold of 1 s is over"
    lock.release
  end

  def test_more_time_moves_the_deadline
    lock = watched(client.lock("a", auto_unlock_after: 20))
    at = Clock.parse(keys["#{prefix}a/auto_unlock_at"])
    given = { uuid: lock.uuid, token: lock.token, by: "ann", seconds: 100, auto_unlock_at: Clock.format(at) }
    puts = { "auto_unlock_at" => Clock.format(at + 100), "extended" => JSON.generate(given) }.map do |field, value|
      { request_put: { key: ["#{prefix}a/#{field}"].pack("m0"), value: [value].pack("m0") } }
    end
    etcd.call("/v3/kv/txn", success: puts)
    eventually("more time") { lock.time_left > 80 }
    lock.alive!
    assert_operator lock.time_left, :>, 80
    lock.release
  end

  def test_a_heartbeat_keeps_the_lock_and_leaves_the_alert
    lock = client.lock("a", heartbeat: true, alert_after: 5, auto_unlock_after: 3)
    taken = Clock.parse(JSON.parse(keys["#{prefix}a/metadata"])["locked_at"])
    eventually("extension past the alert") { Clock.parse(keys["#{prefix}a/auto_unlock_at"]) > taken + 5 }
    assert_nil lock.lost
    assert_equal taken + 5, Clock.parse(keys["#{prefix}a/alert_at"])
    lock.release
  end
end
