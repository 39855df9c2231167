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
      errors = @all.filter_map do |lock|
        lock.release
        nil
      rescue Error => e
        e
      end
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

    # Takes them.
    def acquire
      till = Clock.now + @wait if @wait
      Locks.new(at_once)
    rescue HeldError, UnavailableError
      raise if @wait&.zero?

      Locks.new(in_order(till))
    end

    private

    def at_once
      till = Clock.now + @session.gateway.timeout
      doubt = Gateway::Doubt.new(false)
      inputs = @attempts.map(&:bid)
      found = @session.settle(:acquire_all, { locks: inputs }, till:, doubt:)
      return @attempts.map { |attempt| attempt.took(found, doubt) } if found[:token]

      raise HeldError.new(found[:lock], found[:holders].all, nil, found[:holders].delay_for)
    ensure
      @attempts.each { |attempt| attempt.gave_up(doubt) } unless found && found[:token]
    end

    # Holds what it has while it waits for the next; all or none in the end.
    def in_order(till)
      taken = []
      waiter = Thread.current
      keeper = Threads.start { keep(taken, waiter) }
      @names.each_with_index do |name, number|
        left = till && [till - Clock.now, 0.01].max
        taken << Attempt.new(@session, name, @settings.beside(@names - [name]), left).acquire
        taken.each { |lock| lock.send(:waits_for, @names[number + 1]) }
      end
      Threads.to_the_end { keeper.kill.join } if keeper
      taken.each(&:alive!)
      done = taken
    ensure
      keeper&.kill
      Threads.to_the_end { taken.each { |lock| lock.send(:give_up) } } unless done
    end

    def keep(taken, waiter)
      loop do
        sleep([@settings.unlock_after / 4, 2].min)
        taken.dup.each do |lock|
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
