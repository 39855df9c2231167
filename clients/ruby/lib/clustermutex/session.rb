# frozen_string_literal: true

module ClusterMutex
  # What all locks of one client share: the gateway to etcd, the transactions, and the cleanup in the background.
  class Session
    PATIENCE = 15 # seconds that an extension or a release may keep its caller waiting for etcd

    attr_reader :owner, :transactions, :gateway, :chores, :release_at_exit

    def initialize(owner, transactions, gateway, release_at_exit)
      @owner = owner
      @transactions = transactions
      @gateway = gateway
      @release_at_exit = release_at_exit
      @chores = Chores.new
    end

    # Sends a step of the protocol until an answer settles it.
    def settle(step, input, till:, doubt: Gateway::Doubt.new)
      @gateway.settle(@transactions, step, input, till:, doubt:)
    end

    # Whether the time of a holder is over, but no unlocker is running, so that nothing removes it. False if etcd does
    # not say.
    def stays?(lock, holders, till)
      over = holders.all.any? { |holder| holder.auto_unlock_at&.< Clock.wall }
      over && settle(:read_period, { lock: }, till:)[:clocks].empty?
    rescue Error
      false
    end

    # When alive! and release give up, by Clock.now.
    def patience = Clock.now + PATIENCE

    def grant(seconds, till) = @gateway.call("/v3/lease/grant", { TTL: seconds.to_s }, till:)["ID"]
    def revoke(lease, till) = @gateway.call("/v3/lease/revoke", { ID: lease }, till:)

    # Removes what an attempt has, may have, or may get by a request still in flight. Idempotent.
    def clean_up(input, cancel:, till:)
      leave(input, till) if input[:queued]
      cancel(input, till) if cancel
      revoke(input[:lease], till) if input[:lease]
    rescue Gateway::LeaseGone
      nil
    end

    # Cancels an attempt, so that no late request can take the lock.
    def cancel(input, till)
      verdict = give_back(:cancel, input.merge(lease: grant(3600, till)), till)
      raise Gateway::FullError, "etcd is out of space" if verdict == :withdraw
    rescue Gateway::FullError
      give_back(:withdraw, input, till)
      raise
    end

    private

    # Sends a cancel or withdraw, and withdraws the record of a share that it finds.
    def give_back(step, input, till)
      found = settle(step, input, till:)
      name = found[:share] && @transactions.share_name(input[:lock], found[:share])
      settle(:withdraw, { lock: name, uuid: input[:uuid] }, till:) if name
      found[:verdict]
    end

    # Puts the tail of the queue back to whoever is before this attempt.
    def leave(input, till)
      5.times do
        found = settle(:leave, input, till:)
        return if found[:verdict] == :left

        found = settle(:leave_as_tail, input.merge(older: found[:older]), till:)
        return if found[:verdict] == :left
        break if found[:verdict] == :withdraw
      end
      settle(:withdraw, input, till:) # leaves the tail alone; another waiter restores it
    end
  end

  # Cleanup that no caller waits for: repeated in the background until it succeeds.
  class Chores
    def initialize
      @mutex = Mutex.new
      @list = []
    end

    # Does it now if that takes no longer than +now+, else in the background until +till+.
    def now_or_later(now, till, &chore)
      return later(till, &chore) if Clock.now >= now

      chore.call(now)
    rescue Error
      later(till, &chore)
    end

    # Does it in the background until +till+. A fork leaves it to the parent.
    def later(till, &chore)
      @mutex.synchronize do
        @list = [] unless @pid == Process.pid
        @pid = Process.pid
        @list << [till, chore]
        @thread = Threads.start { work } unless @thread&.alive?
      end
    end

    # How many are pending.
    def size = @mutex.synchronize { @pid == Process.pid ? @list.size : 0 }

    private

    def work
      failed = 0
      while (till, chore = @mutex.synchronize { @list.first || (@thread = nil) })
        done = finished?(chore) || Clock.now > till
        @mutex.synchronize do
          @list.shift
          @list << [till, chore] unless done
        end
        failed = done ? 0 : failed + 1
        sleep(rand(0.5..1.0) * [0.1 * (2**failed), 5].min) unless done
      end
    ensure
      try_all(Ending.till) if Ending.now?
    end

    # Runs each once more when the program ends.
    def try_all(till)
      Threads.to_the_end(till) { @list.each { |_, chore| finished?(chore, till) } }
    end

    def finished?(chore, till = Clock.now + 5)
      chore.call(till)
      true
    rescue Error
      false
    end
  end
end
