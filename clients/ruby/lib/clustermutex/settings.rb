# frozen_string_literal: true

module ClusterMutex
  # The options of one lock, checked.
  class Settings
    LONGEST = 10 * 365 * 86_400
    HOUR = 3600

    attr_reader :alert_after, :auto_unlock_after, :margin, :purpose, :heartbeat, :on_lost, :on_asked, :need, :leads,
                :detached
    attr_accessor :attributes

    # Returns the seconds as a number. Raises RefusedError if they are not a number of from +least+ to ten years.
    def self.seconds(what, value, least = 0.1)
      number = value.to_f if value.is_a?(Numeric) || (value.respond_to?(:to_f) && value.respond_to?(:from_now))
      return number if number && number >= least && number <= LONGEST

      raise RefusedError, "#{what} is #{value.inspect}: want a number of seconds, from #{least} to ten years"
    end

    def self.in_words(seconds) = "#{format("%.15g", seconds)} s"

    # The options of +lock+, checked for the lock with this name.
    def self.of(name, semaphore: nil, weight: 1, shared: false, exclusive: false, attributes: {}, **options)
      need = Need.new(semaphore:, weight:, shared:, exclusive:).check(name, attributes)
      new(**options, attributes: need.attributes.merge(attributes), need:)
    end

    # need: the kind of hold. leads: reports whether a leader can work. detached: the hold outlives this process.
    def initialize(alert_after: nil, auto_unlock_after: nil, margin: nil, purpose: nil, attributes: {},
                   heartbeat: false, on_lost: nil, on_asked: nil, need: Need.new, leads: nil, detached: nil)
      @need = need
      @leads = leads
      @detached = detached
      @heartbeat = heartbeat && Settings.seconds("heartbeat", heartbeat == true ? HOUR : heartbeat)
      @alert_after = Settings.seconds("alert_after", alert_after) if alert_after
      @auto_unlock_after = Settings.seconds("auto_unlock_after", auto_unlock_after) if auto_unlock_after
      complete
      @margin = margin ? Settings.seconds("margin", margin, 0.001) : margin_of(@auto_unlock_after)
      @purpose = Text.check("the purpose", purpose) if purpose
      @attributes = Record.check(attributes)
      @on_lost = on_lost
      @on_asked = on_asked
      check
    end

    # The same for a lock that is taken together with others; its record names them.
    def beside(others)
      return self if others.empty?

      text = others.join(", ")
      text = "#{Text.cut(text, 1000)} …" if text.bytesize > 1000
      dup.tap { |one| one.attributes = { "together_with" => text }.merge(attributes) }
    end

    # How long before an auto-unlock in so many seconds the hold counts as lost.
    def margin_of(seconds) = (seconds == @auto_unlock_after && @margin) || [seconds / 10, 30].min

    # Why the time of a hold ran out after so many seconds. Times in the record are rounded.
    def why_late(held)
      over = @heartbeat && held >= @heartbeat - @margin - 0.01
      over ? "its maximum hold of #{Settings.in_words(@heartbeat)} is over" : "etcd confirmed no extension"
    end

    private

    def complete
      if @heartbeat
        @alert_after ||= [300.0, @heartbeat].min
        @auto_unlock_after ||= [60.0, @heartbeat].min
      end
      @alert_after ||= @auto_unlock_after ? @auto_unlock_after / 3 : 300.0
      @auto_unlock_after ||= 3 * @alert_after
      nil
    end

    def check
      margin, heartbeat, alert, unlock =
        [@margin, @heartbeat, @alert_after, @auto_unlock_after].map { |one| one && Settings.in_words(one) }
      raise RefusedError, "the margin, #{margin}, leaves nothing of #{unlock}" if @margin >= @auto_unlock_after

      if @heartbeat && @heartbeat < @auto_unlock_after
        raise RefusedError, "the heartbeat ends after #{heartbeat}, before the auto-unlock, #{unlock}"
      end
      return if @heartbeat || @alert_after <= @auto_unlock_after

      raise RefusedError, "the alert, after #{alert}, would come after the auto-unlock, #{unlock}"
    end
  end
end
