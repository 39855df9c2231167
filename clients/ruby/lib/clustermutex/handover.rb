# frozen_string_literal: true

module ClusterMutex
  # A hold without a process: the name of its record, such as pool#2, its uuid and its token.
  Reservation = Struct.new(:name, :uuid, :token)

  # What a lock has for reservations.
  class Lock
    private

    # Ends here, and leaves the hold to the process that adopts it. nil if a late request might take the lock again.
    def leave
      return give_back(nil) if @in_doubt

      @mutex.synchronize { @over = true }
      @bell.ring
      Reservation.new(@name, @uuid, @token)
    end
  end

  # Takes over the hold that another process took.
  module Handover
    # The lock with the hold that has this uuid, detached from the process that took it.
    def self.adopt(session, name, uuid, **hooks)
      till = Clock.now + session.gateway.timeout
      holder = session.settle(:standing, { lock: name, uuid: }, till:)[:holders].whole
      input = { lock: name, uuid:, token: holder ? holder.token : 0 }
      found = session.settle(:detach, input, till:)
      raise LostError.new(name, found[:reason], found[:ending]) unless holder && found[:verdict] == :still_held

      at = Clock.parse(holder.facts.dig("alive", "at").to_s) || holder.locked_at
      Lock.new(session, input, settings(holder, at, hooks), sent: Clock.now - [Clock.wall - at, 0].max, at:,
                                                            unlock_at: holder.auto_unlock_at, in_doubt: false)
    end

    # Has the hold extended by as much as its last writer did.
    def self.settings(holder, at, hooks)
      raise RefusedError, "the record of the lock does not say for how long it is held" if
        at.nil? || holder.alert_at.nil? || holder.auto_unlock_at.nil?

      unlock = holder.auto_unlock_at - at
      Settings.new(alert_after: [[holder.alert_at - at, 0.1].max, unlock].min, auto_unlock_after: unlock, **hooks)
    end
    private_class_method :settings
  end
end
