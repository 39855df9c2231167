# frozen_string_literal: true

require_relative "helper"

# Semaphores, read-write locks, several locks, jobs once per period, and leaders, as their callers see them.
class KindsTest < LockTest
  def test_a_semaphore_has_a_limited_number_of_permits
    held = Array.new(3) { client.lock("pool", wait: 0, semaphore: 3) }
    assert_equal %w[pool#1 pool#2 pool#3], held.map(&:name)
    error = assert_raises(HeldError) { client.lock("pool", wait: 0, semaphore: 3) }
    assert_equal held.map(&:uuid), error.holders.map(&:uuid)
    held[1].release
    assert_equal "pool#2", client.lock("pool", wait: 0, semaphore: 3).name
    assert_raises(WaitTimeoutError) { client.lock("pool", wait: 2, semaphore: 3, weight: 3) }
  end

  def test_contradictory_options_are_refused
    [{ semaphore: 0 }, { semaphore: 2, weight: 3 }, { weight: 2 }, { shared: true, exclusive: true },
     { semaphore: 1.5 }, { shared: true, attributes: { kind: "mine" } }].each do |options|
      assert_raises(RefusedError, options) { client.lock("pool", **options) }
    end
    assert_raises(RefusedError) { client.lock("pool#2", shared: true) }
    assert_raises(RefusedError) { client.lock_all("a", "a") }
    assert_raises(RefusedError) { client.lock_all("a", "a" => { shared: true }) }
    assert_raises(RefusedError) { client.lock_all("a", shared: true, wait: 0) }
    assert_raises(RefusedError) { client.once_per("a", 60, offset: 60) { flunk } }
  end

  def test_several_locks_are_taken_all_or_none
    client.lock_all("b", "a", wait: 0) do |both|
      assert_equal %w[a b], both.all.map(&:name)
      assert_equal 1, both.all.map(&:token).uniq.size
      assert_equal "a", assert_raises(HeldError) { client.lock_all("a", "b", wait: 0) }.lock
    end
    one = client.lock("b")
    assert_raises(WaitTimeoutError) { client.lock_all("a", "b", wait: 2) }
    assert_nothing_left "a"
    waiting = Thread.new { client.lock_all("a", "b").release }
    eventually("why it does not work") { keys["#{prefix}a/alive"].to_s.include?("waits for lock \"b\"") }
    one.release
    waiting.join
    assert_nothing_left "b"
  end

  def test_the_loss_of_one_of_several_keeps_none_of_the_others
    error = assert_raises(RuntimeError) do
      client.lock_all("a", "b", wait: 0) do |both|
        etcd.delete("#{prefix}a/uuid")
        eventually("its loss") { both.lost }
        raise "mine"
      end
    end
    assert_equal "mine", error.message
    assert_nothing_left "b"
  end

  def test_locks_of_mixed_kinds_and_any_number_are_taken_together
    many = Array.new(25) { |number| format("m%02d", number) }
    client.lock_all(*many, "books" => { shared: true }, "pool" => { semaphore: 2 }) do |all|
      assert_equal ["books#1", *many, "pool#1"], all.all.map(&:name)
      assert_equal all.all.map(&:token).sort.uniq, all.all.map(&:token)
      assert_raises(WaitTimeoutError) { client.lock_all("books", wait: 2, exclusive: true) }
    end
    assert_nothing_left "books"
  end

  def test_each_of_several_ends_by_its_own_record
    sent = 0
    proxy = Faults.new(etcd) { |path, _| :answer if path.end_with?("/txn") && (sent += 1) == 1 }
    names = ["b", { "a" => { auto_unlock_after: 900 } }]
    client(proxy.endpoint).lock_all(*names, auto_unlock_after: 60, wait: 0) do |both|
      assert_in_delta 54, both.all.last.time_left, LONG
    end
  end

  def test_a_group_of_one_lock_names_no_others
    client.lock_all("a") { refute_includes keys["#{prefix}a/metadata"], "together_with" }
  end

  def test_a_job_runs_once_per_period
    ran = 0
    client.lock("job") { assert_raises(HeldError) { client.once_per("job", 86_400) { flunk } } }
    assert_equal [true, false], (Array.new(2) { client.once_per("job", 86_400) { ran += 1 } })
    assert_equal 1, ran
    etcd.put("#{prefix}.periods/job", "#{Time.now.to_i + 200_000} taken by a clock that is ahead")
    error = assert_raises(RefusedError) { client.once_per("job", 60) { flunk } }
    assert_match "ahead of this machine's clock, and it was taken by a clock that is ahead; no earlier one runs " \
                 "unless its key #{prefix}.periods/job is deleted", error.message
  end

  def test_a_job_runs_once_for_a_tick
    tick = Time.new(2019, 3, 27, 3, 0, 0, "+01:00")
    ran = [tick, 1_553_652_000.0009, tick - 60, tick + 60].map { |at| client.once_at("job", at) { nil } }
    assert_equal [true, false, false, true], ran
    error = assert_raises(RefusedError) { client.once_at("job", 4_102_444_800) { flunk } }
    assert_match "the tick of 2100-01-01T00:00:00.000Z has not come: this machine's clock says", error.message
    [-1, 1e11].each { |odd| assert_raises(RefusedError) { client.once_at("job", odd) { flunk } } }
  end

  def test_a_failed_job_gives_its_period_back_on_request
    failed = Class.new(StandardError)
    assert_raises(failed) { client.once_per("job", 86_400, retry_on_error: true) { raise failed } }
    assert_empty(keys.keys.grep(/periods/))
    assert_raises(failed) { client.once_per("job", 86_400) { raise failed } }
    refute(client.once_per("job", 86_400, retry_on_error: true) { flunk })
  end

  def test_one_process_takes_and_another_releases
    left = client.reserve("nightly", "the run of the night", 60, semaphore: 2)
    assert_equal "nightly#1", left.name
    worker = client.adopt(left.name, left.uuid)
    assert_equal left.token, worker.token
    worker.alive!("half of it")
    worker.release
    assert_nothing_left "nightly"
    assert_raises(LostError) { client.adopt(left.name, left.uuid) }
    assert_raises(RefusedError) { client.reserve("nightly", "", 60) }
  end

  def test_a_leader_that_cannot_work_is_lost
    assert_nil client.leader("search")
    fit = true
    lead = client.campaign("search", life: 1.5, address: "10.0.0.1:80", check: -> { fit })
    assert_equal [lead.token, "10.0.0.1:80"], client.leader("search").then { [_1.token, _1.attributes["address"]] }
    eventually("a sign of life") { keys.key?("#{prefix}search/alive") }
    fit = false
    eventually("its end") { lead.lost }
    assert_equal "deadline", lead.lost
  end
end
