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
    def lock_all(*names, wait: nil, **options)
      locks = Together.new(@session, names, Settings.new(**options), wait).acquire
      return locks unless block_given?

      begin
        result = yield locks
        done = true
      ensure
        Thread.handle_interrupt(Object => :never) { locks.all.each { |lock| lock.send(:give_back, nil) } } unless done
      end
      locks.release
      result
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

  # The options of one lock, checked.
  class Settings
    LONGEST = 10 * 365 * 86_400
    HOUR = 3600

    attr_reader :alert_after, :unlock_after, :margin, :purpose, :attributes, :heartbeat, :on_lost, :on_asked, :need,
                :leads

    # Seconds as a number, at least so many; RefusedError otherwise.
    def self.seconds(what, value, least = 0.1)
      number = value.to_f if value.is_a?(Numeric) || (value.respond_to?(:to_f) && value.respond_to?(:from_now))
      return number if number && number >= least && number <= LONGEST

      raise RefusedError, "#{what} is #{value.inspect}: want a number of seconds, at least #{least}"
    end

    # need: what is wanted of the lock. leads: of a leader, whether it can work.
    def initialize(alert_after: nil, unlock_after: nil, margin: nil, purpose: nil, attributes: {}, heartbeat: false,
                   on_lost: nil, on_asked: nil, need: Need.new, leads: nil)
      @need = need
      @leads = leads
      @heartbeat = heartbeat && Settings.seconds("heartbeat", heartbeat == true ? HOUR : heartbeat)
      @alert_after = Settings.seconds("alert_after", alert_after) if alert_after
      @unlock_after = Settings.seconds("unlock_after", unlock_after) if unlock_after
      complete
      @margin = margin ? Settings.seconds("margin", margin, 0.001) : margin_of(@unlock_after)
      @purpose = Text.check("the purpose", purpose) if purpose
      @attributes = Record.check(attributes)
      @on_lost = on_lost
      @on_asked = on_asked
      check
    end

    # The same for a lock that is taken together with others, which its record names.
    def beside(others)
      text = others.join(", ")
      text = "#{Text.cut(text, 1000)} …" if text.bytesize > 1000
      dup.tap { |one| one.instance_variable_set(:@attributes, { "together_with" => text }.merge(attributes)) }
    end

    # How long before the lock is taken away the work must have stopped.
    def margin_of(unlock_after) = [unlock_after / 10, 30].min

    private

    def complete
      if @heartbeat
        @alert_after ||= [300.0, @heartbeat].min
        @unlock_after ||= [60.0, @heartbeat].min
      end
      @alert_after ||= @unlock_after ? @unlock_after / 3 : 300.0
      @unlock_after ||= 3 * @alert_after
      nil
    end

    def check
      raise RefusedError, "the margin, #{@margin} s, leaves nothing of #{@unlock_after} s" if @margin >= @unlock_after

      if @heartbeat && @heartbeat < @unlock_after
        raise RefusedError, "the heartbeat ends after #{@heartbeat} s, before the auto-unlock, #{@unlock_after} s"
      end
      return if @heartbeat || @alert_after <= @unlock_after

      raise RefusedError, "the alert, after #{@alert_after} s, would come after the auto-unlock, #{@unlock_after} s"
    end
  end
end
