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
    #
    # HeldError if another holds it, WaitTimeoutError if one does until the end of the wait, UnavailableError if etcd
    # does not answer, RefusedError for bad input. With a block also LostError, if the lock was lost while it ran.
    def lock(name, wait: nil, alert_after: nil, unlock_after: nil, margin: nil, purpose: nil, attributes: {},
             heartbeat: false, on_lost: nil, on_asked: nil, &block)
      settings = Settings.new(alert_after:, unlock_after:, margin:, purpose:,
                              attributes:, heartbeat:, on_lost:, on_asked:)
      attempt = Attempt.new(@session, name, settings, wait)
      block ? attempt.run(&block) : attempt.acquire
    end

    # Without the password.
    def inspect = "#<#{self.class} owner=#{@owner.inspect}>"
  end

  # The options of one lock, checked.
  class Settings
    LONGEST = 10 * 365 * 86_400
    HOUR = 3600

    attr_reader :alert_after, :unlock_after, :margin, :purpose, :attributes, :heartbeat, :on_lost, :on_asked

    # Seconds as a number, at least so many; RefusedError otherwise.
    def self.seconds(what, value, least = 0.1)
      number = value.to_f if value.is_a?(Numeric) || (value.respond_to?(:to_f) && value.respond_to?(:from_now))
      return number if number && number >= least && number <= LONGEST

      raise RefusedError, "#{what} is #{value.inspect}: want a number of seconds, at least #{least}"
    end

    def initialize(alert_after:, unlock_after:, margin:, purpose:, attributes:, heartbeat:, on_lost:, on_asked:)
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
