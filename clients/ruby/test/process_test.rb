# frozen_string_literal: true

require_relative "helper"

# What a program does around a lock: timeouts, threads that are killed, forks.
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
    locks.lock("a", wait: 0, &:alive!) # the client is as good as before
  end

  def test_an_exception_at_any_moment_leaves_nothing
    locks = client
    delays = Random.new(1)
    40.times do
      thread = Thread.new do
        locks.lock("a", wait: LONG) { |lock| lock.alive!("x") }
      rescue Interruption
        nil
      end
      thread.report_on_exception = false
      sleep(delays.rand(0.02))
      thread.raise(Interruption)
      begin
        thread.join
      rescue Interruption
        nil # it came before the block, or after it
      end
    end
    eventually("end of the chores") { locks.chores.size.zero? }
    assert_nothing_left
    locks.lock("a", wait: 0).release
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

  def test_a_program_ends_although_it_holds_a_lock
    program = 'require "clustermutex"; ClusterMutex::Client.new(ARGV[0], prefix: ARGV[1]).lock("a"); print "held"'
    output = Timeout.timeout(LONG) do
      IO.popen([RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-e", program, etcd.endpoint, prefix], &:read)
    end
    assert_equal "held", output
  end

  def test_a_program_ends_while_its_threads_hold_a_lock_and_wait_for_it
    program = <<~RUBY
      require "clustermutex"
      locks = ClusterMutex::Client.new(ARGV[0], prefix: ARGV[1])
      held = Queue.new
      Thread.new { locks.lock("a") { held << $stdout.syswrite("held"); sleep } }
      held.pop
      Thread.new { locks.lock("a") }
      $stdin.gets
      exit 3
    RUBY
    output, errors, status = Open3.popen3(RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-e", program,
                                          etcd.endpoint, prefix) do |input, out, err, thread|
      queued(1)
      input.close
      [out.read, err.read, thread.value]
    end
    assert_equal ["held", "", 3], [output, errors, status.exitstatus]
    assert_nothing_left
  end

  private

  # The local ports of the connections that a client keeps.
  def ports(locks)
    locks.gateway.instance_variable_get(:@idle).map do |_, http|
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
