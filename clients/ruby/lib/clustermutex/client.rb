# frozen_string_literal: true

module ClusterMutex
  # Takes locks. One client serves all threads of a process, and its forks.
  class Client
    # The owner in this client's records, shown to whoever has to wait.
    attr_reader :owner

    # endpoints: the URL of an etcd member, or an Array of them. user, password: for etcd with authentication. ca, cert,
    # key: PEM files for TLS. timeout: seconds for one attempt, and the most for each request. release_at_exit: whether
    # to release held locks when the program exits normally.
    def initialize(endpoints, owner: File.basename($PROGRAM_NAME), prefix: "/mutexes/", user: nil, password: nil,
                   ca: nil, cert: nil, key: nil, timeout: 5.0, release_at_exit: true)
      Settings.seconds("timeout", timeout)
      @owner = Text.check("the owner", owner)
      gateway = Gateway.new(endpoints, user:, password:, ca:, cert:, key:, timeout:)
      @session = Session.new(@owner, Transactions.new(prefix), gateway, release_at_exit)
    end

    # Takes the lock and returns it, or yields it to the block and releases it afterwards.
    #
    # wait: seconds to wait for the lock; 0 tries once, nil waits without limit.
    # alert_after, auto_unlock_after: seconds from now, and from each +alive!+, until operators are alerted (300) and
    # until the lock is removed (three times that).
    # margin: seconds before auto_unlock_after at which the hold counts as lost (a tenth of it, at most 30).
    # heartbeat: extends in the background while this process lives, for at most this many seconds; true means an hour.
    # It does not postpone the alert; auto_unlock_after then defaults to 60.
    # on_lost, on_asked: called with the LostError or the Request, each in a thread of its own.
    # attributes: a Hash of more to show with the lock: text, numbers and booleans.
    # semaphore: takes +weight+ (1) of this many permits; all callers should pass the same number. shared: reads,
    # together with other readers. exclusive: writes alone, or takes a whole semaphore.
    #
    # Raises HeldError if the lock is held, WaitTimeoutError if it still is at the end of the wait, UnavailableError if
    # etcd does not answer, RefusedError for bad input. With a block, raises LostError if the lock was lost meanwhile.
    #
    # A block whose work would run without the lock is refused when it returns: one that returns an Enumerator, or a
    # Fiber or Thread that has not ended, or an Array with one.
    def lock(name, wait: nil, **options, &block)
      take(:lock, Attempt.new(@session, name, Settings.of(name, **options), wait), &block)
    end

    # Takes several locks, all or none, and returns them as Locks, or yields them to the block and releases them. The
    # options are those of +lock+, for all of them or by name: lock_all("till", "catalogue" => { shared: true }). Up to
    # 24 plain locks are taken in one transaction. If there are more, or other kinds, or if one is held, they are taken
    # one by one in the order of their names.
    def lock_all(*names, wait: nil, **options, &block)
      own, common = options.partition { |name, _| name.is_a?(String) }.map(&:to_h)
      all = [*names, own].flat_map { |one| one.is_a?(Hash) ? one.to_a : [[one, {}]] }
      wanted = all.map { |name, more| [name, Settings.of(name, **common, **more)] }
      take(:lock_all, Together.new(@session, wanted, wait), &block)
    end

    # Runs the block under the lock once per period of +every+ seconds among all replicas. Returns whether this call ran
    # it: false if the period is taken. Periods are multiples of +every+ since 1970 in UTC, shifted by +offset+. Raises
    # HeldError if the lock is held; that does not use up the period. Otherwise it is used up when the block begins.
    # With retry_on_error, a block that raises gives it back for the next call.
    def once_per(name, every, offset: 0, retry_on_error: false, **options, &block)
      once(:once_per, Job.new(@session, name, Settings.new(**options), every:, offset:, retry_on_error:), &block)
    end

    # Runs the block under the lock once for this tick of a schedule, and for no earlier one afterwards. tick: the time
    # that the run is for, a Time or seconds since 1970. Take it from the schedule, not from the clock, so that all
    # replicas name the same. Otherwise like +once_per+.
    def once_at(name, tick, retry_on_error: false, **options, &block)
      tick = Job.scheduled(tick)
      once(:once_at, Job.new(@session, name, Settings.new(**options), tick:, retry_on_error:), &block)
    end

    # Takes the lock for that many seconds and leaves it held, even after this process has ended. Returns a Reservation:
    # another process releases or extends the hold, see +adopt+. Otherwise it is auto-unlocked when its time is up.
    # reason: the purpose of the record. The options are those of +lock+ for kinds and attributes.
    def reserve(name, reason, seconds, wait: nil, attributes: {}, **kind)
      raise RefusedError, "a reservation needs a reason: no process can explain what it is for" if reason.to_s.empty?

      settings = Settings.of(name, alert_after: seconds, auto_unlock_after: seconds, purpose: reason, detached: true,
                                   attributes: { "reserved" => true }.merge(attributes), **kind)
      loop do
        left = Attempt.new(@session, name, settings, wait).acquire.send(:leave)
        return left if left
      end
    end

    # Returns the lock with a hold that another process took: adopt(name, uuid).release releases it. From then on the
    # end of that process proves nothing. +alive!+ extends the hold by as much as its last writer did. Raises LostError
    # if the lock has another holder, or none.
    def adopt(name, uuid, on_lost: nil, on_asked: nil)
      Handover.adopt(@session, name, uuid, on_lost:, on_asked:)
    end

    # Waits until this process leads, and returns the leader's lock, or yields it to the block and then resigns. Keeps
    # the lock alive meanwhile. life: seconds for which leadership outlasts the last sign of life. address: where others
    # reach this process, see +leader+. check: called before each sign of life; none is given unless it returns true.
    def campaign(name, life: 60, address: nil, check: nil, wait: nil, attributes: {}, **options, &block)
      attributes = { address: }.compact.merge(attributes)
      check ||= -> { true }
      settings = Settings.new(alert_after: life, auto_unlock_after: life, attributes:, leads: check, **options)
      take(:campaign, Attempt.new(@session, name, settings, wait), &block)
    end

    # The leader as a Holder, with its address in the attributes; nil if there is no leader.
    def leader(name)
      @session.settle(:standing, { lock: name, uuid: "" }, till: Clock.now + @session.gateway.timeout)[:holders].whole
    end

    # Omits the password.
    def inspect = "#<#{self.class} owner=#{@owner.inspect}>"

    private

    def once(call, job)
      ran = false
      job.run { |lock| lock && (ran = true) && Work.done(call, yield(lock)) }
      ran
    end

    def take(call, what)
      return what.acquire unless block_given?

      what.run { |lock| Work.done(call, yield(lock)) }
    end
  end
end
