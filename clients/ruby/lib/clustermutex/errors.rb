# frozen_string_literal: true

module ClusterMutex
  # The base of all errors here. Every message is one readable line, whatever others wrote that is in it.
  class Error < StandardError
    def initialize(message = nil)
      super(message && Text.plain(message, 4096))
    end
  end

  # A bad name or option, a login or a right that etcd refuses: nothing was done, and trying again does not help.
  class RefusedError < Error; end

  # etcd did not answer in time. After +lock+ the lock is not held, after +alive!+ the hold stands as before, and after
  # +release+ the release goes on in the background.
  class UnavailableError < Error; end

  # Another holds the lock, or others are ahead in the queue.
  class HeldError < Error
    # The name of the lock; the Holder, nil if nobody holds it; how many wait for it, nil if that is not known; the
    # Delay that keeps the lock back although nobody holds it, nil without one.
    attr_reader :lock, :holder, :waiting, :delay
    # All holders of a semaphore or a read-write lock, the oldest first.
    attr_reader :holders

    def initialize(lock, holders, waiting, delay = nil)
      @lock = lock
      @holders = holders
      @holder = holders.first
      @waiting = waiting
      @delay = delay
      ahead = delay ? "there is #{delay}" : "others are ahead"
      who = holder ? "#{holder}#{" and #{holders.size - 1} more" if holders.size > 1}" : "nobody, but #{ahead}"
      super("lock #{lock.inspect} is held by #{who}#{"; #{waiting} waiting" if waiting&.positive?}")
    end
  end

  # The time to wait for the lock is over.
  class WaitTimeoutError < HeldError; end

  # The hold is over without a release, or must not be relied on any more.
  class LostError < Error
    # The name of the lock; who ended the hold, and why, if somebody did.
    attr_reader :lock, :by, :why
    # Why, in a word: "forced", "auto_unlocked", "abandoned", "deleted" (by hand), "replaced" (another holds it), or
    # "deadline" (the time ran out by this machine's clock before etcd confirmed an extension).
    attr_reader :reason

    WORDS = {
      "forced" => "force-unlocked", "auto_unlocked" => "auto-unlocked", "abandoned" => "auto-unlocked as abandoned",
      "deleted" => "its record is gone, and whoever removed it left no note", "replaced" => "another holds it now",
      "deadline" => "its time ran out before etcd confirmed an extension"
    }.freeze

    def initialize(lock, reason, ending = nil)
      @lock = lock
      @reason = reason
      @by, @why = ending&.values_at("by", "why")&.map { |text| text && Text.plain(text, 1024) }
      note = " by #{Text.plain(@by)}: #{Text.plain(@why)}" if ending
      super("lock #{lock.inspect} was lost: #{WORDS.fetch(reason, reason)}#{note}")
    end
  end
end
