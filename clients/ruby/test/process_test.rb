# frozen_string_literal: true

require_relative "helper"

# What programs do while they hold a lock: timeouts, killed threads, forks.
class ProcessTest < LockTest
  Interruption = Class.new(StandardError)

  def test_a_timeout_ends_the_wait_and_leaves_nothing
    holder = client.lock("a")
    assert_raises(Timeout::Error) { Timeout.timeout(0.5) { client.lock("a") } }
    eventually("empty queue") { keys.none? { |key, _| key.include?("/.queue/") } }
    holder.release
    assert_nothing_left
  end

  def test_a_timeout_ends_the_block_and_releases
    locks = client
    assert_raises(Timeout::Error) { Timeout.timeout(0.5) { locks.lock("a") { sleep } } }
    assert_nothing_left
    locks.lock("a", wait: 0, &:alive!) # the client still works
  end

  def test_an_exception_at_any_moment_leaves_nothing
    locks = client
    interrupted(40) { locks.lock("a", wait: LONG) { |lock| lock.alive!("x") } }
    interrupted(20) { locks.lock_all("a", "b", wait: LONG) { |both| both.alive!("x") } }
    eventually("end of the chores") { session(locks).chores.size.zero? }
    assert_nothing_left
    assert_nothing_left "b"
    locks.lock("a", wait: 0).release
  end

  # Runs the block +times+ times in a thread that is interrupted at a random moment.
  def interrupted(times, &block)
    delays = Random.new(1)
    times.times do
      thread = Thread.new(&block)
      thread.report_on_exception = false
      sleep(delays.rand(0.02))
      thread.raise(Interruption)
      begin
        thread.join
      rescue Interruption
        nil
      end
    end
  end

  def test_a_killed_thread_releases
    started = Queue.new
    thread = Thread.new { client.lock("a") { started << sleep } }
    eventually("lock") { keys.any? }
    thread.kill.join
    assert_nothing_left
  end

  def test_a_child_leaves_the_lock_of_its_parent_alone
    locks = client
    lock = locks.lock("a")
    said = in_child { [lock.lost, assert_raises(RefusedError) { lock.alive! }.class, lock.release] }
    assert_equal ["forked", RefusedError, nil].inspect, said
    assert_nil lock.lost
    lock.alive!
    assert_held_by lock.uuid
    lock.release
    assert_nothing_left
  end

  def test_a_child_that_leaves_the_block_does_not_release
    parent = Process.pid
    client.lock("a") do |lock|
      pid = fork or next # the child leaves the block, which is where its parent releases
      Process.wait(pid)
      assert_held_by lock.uuid
    end
    exit!(0) unless parent == Process.pid
  end

  def test_a_child_that_fails_gives_no_period_back
    parent = Process.pid
    begin
      client.once_per("a", 86_400, retry_on_error: true) { (pid = fork) ? Process.wait(pid) : raise("the child") }
    rescue RuntimeError
      exit!(0) unless parent == Process.pid
    end
    refute(client.once_per("a", 86_400) { flunk })
  end

  def test_a_child_takes_locks_of_its_own
    locks = client
    locks.lock("b") do |mine|
      found = in_child { locks.lock("a", wait: LONG) { JSON.parse(keys["#{prefix}a/metadata"])["pid"] == Process.pid } }
      assert_equal "true", found
      mine.alive!
    end
    assert_nothing_left
  end

  def test_children_share_no_connection_with_their_parent
    locks = client
    locks.lock("a", &:alive!)
    mine = ports(locks)
    refute_empty mine
    theirs = in_child do
      locks.lock("a", wait: LONG, &:alive!)
      ports(locks)
    end
    refute_empty JSON.parse(theirs)
    assert_empty mine & JSON.parse(theirs)
    locks.lock("a", wait: LONG, &:alive!)
    assert_empty mine - ports(locks) # they are still good
  end

  ENDS = { # how a program ends: what it does then, and its status
    "nil" => 0, "exit" => 0, "exit 3" => 3, "raise 'an error'" => 1, "Thread.new { exit 4 }.join" => 4,
    "Process.kill(:TERM, $$); sleep" => 15, "Process.kill(:INT, $$); sleep" => 2, "Process.kill(:HUP, $$); sleep" => 1,
    "at_exit { lock.alive! }; exit 5" => 5, "trap(:TERM) { exit 6 }; Process.kill(:TERM, $$); sleep" => 6,
    "lock.release; Thread.new { LOCKS.lock('a'); raise 'an error' }.join rescue nil" => 0
  }.freeze

  def test_a_program_that_exits_normally_releases_its_locks
    ENDS.each do |way, status|
      output, errors, ended = program("lock = LOCKS.lock('a'); $stdout.syswrite('held'); #{way}")
      assert_equal ["held", status], [output, ended.exitstatus || ended.termsig], "#{way}: #{errors}"
      assert_empty keys.keys.grep(%r{/a/}), "left by #{way}: #{errors}"
    end
  end

  def test_a_program_that_crashes_or_opts_out_releases_nothing
    ways = { "Process.kill(:KILL, $$); sleep" => {}, "exit!" => {}, "exit" => { release_at_exit: false } }
    ways.each do |way, options|
      program("LOCKS.lock('a'); #{way}", **options)
      refute_empty keys.keys.grep(%r{/a/}), way
      etcd.delete("#{prefix}a/uuid")
    end
  end

  def test_an_exiting_child_releases_nothing_of_its_parent
    output, = program(<<~RUBY)
      lock = LOCKS.lock("a")
      Process.wait(fork { exit })
      lock.alive!
      print "held"
    RUBY
    assert_equal "held", output
  end

  def test_a_program_exits_soon_even_if_etcd_hangs
    server = Etcd.new
    ["LOCKS.lock('a')", "LOCKS.lock('a') { LOCKS.lock('b') { hang; exit } }"].each do |holding|
      began = nil
      text = "def hang = $stdout.syswrite('held') && $stdin.gets; #{holding}; hang"
      program(text, server.endpoint) do |input, output|
        output.readpartial(4)
        server.signal(:STOP)
        began = Clock.now
        input.close
      end
      server.signal(:CONT)
      assert_operator Clock.now - began, :<, 5, holding # two seconds on an idle machine
      server.call("/v3/kv/deleterange", key: [prefix].pack("m0"), range_end: ["#{prefix}~"].pack("m0"))
    end
  ensure
    server.stop
  end

  def test_a_program_ends_while_its_threads_hold_a_lock_and_wait_for_it
    output, errors, status = program(<<~RUBY) { |input, _| queued(1) && input.close }
      held = Queue.new
      Thread.new { LOCKS.lock("a") { held << $stdout.syswrite("held"); sleep } }
      held.pop
      Thread.new { LOCKS.lock("a") }
      $stdin.gets
      exit 3
    RUBY
    assert_equal ["held", "", 3], [output, errors, status.exitstatus]
    assert_nothing_left
  end

  private

  # Runs a program while the block talks to it. Returns its output and its status.
  def program(text, endpoint = etcd.endpoint, **options)
    text = <<~RUBY
      require "clustermutex"
      LOCKS = ClusterMutex::Client.new(#{endpoint.inspect}, prefix: #{prefix.inspect}, **#{options})
      #{text}
    RUBY
    ruby = [RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-e", text]
    Open3.popen3(*ruby) do |input, output, errors, thread|
      yield input, output if block_given?
      [output.read, errors.read, thread.value]
    end
  end

  # The local ports of a client's idle connections.
  def ports(locks)
    session(locks).gateway.instance_variable_get(:@idle).map do |_, http|
      http.instance_variable_get(:@socket).io.local_address.ip_port
    end
  end

  # What the block returns in a child of this process.
  def in_child
    read, write = IO.pipe
    pid = fork do
      write << yield.inspect
      write.close
      exit!(0)
    end
    write.close
    read.read.tap { Process.wait(pid) }
  end
end
