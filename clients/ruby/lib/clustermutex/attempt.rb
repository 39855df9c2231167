# frozen_string_literal: true

require "securerandom"

module ClusterMutex
  # One call for one lock: tries, queues, and leaves nothing behind if it gives up, however the call ends. An exception
  # from another thread (Timeout, Thread#raise, Thread#kill) may arrive at any point.
  class Attempt
    TICKET = 10 # seconds that a ticket outlives its owner
    KEEP = 3 # seconds between two extensions of its lease
    RECHECK = 10 # seconds after which a waiter reads without an event
    GRACE = 0.3 # seconds after the wait to leave the queue and to read who holds the lock
    RIVALS = 3 # immediate retries if others claim shares at the same time
    TOMBSTONE = 3600 # seconds after which no request can still be in flight

    # Set once the lock is held.
    attr_reader :lock

    def initialize(session, name, settings, wait)
      @session = session
      @settings = settings
      @wait = wait && Settings.seconds("wait", wait, 0)
      @till = @over = Float::INFINITY
      @name = name
      @began = Clock.wall
      Name.segment(name)
      @members = Identity.members.merge("owner" => session.owner, "purpose" => settings.purpose,
                                        "client" => "ruby/#{VERSION}", "backtrace" => Identity.backtrace,
                                        "detached" => settings.detached)
      begin_anew
      stamp # raises before anything is sent if the record is too large
    end

    # Takes the lock, yields it to the block, and releases it.
    def run
      failed = nil
      acquire
      yield @lock
    rescue Exception => e # rubocop:disable Lint/RescueException -- re-raised; an error of release must not hide it
      failed = e
      raise
    ensure
      Thread.handle_interrupt(Object => :never) { finish(Ending.till(failed), quiet: failed) }
    end

    # Takes the lock.
    def acquire
      wait = @wait&.zero? ? @session.gateway.timeout : @wait
      @till = Clock.now + wait if wait
      @over = Clock.now + [wait, GRACE].max if wait
      go_on until @lock
      acquired = true
      @lock
    rescue Exception => e # rubocop:disable Lint/RescueException -- re-raised
      failed = e
      raise
    ensure
      # The exception may have hit after the lock was acquired, which the caller never learns.
      Threads.to_the_end(Ending.till(failed)) { undo(Ending.till(failed)) } unless acquired
    end

    # -- For several locks that are taken together: the request and its outcome.

    def bid
      @claimed = true
      stamp
      @input
    end

    def took(found, doubt)
      @doubt = doubt.dup
      hold(found)
    end

    # refused: no request can have taken the lock, except those in doubt.
    def gave_up(doubt, refused)
      @doubt = doubt.dup
      @claimed = !refused
      give_up(Clock.now)
    end

    # Whether half of the time that it asks for is over: the machine slept, or the answer took that long.
    def late? = Clock.now - @sent > @settings.auto_unlock_after / 2

    private

    def undo(ending)
      @lock ? finish(ending, quiet: true) : give_up(ending || ([@till, Clock.now].min + GRACE))
    end

    def finish(till, quiet:)
      @lock&.send(:give_back, till)
    rescue Error
      raise unless quiet
    end

    # When the call ends. Even a short wait leaves etcd time to say who holds the lock.
    def limit = @refusal ? @till : @over

    # One try, then one wait in the queue. Each has a uuid of its own.
    def go_on
      found = ask or return
      @refusal = found[:holders]
      raise held(HeldError) if @wait&.zero?
      raise held(WaitTimeoutError) if Clock.now >= @till

      # A late commit of this try could overtake those ahead of the ticket, and both would wait for each other.
      queue unless @doubt.unanswered
      start_over unless @lock
    rescue Gateway::FullError
      raise
    rescue UnavailableError, Gateway::LeaseGone => e
      raise @refusal ? held(WaitTimeoutError) : e if Call.over?(limit)

      start_over
      sleep(rand(0.05..0.2))
    end

    # A share is claimed again while there is room, because others may have come in between.
    def ask
      rivals = 0
      while (found = claim(@wait&.zero? ? :acquire : :try)) && found[:verdict] == :again && !@doubt.unanswered
        rivals += 1
        return found if rivals > RIVALS && (@wait.nil? || @wait.positive? || Call.over?(limit))

        @skip = rivals > 1 ? rand(2**[rivals, 6].min) : 0
        sleep(rand(0.01..0.1)) if rivals > RIVALS
      end
      found
    end

    # Sends the transaction that takes the lock, for at most a third of the time that it asks for. Returns nil if the
    # lock is held, else the verdict.
    def claim(step)
      stamp
      @input.merge!(@holders.claim(**@settings.need.input, skip: @skip)) if @settings.need.kind
      @claimed = true
      found = send_step(step, [limit, Clock.now + (@settings.auto_unlock_after / 3)].min)
      return take(found) if found[:token]

      @holders = found[:holders] || Holders.none
      @input[:counted] = @holders.revision if @holders.shares.empty?
      @claimed = false
      found
    rescue Error # @doubt says whether anything was sent
      @claimed = false
      raise
    end

    # If the answer came late, gives the lock back: another attempt follows.
    def take(found)
      return hold(found) unless late?

      throw :lost if @input[:position]
      start_over
    end

    def hold(found)
      share = found[:share] || @input[:share] # the share that was taken
      name = @session.transactions.share_name(@name, share)
      @lock = Lock.new(@session, @input.except(:kind).merge(token: found[:token], lock: name), @settings,
                       sent: @sent, at: @at, unlock_at: @unlock_at, in_doubt: @doubt.unanswered)
      leave_lease
      nil
    end

    # After a turn: without its lease, no late join can put the ticket again.
    def leave_lease
      lease = @input[:lease] or return
      session = @session
      @session.chores.later(Clock.now + TICKET) { |till| session.revoke(lease, till) }
    end

    # Waits in the queue until the lock is held or the position is lost.
    def queue
      join or return
      @bell = Bell.new
      @kept = Clock.now
      catch(:lost) { advance until @lock }
    ensure
      @watch&.close
      @watch = nil
    end

    def join
      @input[:lease] = @session.grant(TICKET, [@till, Clock.now + TICKET].min)
      @input[:ticket] = JSON.generate(ticket)
      @input[:queued] = true
      joined = @session.settle(:join, @input, till: [@till, Clock.now + TICKET].min)
      @input.merge!(joined.slice(:position, :before))
      @input[:position]
    end

    def ticket
      { uuid: @input[:uuid], owner: @session.owner, hostname: @members["hostname"], pid: @members["pid"],
        purpose: @settings.purpose, since: Clock.format(@began), **Identity.under,
        timeout_at: @till == Float::INFINITY ? nil : Clock.format((Clock.wall + (@till - Clock.now)).floor(3)) }
    end

    # Looks, then acts: waits, takes the lock in its turn, or finds that the position is lost.
    def advance
      raise held(WaitTimeoutError) if Clock.now >= @till

      keep_lease
      found = look
      case found[:verdict]
      when :scan then nil # at once
      when :lost, :held_by_earlier_send then throw :lost
      when :turn then take_turn
      else wait_for(found)
      end
    rescue Gateway::FullError
      raise
    rescue UnavailableError
      throw :lost if Clock.now - @kept > TICKET
      @watch&.close
      @watch = nil
      sleep(rand(0.05..0.2))
    end

    # Scans the queue only if the ticket ahead is not known.
    def look
      found = @session.settle(@input[:before] ? :look : :scan, @input, till: soon)
      @holders = found[:holders] || Holders.none
      @input[:before] = found[:before] # the ticket ahead; empty: none; nil: not known
      found
    end

    # An unanswered turn has outdated deadlines: cancel it and start again.
    def take_turn
      found = claim(:turn) or return
      throw :lost if found[:verdict] == :lost || @doubt.unanswered
      wait_for(found) if found[:verdict] == :wait # for a share, beside which a plain lock is not taken
    rescue UnavailableError
      throw :lost
    end

    def wait_for(found)
      @session.settle(:restore_tail, @input.merge(older: found[:restore]), till: soon) if found[:restore]
      keys = @session.transactions.watched(@name, found[:watch], @input)
      return await if @watch&.standing? && @watch.keys == keys

      # A new watch is only trusted after another look.
      @watch&.close
      @watch = Watch.new(@session.gateway, keys, @bell) { |type, _| type == "DELETE" }
      return if @watch.confirmed?([@session.gateway.timeout, [@till - Clock.now, 0].max].min)

      @session.gateway.fail_over
      sleep(rand(0.05..0.2))
    end

    # Waits for an event, or until it is time to look again.
    def await
      look = Clock.now + RECHECK
      loop do
        now = Clock.now
        return if now >= [look, @till].min || @bell.wait([look, @till, @kept + KEEP].min - now)

        keep_lease
      end
    end

    def keep_lease
      return if Clock.now < @kept + KEEP

      sent = Clock.now
      answer = @session.gateway.call("/v3/lease/keepalive", { ID: @input[:lease] }, till: soon)
      throw :lost unless answer.dig("result", "TTL").to_i.positive?

      @kept = sent
    end

    def soon = [Clock.now + @session.gateway.timeout, @till].min
    def send_step(step, till) = @session.settle(step, @input, till:, doubt: @doubt)

    # Times from now, by both clocks.
    def stamp
      @sent = Clock.now
      @at = Clock.wall
      @input[:fields] = Record.fields(uuid: @input[:uuid], at: @at, alert_after: @settings.alert_after,
                                      auto_unlock_after: @settings.auto_unlock_after,
                                      members: @members.merge(heartbeat_until),
                                      attributes: @settings.attributes)
      @unlock_at = Clock.parse(@input[:fields]["auto_unlock_at"])
    end

    def heartbeat_until
      @settings.heartbeat ? { "heartbeat_until" => Clock.format((@at + @settings.heartbeat).floor(3)) } : {}
    end

    # @claimed: a claim is under way, without an answer yet. @doubt: a request with this uuid got no answer.
    def begin_anew
      @input = { lock: @name, uuid: SecureRandom.uuid, counted: @input&.fetch(:counted), **@settings.need.input }
      @holders = Holders.none
      @skip = 0
      @doubt = Gateway::Doubt.new(false)
      @claimed = false
    end

    def start_over
      give_up(soon)
      begin_anew
      nil
    end

    # Removes what this uuid has or may get later; in the background if that is not possible now.
    def give_up(now)
      cancel = @claimed || @doubt.unanswered
      return unless cancel || @input[:lease]

      session = @session
      input = @input
      session.chores.now_or_later(now, Clock.now + TOMBSTONE) do |till|
        session.clean_up(input, cancel:, till:)
      end
    end

    # The error that says who holds the lock, after a last look if etcd answers.
    def held(kind)
      found = @session.settle(:standing, @input, till: @till + GRACE)
      refusal(kind, found[:holders], found[:waiting])
    rescue Error
      refusal(kind, @refusal || Holders.none, nil)
    end

    def refusal(kind, holders, waiting)
      kind.new(@name, holders.all, waiting, holders.delay_for(**@settings.need.input),
               stays: @session.stays?(@name, holders, Clock.now + GRACE))
    end
  end
end
