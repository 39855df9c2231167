# frozen_string_literal: true

module ClusterMutex
  # Several locks, all or none. Each is a Lock of its own.
  class Locks
    # In the order of their names.
    attr_reader :all

    def initialize(all)
      @all = all
    end

    # Reports progress for each lock.
    def alive!(...) = @all.each { |lock| lock.alive!(...) } && nil

    # Releases all of them. Raises the first error.
    def release
      errors = Thread.handle_interrupt(Object => :never) { @all.filter_map { |lock| lock.send(:give_up) } }
      raise errors.first if errors.any?
    end

    # Why one of them was lost; nil while all are held.
    def lost = @all.filter_map(&:lost).first
  end

  # Takes several locks: in one transaction, or one after the other if that needs a wait or does not fit.
  class Together
    MOST = 24 # how many fit into one transaction of etcd

    # wanted: pairs of a name and its settings.
    def initialize(session, wanted, wait)
      wanted = wanted.sort_by { |name, _| name.to_s.b }
      names = wanted.map(&:first)
      raise RefusedError, "no lock was given, or one was given twice" if names.empty? || names.uniq.size < names.size

      @session = session
      @wait = wait && Settings.seconds("wait", wait, 0)
      @fits = names.size <= MOST && wanted.none? { |_, settings| settings.need.kind }
      raise RefusedError, "with wait: 0 they are taken in one transaction, which has room for #{MOST} plain locks" if
        @wait&.zero? && !@fits

      @wanted = wanted.map { |name, settings| [name, settings.beside(names - [name])] }
      @attempts = @wanted.map { |name, settings| Attempt.new(session, name, settings, 0) }
    end

    # Takes them, yields them to the block, and releases them.
    def run
      locks = acquire
      yield(locks).tap { locks.release }
    ensure
      give_up
    end

    # Takes them.
    def acquire
      @till = Clock.now + @wait if @wait
      (@fits && at_once) || in_order
      done = Locks.new(held)
    rescue Gateway::FullError
      raise
    rescue UnavailableError => e
      raise @refusal || e
    ensure
      give_up(@till) unless done
    end

    private

    def held = @attempts.filter_map(&:lock)

    # Releases what it has, whenever an exception from another thread arrives; after +till+, in the background.
    def give_up(till = nil)
      Threads.to_the_end do
        releases = held.map { |lock| Thread.start { lock.send(:give_up) } }
        releases.each { |release| release.join(till && ([till - Clock.now, 0].max + Attempt::GRACE)) }
      end
    end

    # Takes all in one transaction. Returns nil if that needs a wait.
    def at_once
      till = [Clock.now + @session.gateway.timeout, (@till if @wait&.positive?)].compact.min
      doubt = Gateway::Doubt.new(false)
      found = ask(till, doubt)
      refuse(found) unless found[:token]
      return @attempts.each { |attempt| attempt.took(found, doubt) } if @attempts.none?(&:late?)

      doubt.unanswered = true # so that they are given back
      raise UnavailableError, "the answer of etcd came too late"
    rescue Error => e
      refused = true
      raise if @wait&.zero? || e.is_a?(RefusedError)
    ensure
      @attempts.each { |attempt| attempt.gave_up(doubt, refused) unless attempt.lock }
    end

    # Asks again if only locks with names like those of shares were in the way.
    def ask(till, doubt)
      found = {}
      (1 + Attempt::RIVALS).times do
        locks = @attempts.map { |attempt| attempt.bid.merge(counted: found[:holders]&.revision) }
        found = @session.settle(:acquire_all, { locks: }, till:, doubt:)
        break if found[:verdict] != :again || doubt.unanswered
      end
      found
    end

    # Raises who holds one of them. After a wait without another answer, that is still the reason.
    def refuse(found)
      kind = @wait&.zero? ? HeldError : WaitTimeoutError
      stays = @session.stays?(found[:lock], found[:holders], Clock.now + Attempt::GRACE)
      refusal = kind.new(found[:lock], found[:holders].all, nil, found[:holders].delay_for, stays:)
      @refusal = refusal if @wait
      raise refusal
    end

    # Extends what it has while it waits for the next.
    def in_order
      @attempts = []
      waiter = Thread.current
      keeper = Threads.start { keep(waiter) }
      @wanted.each do |name, settings|
        held.each { |lock| lock.send(:waits_for, name) }
        @attempts << Attempt.new(@session, name, settings, @till && [@till - Clock.now, 0.01].max)
        @attempts.last.acquire
      end
      Threads.to_the_end { keeper.kill.join } if keeper
      held.each { |lock| lock.send(:confirm, [@till, @session.patience].compact.min) }
    ensure
      keeper&.kill
    end

    def keep(waiter)
      loop do
        sleep([*@wanted.map { |_, settings| settings.auto_unlock_after / 4 }, 2].min)
        held.each do |lock|
          lock.send(:stay)
        rescue UnavailableError
          next
        end
      end
    rescue Error => e
      waiter.raise(e)
    end
  end
end
