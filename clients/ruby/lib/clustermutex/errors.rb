# frozen_string_literal: true

module ClusterMutex
  # The base class of all errors. Every message is one printable line, even if it quotes untrusted text.
  class Error < StandardError
    def initialize(message = nil)
      super(message && Text.plain(message, 4096))
    end
  end

  # Bad input, or a login or permission that etcd refuses: nothing was done, and retrying will not help.
  class RefusedError < Error; end

  # etcd did not answer in time. After +lock+ the lock is not held; after +alive!+ the hold is unchanged; a +release+
  # continues in the background.
  class UnavailableError < Error; end

  # The lock is held, or others are ahead in the queue.
  class HeldError < Error
    # The name of the lock; its Holder, nil if it is free; how many wait for it, nil if not known; the lock Delay of a
    # free lock, nil if there is none.
    attr_reader :lock, :holder, :waiting, :delay
    # All holders of a semaphore or a read-write lock, the oldest first.
    attr_reader :holders

    def initialize(lock, holders, waiting, delay = nil, stays: false)
      @lock = lock
      @holders = holders
      @holder = holders.first
      @waiting = waiting
      @delay = delay
      ahead = delay ? "there is #{delay}" : "others are ahead"
      who = holder ? "#{holder}#{" and #{holders.size - 1} more" if holders.size > 1}" : "nobody, but #{ahead}"
      who += "; no unlocker is running, so nothing removes it" if stays
      super("lock #{lock.inspect} is held by #{who}#{"; #{waiting} waiting" if waiting&.positive?}")
    end
  end

  # The lock was not acquired within the wait.
  class WaitTimeoutError < HeldError; end

  # The hold ended without a release, or can no longer be relied on.
  class LostError < Error
    # The name of the lock; who ended the hold, and why; nil if not known.
    attr_reader :lock, :by, :why
    # One word: "forced", "auto_unlocked", "abandoned", "deleted" (by hand), "replaced" (there is another holder), or
    # "deadline" (the time ran out by this machine's clock before etcd confirmed an extension).
    attr_reader :reason

    WORDS = {
      "forced" => "force-unlocked", "auto_unlocked" => "auto-unlocked", "abandoned" => "auto-unlocked as abandoned",
      "deleted" => "its record is gone, and whoever removed it left no note", "replaced" => "another holds it now",
      "deadline" => "its time ran out"
    }.freeze

    def initialize(lock, reason, ending = nil)
      @lock = lock
      @reason = reason
      @by, @why = ending&.values_at("by", "why")&.map { |text| text && Text.plain(text, 1024) }
      note = "#{" by #{Text.plain(@by)}" if @by}#{": #{Text.plain(@why)}" if @why}"
      super("lock #{lock.inspect} was lost: #{WORDS.fetch(reason, reason)}#{note}")
    end
  end
end
