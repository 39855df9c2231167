# frozen_string_literal: true

module ClusterMutex
  # Several locks, all or none. Each is a Lock of its own.
  class Locks
    # In the order of their names.
    attr_reader :all

    def initialize(all)
      @all = all
    end

    # Reports progress for each of them.
    def alive!(...) = @all.each { |lock| lock.alive!(...) } && nil

    # Gives all of them back. The error is the first that there was.
    def release
      errors = Thread.handle_interrupt(Object => :never) { @all.filter_map { |lock| lock.send(:give_up) } }
      raise errors.first if errors.any?
    end

    # Why one of them was lost, nil while they are held.
    def lost = @all.filter_map(&:lost).first
  end

  # Takes several locks: in one transaction, or one after the other where that needs a wait.
  class Together
    MOST = 24 # as many as fit into one transaction of etcd's

    def initialize(session, names, settings, wait)
      names = names.map(&:to_s)
      raise RefusedError, "#{names.size} locks: want 1 to #{MOST}, each once" unless
        names.size.between?(1, MOST) && names.uniq.size == names.size

      @session = session
      @settings = settings
      @wait = wait && Settings.seconds("wait", wait, 0)
      @names = names.sort_by(&:b)
      @attempts = @names.map { |name| Attempt.new(session, name, settings.beside(@names - [name]), 0) }
    end

    # Runs the block with them, and gives them back.
    def run
      locks = acquire
      result = yield locks
      locks.release
      done = true
      result
    ensure
      give_up unless done
    end

    # Takes them.
    def acquire
      take(@wait && (Clock.now + @wait))
      done = Locks.new(held)
    ensure
      give_up unless done
    end

    private

    def held = @attempts.filter_map(&:lock)

    # Gives back what it has, whenever an exception of another thread came.
    def give_up = Threads.to_the_end { held.each { |lock| lock.send(:give_up) } }

    def take(till)
      at_once
    rescue HeldError, UnavailableError
      raise if @wait&.zero?

      in_order(till)
    end

    def at_once
      till = Clock.now + @session.gateway.timeout
      doubt = Gateway::Doubt.new(false)
      found = @session.settle(:acquire_all, { locks: @attempts.map(&:bid) }, till:, doubt:)
      return @attempts.each { |attempt| attempt.took(found, doubt) } if found[:token]

      raise HeldError.new(found[:lock], found[:holders].all, nil, found[:holders].delay_for)
    rescue Error
      refused = true
      raise
    ensure
      @attempts.each { |attempt| attempt.gave_up(doubt, refused) unless attempt.lock }
    end

    # Holds what it has while it waits for the next.
    def in_order(till)
      @attempts = []
      waiter = Thread.current
      keeper = Threads.start { keep(waiter) }
      @names.each_with_index do |name, number|
        left = till && [till - Clock.now, 0.01].max
        @attempts << Attempt.new(@session, name, @settings.beside(@names - [name]), left)
        @attempts.last.acquire
        held.each { |lock| lock.send(:waits_for, @names[number + 1]) }
      end
      Threads.to_the_end { keeper.kill.join } if keeper
      held.each(&:alive!)
    ensure
      keeper&.kill
    end

    def keep(waiter)
      loop do
        sleep([@settings.unlock_after / 4, 2].min)
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
