# frozen_string_literal: true

module ClusterMutex
  # The steps of locks that several hold: each share is a record of its own, beside those of the others. They have the
  # names of the others, and "share" in front; the input has a kind.
  module Shares
    def share_try(lock:, uuid:, fields:, share: 0, **need)
      free = free(lock:, uuid:, share:, **need)
      { compare: [*free, absent(ticket(lock, ".tail")), absent(ticket(lock, uuid))],
        success: puts(share_name(lock, share), fields), failure: [*who(lock), range(ticket(lock, ".tail"))] }
    end
    alias share_acquire share_try

    def share_turn(lock:, uuid:, fields:, position:, share: 0, **need)
      free = free(lock:, uuid:, share:, **need)
      { compare: [*free, created(ticket(lock, uuid), position)],
        success: [*puts(share_name(lock, share), fields), *unqueue(lock, uuid)],
        failure: [*who(lock), range(ticket(lock, uuid))] }
    end

    def share_cancel(lock:, uuid:, lease:, queued: false, **)
      { success: [tombstone(lock, uuid, lease), *share_withdraw(lock:, uuid:, queued:)[:success]] }
    end

    # Finds out whether there is a record of the attempt. That is withdrawn by itself.
    def share_withdraw(lock:, uuid:, queued: false, **)
      { success: [*who(lock), *(queued ? unqueue(lock, uuid) : [])] }
    end

    def share_standing(lock:, **) = { success: [*who(lock), waiters(lock)] }

    # The name of the record of a share, or of the lock.
    def share_name(lock, share) = share.to_i.zero? ? lock : "#{lock}##{share}"

    # What to watch in order to see a key deleted: the first in line for a share watches all holders and delays.
    def watched(lock, key, input)
      all = [[key], [ticket(lock, input[:uuid])]]
      return all unless input[:kind] && key == field(lock, "uuid")

      all + [share_range(lock), [delay(lock), delay_range(lock).last]]
    end

    # Who holds a lock, by the operations that read the record, the shares and the delays.
    def holders(lock, body, record: 0, shares: 1, delays: 2)
      ended = Transactions.keys(body, delays).to_h { |kv| [kv[:key].delete_prefix(delay(lock)), kv[:value]] }
      own = ended.delete("")
      ended = ended.transform_keys { |rest| Need.share(lock, lock + rest) }.except(nil)
      Holders.new(revision(body), holder(lock, Transactions.keys(body, record)),
                  shares(lock, Transactions.keys(body, shares)), own && Delay.new(own, lock),
                  ended.to_h { |number, value| [number, Delay.new(value, "#{lock}##{number}")] })
    end

    private

    def shares(lock, keys)
      keys.group_by { |kv| kv[:key].delete_prefix(@prefix)[%r{\A[^/]*}] }.each_with_object({}) do |(segment, of), all|
        number = Need.share(lock, Name.of(segment)) or next
        held = holder("#{lock}##{number}", of)
        all[number] = held if held
      rescue RefusedError
        next # another lock with such a name
      end
    end

    def share_try_verdict(input, body)
      share_taken(input, body) do |holders|
        room = Transactions.keys(body, 3).empty? && holders.room?(**input.slice(:kind, :limit, :weight))
        { verdict: room ? :again : :refused }
      end
    end
    alias share_acquire_verdict share_try_verdict

    def share_turn_verdict(input, body)
      own = Transactions.keys(body, 3).first
      share_taken(input, body) do
        { verdict: own && own[:created] == input[:position].to_i ? :again : :lost }
      end
    end

    def share_taken(input, body)
      return { verdict: :held, token: revision(body) } if body["succeeded"]

      holders = holders(input[:lock], body)
      earlier(input, holders) || yield(holders).merge(holders:)
    end

    def earlier(input, holders)
      share = holders.mine(input[:uuid]) or return
      { verdict: :held_by_earlier_send, token: holders.holder(share).token, share:,
        fields: holders.holder(share).facts }
    end

    def placed_holders(input, body) = holders(input[:lock], body, record: 1, shares: 4, delays: 3)

    def share_placed(input, body)
      holders = placed_holders(input, body)
      mine = earlier(input, holders)
      return mine if mine

      own, ahead = [0, 5].map { |number| Transactions.keys(body, number).first }
      return { verdict: :lost } unless own
      return { verdict: :wait, watch: ahead[:key], before: named(ahead)["ticket"] } if ahead

      room = holders.room?(**input.slice(:kind, :limit, :weight))
      { verdict: room ? :turn : :wait, watch: (field(input[:lock], "uuid") unless room), before: "", holders: }
    end

    def share_cancel_verdict(input, body)
      { verdict: :cancelled, share: holders(input[:lock], body, record: 1, shares: 2, delays: 3).mine(input[:uuid]) }
    end

    def share_withdraw_verdict(input, body)
      { verdict: :again, share: holders(input[:lock], body).mine(input[:uuid]) }
    end

    def share_standing_verdict(input, body)
      stand(input, holders(input[:lock], body), Transactions.keys(body, 3))
    end

    # -- Parts of bodies.

    # Nobody has what is claimed, and no share came since they were counted.
    def free(lock:, uuid:, share:, kind:, counted: 0, **)
      record = share_name(lock, share)
      own = [absent(field(record, "uuid")), absent(cancelled(uuid)), absent(delay(record))]
      own += [absent(field(lock, "uuid")), absent(delay(lock))] unless share.to_i.zero?
      kind == "shared" ? own : own + [none_since(counted, share_range(lock)), none_since(counted, delay_range(lock))]
    end

    def who(lock)
      [range(record(lock), :prefix), range(*share_range(lock)), range(delay(lock), delay_range(lock).last)]
    end

    def share_place(lock, uuid)
      record, shares, delays = who(lock)
      [range(ticket(lock, uuid)), record, range(ticket(lock, ".tail")), delays, shares]
    end

    def share_range(lock) = %w[#1 #:].map { |end_of| record(lock).chop + end_of }
    def delay_range(lock) = %w[#1 #:].map { |end_of| delay(lock) + end_of }

    def none_since(revision, range)
      from, to = range
      created(from, revision.to_i + 1).merge(range_end: b64(to), result: "LESS")
    end
  end
end
