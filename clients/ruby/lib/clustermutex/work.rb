# frozen_string_literal: true

module ClusterMutex
  # What a block under a lock may return.
  module Work
    # Returns the block's result. Raises RefusedError if it has yet to run, or runs on, without the lock.
    def self.done(call, result)
      lazy = (result.is_a?(Array) ? result : [result]).find { |one| pending?(one) }
      return result unless lazy

      what = result.is_a?(Array) ? "an Array with a #{lazy.class}" : "a #{lazy.class}"
      raise RefusedError, "the block of #{call} returned #{what}, which has yet to run, without the lock: " \
                          "run it to its end in the block"
    end

    def self.pending?(result)
      case result
      when Enumerator then true
      when Fiber, Thread then result.alive?
      else false
      end
    end
    private_class_method :pending?
  end
end
