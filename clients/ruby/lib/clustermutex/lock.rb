# frozen_string_literal: true

module ClusterMutex
  # A request to finish: who asks, why, through what (such as "cli"), and when (a Time). Absent members are nil.
  Request = Struct.new(:by, :reason, :source, :at)

  # A held lock. Thread-safe. It belongs to the process that took it: in a fork, +release+ does nothing, +alive!+ raises
  # RefusedError, and +lost+ is "forked".
  class Lock
    WATCH_AFTER = 0.1 # seconds after which a hold is watched
    RECHECK = 10 # seconds after which a holder reads without an event
    SLEEP = 2 # seconds between looks at the clock: timers stop while the machine sleeps

    # The name of the lock; the identifier of this hold; its fencing token, which grows with every acquisition.
    attr_reader :name, :uuid, :token

    # sent, at: when the record was created, by the monotonic and by the wall clock.
    def initialize(session, input, settings, sent:, at:, unlock_at:, in_doubt:)
      @session = session
      @input = input
      @settings = settings
      @name, @uuid, @token = input.values_at(:lock, :uuid, :token)
      @since = sent
      @at = at
      @recorded = unlock_at
      @deadline = sent + (unlock_at - at) - settings.margin
      @alert_at = at + settings.alert_after
      @in_doubt = in_doubt
      @asked_at = @granted_at = 0
      @reported = 0 # the latest known mod revision of alive
      @pid = Process.pid
      @mutex = Mutex.new
      @extending = Mutex.new
      @releasing = Mutex.new
      @bell = Bell.new
      @hooks = { lost: [settings.on_lost].compact, asked: [settings.on_asked].compact }
      @taker = Thread.current
      Threads.start { keep }
    end

    # Reports progress and moves both deadlines to alert_after and auto_unlock_after seconds from now; the defaults are
    # those of the acquisition. Raises LostError if the hold is over. After UnavailableError it keeps its previous
    # deadline.
    def alive!(progress = nil, alert_after: nil, auto_unlock_after: nil)
      progress = progress.to_s.encode("UTF-8", invalid: :replace, undef: :replace).scrub("\uFFFD")
      extend_by(progress, Settings.seconds("alert_after", alert_after || @settings.alert_after),
                Settings.seconds("auto_unlock_after", auto_unlock_after || @settings.auto_unlock_after))
    end

    # Releases the lock. Raises LostError if it was already lost, UnavailableError if etcd does not answer: the release
    # then continues in the background. Calling it again does nothing and has the same outcome.
    def release = give_back(nil)

    # Why the lock was lost, as LostError#reason; nil while it is held and after its release.
    def lost
      return "forked" unless ours?

      lose("deadline", { "why" => @settings.why_late(Clock.now - @since) }) if !@over && Clock.now >= @deadline
      @lost
    end

    def lost? = !lost.nil?
    # Seconds until the hold counts as lost unless it is extended.
    def time_left = [@deadline - Clock.now, 0].max
    # The latest Request to finish, or nil.
    attr_reader :asked

    # Calls the block with the LostError, in a thread of its own, if the lock is lost.
    def on_lost(&block) = listen(:lost, @lost && loss, block)
    # Calls the block with each Request to finish, in a thread of its own.
    def on_asked(&block) = listen(:asked, @asked, block)
    def inspect = "#<#{self.class} #{@name.inspect} #{@uuid} token=#{@token}#{" lost=#{@lost}" if @lost}>"

    private

    def ours? = @pid == Process.pid

    def listen(event, happened, block)
      @mutex.synchronize { @hooks[event] << block }
      Threads.start { block.call(happened) } if happened
      self
    end

    def tell(event, fact)
      hooks = @hooks[event].dup
      Threads.start { hooks.each { |hook| hook.call(fact) } } if hooks.any?
    end

    # -- Extending.

    def extend_by(progress, alert_after, auto_unlock_after, beat: false, till: @session.patience)
      unless ours?
        raise RefusedError, "lock #{@name.inspect} belongs to process #{@pid}, not to this fork: take one here"
      end

      @extending.synchronize do
        raise RefusedError, "lock #{@name.inspect} was released" if @over && !@lost
        raise loss if lost

        sent = Clock.now
        at = [Clock.wall, @at + (sent - @since)].max.floor(3) # advances even if the wall clock was set back
        unlock_at = (at + auto_unlock_after).floor(3)
        @alert_at = at + alert_after unless beat
        send_alive(at, unlock_at, progress, beat, till)
        margin = @settings.margin_of(auto_unlock_after)
        @mutex.synchronize do
          @progress = progress
          @recorded = [@recorded, unlock_at].max
          @deadline = [@deadline, sent + (unlock_at - at) - margin].max
        end
        @bell.ring
        nil
      end
    end

    def send_alive(at, unlock_at, progress, beat, till)
      text = Clock.format(at) + (progress.empty? ? "" : " #{Text.cut(progress, 1024)}")
      alert_at = [[@alert_at, @granted].compact.max, unlock_at].min.floor(3)
      input = @input.merge(fields: { "alert_at" => Clock.format(alert_at),
                                     "auto_unlock_at" => Clock.format(unlock_at), "alive" => text })
      input[:seen] = @reported if beat
      found = @session.settle(:alive, input, till: [@deadline, till].min)
      return @reported = found[:revision] if found[:verdict] == :still_held

      adopt(found) if found[:verdict] == :again
      lose(found[:reason], found[:ending])
      raise LostError.new(@name, @lost || found[:reason], @ending)
    rescue UnavailableError
      raise loss if lost

      raise
    end

    # Adopts the progress and the alert time that another process wrote for this hold.
    def adopt(found)
      fields, modified = found.values_at(:fields, :modified)
      @reported = modified["alive"].to_i
      @progress = fields["alive"].to_s.dup.force_encoding("UTF-8").scrub("\uFFFD").split(" ", 2)[1]
      @alert_at = Clock.parse(fields["alert_at"].to_s) || @alert_at
      raise UnavailableError, "another process extends lock #{@name.inspect}"
    end

    # -- Losing.

    def lose(reason, ending = nil)
      @mutex.synchronize do
        return if @over

        @over = true
        @ending = ending
        @lost = reason
      end
      cancel_later if @in_doubt && reason != "deadline" # after a deadline, release may find it still held
      @bell.ring
      tell(:lost, loss)
    end

    def loss = LostError.new(@name, @lost, @ending)

    # An acquisition request that is still in flight must not take the lock.
    def cancel_later
      session = @session
      input = @input
      session.chores.later(Clock.now + Attempt::TOMBSTONE) { |till| session.clean_up(input, cancel: true, till:) }
    end

    # -- Releasing.

    # till: the limit when the program is ending, by Clock.now.
    def give_back(till)
      return unless ours?

      @releasing.synchronize do
        @outcome ||= Threads.to_the_end(till) { end_hold(till || @session.patience) }
      end
      raise @outcome if @outcome.is_a?(Error)
    end

    # Releases at the end of the program, if possible after the thread that took the lock has ended.
    def end_with_program
      return if @over || !@session.release_at_exit

      half = Clock.now + ((Ending.till - Clock.now) / 2)
      sleep(0.01) while @taker.alive? && @taker != Thread.main && Clock.now < half
      give_up(Ending.till)
    end

    # Releases it, and returns the error if that failed.
    def give_up(till = nil)
      give_back(till)
      nil
    rescue Error => e
      e
    end

    # Returns true, or the error that +release+ raises.
    def end_hold(till)
      @mutex.synchronize { @over = true }
      @bell.ring
      return loss if @lost && @lost != "deadline"

      doubt = Gateway::Doubt.new(false)
      found = send_release(doubt, till)
      lost = found[:verdict] == :lost ? found[:reason] : (@lost if doubt.unanswered)
      lost ? LostError.new(@name, lost, found[:ending]) : true
    rescue UnavailableError => e
      release_later
      UnavailableError.new("the release of lock #{@name.inspect} continues in the background: #{e.message}")
    rescue Error => e
      e
    end

    def send_release(doubt, till)
      return @session.settle(:release, @input, till:, doubt:) unless @in_doubt

      begin
        lease = @session.grant(Attempt::TOMBSTONE, till)
        found = @session.settle(:release_in_doubt, @input.merge(lease:), till:, doubt:)
        return found unless found[:verdict] == :withdraw
      rescue Gateway::FullError
        nil
      end
      cancel_later # etcd is out of space for a tombstone
      @session.settle(:release, @input.merge(queued: true), till:, doubt:)
    end

    def release_later
      lock = self
      @session.chores.later(Clock.now + @settings.auto_unlock_after) do |till|
        lock.send(:send_release, Gateway::Doubt.new(true), till)
      end
    end

    # -- The thread that watches the hold, and extends it for a heartbeat or a leader.

    def keep
      beat_at = @since + beat_every
      check_at = @since + WATCH_AFTER
      until @over || lost
        rung = @bell.wait([[@deadline, beat_at, check_at, Clock.now + SLEEP].min - Clock.now, 0].max)
        break if @over

        beat_at = beat if Clock.now >= beat_at
        check_at = check if (rung && @watch) || Clock.now >= check_at
      end
    ensure
      @watch&.close
      Threads.to_the_end(Ending.till) { end_with_program } if Ending.now?
    end

    def beat_every = (@settings.auto_unlock_after - @settings.margin) / 3

    # Extends once without reporting progress, or gives a leader's sign of life. Returns when the next is due.
    def beat
      return @settings.leads ? lead : Float::INFINITY unless @settings.heartbeat

      held = Clock.now - @since
      return Float::INFINITY if held >= @settings.heartbeat - @settings.margin

      extend_by(@progress.to_s, 0, [@settings.auto_unlock_after, @settings.heartbeat - held].min, beat: true)
      Clock.now + beat_every
    rescue LostError
      Float::INFINITY
    rescue StandardError => e
      complain(e) unless e.is_a?(Error)
      Clock.now + [beat_every, rand(1.0..2.0)].min
    end

    # Gives a leader's sign of life if its check passes.
    def lead
      extend_by(@progress.to_s, @settings.alert_after, @settings.auto_unlock_after) if @settings.leads.call
      Clock.now + beat_every
    end

    # Extends once while the holder waits for another lock.
    def stay = extend_by(@progress.to_s, 0, @settings.auto_unlock_after, beat: true)

    # Makes both deadlines count from now: the other locks are held, too.
    def confirm(till) = extend_by("", @settings.alert_after, @settings.auto_unlock_after, till:)

    # Reports the lock that the holder waits for as its progress.
    def waits_for(name) = @progress = "waits for lock #{name.inspect}"

    # Opens the watch if there is none, then reads. Returns when to read again.
    def check
      watch unless @watch&.standing?
      found = @session.settle(:read, @input, till: [@deadline, Clock.now + @session.gateway.timeout].min)
      found[:verdict] == :lost ? lose(found[:reason], found[:ending]) : learn(found)
      @watched = @watch.standing?
      Clock.now + (@watched ? RECHECK : rand(0.5..1.0))
    rescue StandardError => e
      complain(e) unless e.is_a?(Error)
      Clock.now + rand(0.5..1.0)
    end

    # Reports an unexpected error, once. It must not stop the thread.
    def complain(error)
      text = Text.plain(error.full_message(highlight: false), 1024)
      warn "clustermutex: lock #{@name.inspect}: #{text}" unless @complained
    rescue IOError, SystemCallError
      nil # stderr is closed
    ensure
      @complained = true
    end

    # Opens a watch that ignores the hold's own extensions.
    def watch
      @watch&.close
      from, to = %w[asked uuid].map { |field| @session.transactions.field(@name, field) }
      @watch = Watch.new(@session.gateway, [[from, "#{to}\0"]], @bell) do |type, key|
        type == "DELETE" || !key.end_with?("/auto_unlock_at")
      end
      @watch.confirmed?([@session.gateway.timeout, time_left].min)
    end

    # Reads what others wrote into the record.
    def learn(found)
      fields, modified = found.values_at(:fields, :modified)
      asked = Document.of_hold(fields["asked"], @uuid, @token) if modified["asked"].to_i > @asked_at
      if asked
        @asked_at = modified["asked"]
        texts = asked.values_at("by", "reason", "source").map { |text| text && Text.plain(text, 1024) }
        @asked = Request.new(*texts, Clock.parse(asked["at"].to_s))
        tell(:asked, @asked)
      end
      given = Document.of_hold(fields["extended"], @uuid, @token) if modified["extended"].to_i > @granted_at
      return unless given

      @granted_at = modified["extended"]
      postpone(Clock.parse(fields["auto_unlock_at"].to_s), given["seconds"].to_i)
      @granted = Clock.parse(fields["alert_at"].to_s) if modified["alert_at"] == @granted_at
    end

    # An operator gave more time: the local deadline moves by as much as the record's, because clocks may differ.
    def postpone(unlock_at, seconds)
      @mutex.synchronize do
        moved = unlock_at ? unlock_at - @recorded : 0
        next if moved <= 0

        most = moved > seconds ? Clock.now + seconds - @settings.margin : Float::INFINITY
        @recorded = unlock_at
        @alert_at += moved
        @deadline = [@deadline, [@deadline + moved, most].min].max
      end
    end
  end
end
