# frozen_string_literal: true

module ClusterMutex
  # The steps for semaphores and read-write locks: each share has a record of its own. They have the names of the other
  # steps with "share" in front; their input has a kind.
  module Shares
    def share_cancel(uuid:, lease:, **input)
      { success: [tombstone(input[:lock], uuid, lease), *share_withdraw(uuid:, **input)[:success]] }
    end

    # Finds out whether the attempt has a record, which is withdrawn separately.
    def share_withdraw(lock:, uuid:, kind:, queued: false, **)
      { success: [*who(lock, kind), *(unqueue(lock, uuid) if queued)] }
    end

    # The name of the record of a share, or of the lock.
    def share_name(lock, share) = share.to_i.zero? ? lock : "#{lock}##{share}"

    # What to watch in order to see a key deleted: the first in line for a share watches all holders and delays.
    def watched(lock, key, input)
      all = [[key], [ticket(lock, input[:uuid])]]
      return all unless input[:kind] && key == field(lock, "uuid")

      all + [share_range(lock), [delay(lock), delay_range(lock).last]]
    end

    private

    # Compares that the claim is still free, and that no share was added since they were counted.
    def free(lock, uuid, kind, share, counted)
      record = share_name(lock, share)
      own = [absent(field(record, "uuid")), absent(cancelled(uuid)), absent(delay(record))]
      own += [absent(field(lock, "uuid")), absent(delay(lock))] unless share.to_i.zero?
      own << none_since(counted, share_range(lock)) unless kind == "shared"
      own << none_since(counted, delay_range(lock)) if %w[semaphore exclusive].include?(kind)
      own
    end

    # Reads who holds the lock, and its lock delays.
    def who(lock, kind)
      delays = delay_range(lock).last if kind
      [range(record(lock), :prefix), range(*share_range(lock)), range(delay(lock), delays)]
    end

    def share_range(lock) = %w[#1 #:].map { |end_of| record(lock).chop + end_of }
    def delay_range(lock) = %w[#1 #:].map { |end_of| delay(lock) + end_of }

    def none_since(revision, range)
      from, to = range
      created(from, revision.to_i + 1).merge(range_end: b64(to), result: "LESS")
    end
  end
end
