# frozen_string_literal: true

module ClusterMutex
  # Takes locks. One client serves a whole process with all its threads, and the processes that it forks.
  class Client
    # Who takes locks: shown to those who have to wait.
    attr_reader :owner

    # endpoints: the URL of an etcd member, or an Array of them. user and password: of etcd, if it has users. ca, cert,
    # key: PEM files for TLS. timeout: seconds for a try, and at most for each request. release_at_exit: whether locks
    # that are held when the program ends in an orderly way are released.
    def initialize(endpoints, owner: File.basename($PROGRAM_NAME), prefix: "/mutexes/", user: nil, password: nil,
                   ca: nil, cert: nil, key: nil, timeout: 5.0, release_at_exit: true)
      Settings.seconds("timeout", timeout)
      @owner = Text.check("the owner", owner)
      gateway = Gateway.new(endpoints, user:, password:, ca:, cert:, key:, timeout:)
      @session = Session.new(@owner, Transactions.new(prefix), gateway, release_at_exit)
    end

    # Takes the lock and returns it, or runs the block with it and gives it back.
    #
    # wait: seconds to wait for the lock; 0 tries once, nil waits without limit.
    # alert_after, unlock_after: seconds from now, and from each +alive!+, until somebody is alerted (300) and until the
    # lock is taken away (three times that).
    # margin: seconds before unlock_after at which the hold counts as lost (a tenth of unlock_after, at most 30).
    # heartbeat: extends in the background while this process lives, for so many seconds at most; true is an hour. The
    # alert comes all the same; unlock_after is 60 unless it is given.
    # on_lost, on_asked: called with the LostError or the Request, in a thread of their own.
    # attributes: more to show with the lock: text, numbers and booleans by name.
    # semaphore: takes +weight+ (1) of so many permits, which all callers should give alike. shared: reads, beside other
    # readers; exclusive: writes, beside nobody, or takes a whole semaphore.
    #
    # HeldError if another holds it, WaitTimeoutError if one does until the end of the wait, UnavailableError if etcd
    # does not answer, RefusedError for bad input. With a block also LostError, if the lock was lost while it ran.
    def lock(name, wait: nil, **options, &block)
      take(Attempt.new(@session, name, Settings.of(name, **options), wait), &block)
    end

    # Takes several locks, all or none, and returns them as Locks, or runs the block with them and gives them back. The
    # options are those of +lock+, for all of them or by name: lock_all("till", "catalogue" => { shared: true }). Up to
    # 24 plain locks are taken in one transaction; more, other kinds, and whatever has to be waited for, one by one in
    # the order of names.
    def lock_all(*names, wait: nil, **options, &block)
      own, common = options.partition { |name, _| name.is_a?(String) }.map(&:to_h)
      all = [*names, own].flat_map { |one| one.is_a?(Hash) ? one.to_a : [[one, {}]] }
      wanted = all.map { |name, more| [name, Settings.of(name, **common, **more)] }
      take(Together.new(@session, wanted, wait), &block)
    end

    # Runs the block under the lock once in each period of so many seconds over all replicas; whether this call did.
    # Periods are multiples of +every+ since 1970 in UTC, later by +offset+. false: the period is taken. HeldError:
    # somebody holds the lock, and the period is not used up. Otherwise it is when the block begins; with back_on_error,
    # a block that raises gives it back, and the next call runs it again.
    def once_per(name, every, offset: 0, back_on_error: false, **options, &block)
      job = Job.new(@session, name, Settings.new(**options), every:, offset:, back_on_error:)
      ran = false
      job.run { |lock| lock && (ran = true) && block.call(lock) }
      ran
    end

    # Waits until this process leads, and returns the lock of its leadership, or runs the block with it and resigns.
    # The lock is kept alive until then. life: seconds that the leadership outlasts the last sign of life. address:
    # where others reach this process, see +leader+. check: called before each sign of life; while it is not true, none
    # is given.
    def campaign(name, life: 60, address: nil, check: nil, wait: nil, attributes: {}, **options, &block)
      attributes = { address: }.compact.merge(attributes)
      check ||= -> { true }
      settings = Settings.new(alert_after: life, unlock_after: life, attributes:, leads: check, **options)
      take(Attempt.new(@session, name, settings, wait), &block)
    end

    # The Holder that leads; nil if nobody does. Its attributes have the address.
    def leader(name)
      @session.settle(:standing, { lock: name, uuid: "" }, till: Clock.now + @session.gateway.timeout)[:holders].whole
    end

    # Without the password.
    def inspect = "#<#{self.class} owner=#{@owner.inspect}>"

    private

    def take(what, &block) = block ? what.run(&block) : what.acquire
  end
end
