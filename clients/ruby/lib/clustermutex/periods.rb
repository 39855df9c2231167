# frozen_string_literal: true

require "time"

module ClusterMutex
  # A job that runs once for each tick among all replicas: whoever writes the tick first has it.
  class Job < Attempt
    PERIODS = (1..10 * 365 * 86_400)
    TOLERANCE = 30 # seconds that clocks may differ before a call fails
    PRESENCE = 15

    # When the period of a time began.
    def self.began(now, every, offset)
      raise RefusedError, "the period is #{every.inspect}: want seconds, from 1 to ten years" unless
        every.is_a?(Numeric) && PERIODS.cover?(every)
      raise RefusedError, "the offset is #{offset.inspect}: want seconds, less than the period" unless
        offset.is_a?(Numeric) && offset >= 0 && offset < every

      now = (now.to_r * 1000).floor
      Time.at((now - ((now - (offset * 1000).round) % (every * 1000).round)) / 1000r)
    end

    # A tick of a schedule, cut to milliseconds.
    def self.scheduled(tick)
      raise RefusedError, "the tick is #{tick.inspect}: want a Time, or seconds since 1970" unless
        (tick.is_a?(Numeric) || tick.is_a?(Time)) && (0..9_999_999_999).cover?(tick.to_f)

      Time.at((tick.to_r * 1_000_000).round / 1000 / 1000r)
    end

    # The tick is that of the schedule, or else the start of the current period.
    def initialize(session, name, settings, retry_on_error:, tick: nil, every: nil, offset: 0)
      Job.began(Clock.wall, every, offset) unless tick
      @tick = tick
      @every = every
      @offset = offset
      @retry_on_error = retry_on_error
      super(session, name, settings, 0)
    end

    # The lock, or nil if the tick, or a later one, is taken. Raises LostError if the answer came after the hold.
    def acquire
      super
      raise @lock.send(:loss) if @lock.lost?

      @begun = true
      @lock
    rescue StopIteration
      nil
    end

    # The tick is used up already.
    def late? = false

    private

    # Gives the tick back first: no other call can take it while the lock is held.
    def finish(till, quiet:)
      give_tick_back(till) if @lock && (!@begun || (quiet && @retry_on_error && !@lock.lost?))
      super
    end

    def give_tick_back(till)
      input = @input.merge(token: @lock.token, before: @before)
      Threads.to_the_end(till) { @session.settle(:restore_period, input, till: till || @session.patience) }
    rescue Error => e
      warn "clustermutex: the tick of #{Text.plain(@name).inspect} was not given back: #{e.message}"
    end

    def go_on
      now = Clock.wall
      tick = @tick || Job.began(now, @every, @offset)
      due(tick, now)
      @members = @members.merge((@tick ? "tick" : "period") => tick.utc.iso8601(3))
      @input[:taken] = "#{Clock.format(tick)} taken #{now.utc.iso8601(3)} by #{Text.plain(@session.owner)} " \
                       "on #{@members["hostname"]}#{", every #{Settings.in_words(@every)}" unless @tick}"
      found = claim(:acquire_once) or return
      raise held(HeldError) if found[:verdict] == :refused
      raise UnavailableError, "the tick of #{@name.inspect} keeps changing" if Call.over?(limit)

      begin_anew
      sleep(rand(0.02..0.1))
    end

    # A late commit would write the tick again, so an unanswered request is settled.
    def send_step(step, till)
      found = super
      @doubt.unanswered ? settled : found
    rescue UnavailableError
      raise unless @doubt.unanswered

      settled
    end

    def settled
      lease = @session.grant(TOMBSTONE, @session.patience)
      found = @session.settle(:settle, @input.merge(lease:), till: @session.patience)
      @doubt = Gateway::Doubt.new(false)
      found
    end

    # Ends the call unless the tick is still to be taken.
    def due(tick, now)
      refuse("the tick of #{tick.utc.iso8601(3)} has not come: this machine's clock says #{now.utc.iso8601(3)}") if
        tick > now + TOLERANCE

      found = @session.settle(:read_period, @input, till: limit)
      @input[:seen] = found[:seen]
      @before = found[:value]
      taken, _, note = @before.to_s.partition(" ")
      last = Clock.parse(taken)
      refuse("the last tick cannot be read: #{Text.plain(taken)}") if @before && !last
      if last && tick <= last
        raise StopIteration if last <= now + TOLERANCE

        refuse("the run of #{last.utc.iso8601} is ahead of this machine's clock, and it was #{Text.plain(note)}; " \
               "no earlier one runs unless its key #{@session.transactions.period(@name)} is deleted")
      end
      latest = found[:clocks].max or return
      return if tick <= latest + PRESENCE + TOLERANCE

      refuse("by the clock of an unlocker it is #{latest.utc.iso8601}, so the run of #{tick.utc.iso8601} is not due")
    end

    def refuse(why) = raise(RefusedError, "once #{@name.inspect}: #{why}")
  end
end
