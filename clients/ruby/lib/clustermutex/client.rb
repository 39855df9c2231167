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
    def lock(name, wait: nil, alert_after: nil, unlock_after: nil, margin: nil, purpose: nil, attributes: {},
             heartbeat: false, on_lost: nil, on_asked: nil, semaphore: nil, weight: 1, shared: false, exclusive: false,
             &block)
      need = Need.new(semaphore:, weight:, shared:, exclusive:).check(name, attributes)
      settings = Settings.new(alert_after:, unlock_after:, margin:, purpose:,
                              attributes: need.attributes.merge(attributes), heartbeat:, on_lost:, on_asked:, need:)
      attempt = Attempt.new(@session, name, settings, wait)
      block ? attempt.run(&block) : attempt.acquire
    end

    # Takes several locks, all or none, and returns them as Locks, or runs the block with them and gives them back. They
    # are taken in one transaction, or else in the order of their names. The options are those of +lock+.
    def lock_all(*names, wait: nil, **options, &block)
      together = Together.new(@session, names, Settings.new(**options), wait)
      block ? together.run(&block) : together.acquire
    end

    # Runs the block under the lock once in each period of so many seconds over all replicas; whether this call did.
    # Periods are multiples of +every+ since 1970 in UTC, later by +offset+. false: the period is taken. HeldError:
    # somebody holds the lock, and the period is not used up. Otherwise it is when the block begins.
    def once_per(name, every, offset: 0, **options, &block)
      job = Job.new(@session, name, Settings.new(**options), every, offset)
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
      attempt = Attempt.new(@session, name, settings, wait)
      block ? attempt.run(&block) : attempt.acquire
    end

    # The Holder that leads; nil if nobody does. Its attributes have the address.
    def leader(name)
      @session.settle(:standing, { lock: name, uuid: "" }, till: Clock.now + @session.gateway.timeout)[:holders].whole
    end

    # Without the password.
    def inspect = "#<#{self.class} owner=#{@owner.inspect}>"
  end
end
