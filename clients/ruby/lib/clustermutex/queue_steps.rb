# frozen_string_literal: true

module ClusterMutex
  # The steps for waiting in a queue: the bodies of transactions, and what the answers mean.
  module QueueSteps
    def join(lock:, uuid:, ticket:, lease:, **)
      own = ticket(lock, uuid)
      { compare: [absent(own), absent(cancelled(uuid))],
        success: [put(own, ticket, lease), replace(ticket(lock, ".tail"), uuid, lease)], failure: [range(own)] }
    end

    # Reads what a waiter waits for: the ticket ahead or, for the first, the lock.
    def look(lock:, uuid:, before: nil, kind: nil, **)
      { success: [*place(lock, uuid, kind), *([range(ticket(lock, before))] unless before.to_s.empty?)] }
    end

    # Finds the ticket before mine. etcd scans every ticket since its last compaction for this.
    def scan(lock:, uuid:, position:, kind: nil, **)
      older = tickets(lock, 1).tap { |read| read[:request_range][:max_create_revision] = (position.to_i - 1).to_s }
      { success: [*place(lock, uuid, kind), older, tickets(lock, 1)] }
    end

    def turn(lock:, uuid:, fields:, position:, **)
      own = ticket(lock, uuid)
      { compare: [absent(field(lock, "uuid")), absent(cancelled(uuid)), created(own, position), absent(delay(lock))],
        success: [*puts(lock, fields), *unqueue(lock, uuid)],
        failure: [range(record(lock), :prefix), range(own), range(delay(lock))] }
    end

    def leave(lock:, uuid:, **)
      { compare: [equals(ticket(lock, ".tail"), uuid)], success: [tickets(lock, 2)],
        failure: [delete(ticket(lock, uuid))] }
    end

    def leave_as_tail(lock:, uuid:, older: nil, **)
      tail = ticket(lock, ".tail")
      compare = [equals(tail, uuid)]
      compare << created(ticket(lock, older["ticket"]), older["create_revision"]) if older
      { compare:,
        success: [delete(ticket(lock, uuid)), older ? put(tail, older["ticket"], older["lease"]) : delete(tail)] }
    end

    def restore_tail(lock:, older:, **)
      tail = ticket(lock, ".tail")
      { compare: [absent(tail), created(ticket(lock, older["ticket"]), older["create_revision"])],
        success: [put(tail, older["ticket"], older["lease"])] }
    end

    private

    def join_verdict(_input, body)
      return newest(body) if body["succeeded"]

      own = Transactions.keys(body, 0).first
      own ? { verdict: :joined_by_earlier_send, position: own[:created] } : { verdict: :lost }
    end

    def newest(body)
      before = Transactions.unb64(body.dig("responses", 1, "response_put", "prev_kv", "value"))
      { verdict: :joined, position: revision(body), before: (before unless before.empty?) }
    end

    def look_verdict(input, body)
      found = placed(input, body)
      before = input[:before].to_s
      lost_sight = !before.empty? && found[:before] == "" && !took?(input, body, before)
      lost_sight || (found[:verdict] == :wait && !tail?(body)) ? { verdict: :scan } : found
    end

    def scan_verdict(input, body)
      found = placed(input, body)
      newest = Transactions.keys(body, input[:kind] ? 6 : 5).first
      found[:restore] = named(newest) if found[:verdict] == :wait && newest && !tail?(body)
      found
    end

    def tail?(body) = Transactions.keys(body, 2).any?

    # Whether the ticket before mine has taken the lock, so that no ticket is ahead of mine.
    def took?(input, body, before)
      return placed_holders(input, body).mine(before) if input[:kind]

      Transactions.keys(body, 1).any? { |kv| kv[:value] == before }
    end

    # What to wait for, if only the ticket that was read last may be ahead. before: that ticket, empty for the first.
    def placed(input, body)
      return share_placed(input, body) if input[:kind]

      own, holder, _tail, delay, ahead = Array.new(5) { |number| Transactions.keys(body, number).first }
      return { verdict: :held_by_earlier_send, token: holder[:created] } if holder && holder[:value] == input[:uuid]
      return { verdict: :lost } unless own && own[:created] == input[:position].to_i
      return { verdict: :wait, watch: ahead[:key], before: named(ahead)["ticket"] } if ahead
      return { verdict: :turn, before: "" } unless holder || delay

      { verdict: :wait, watch: (holder || delay)[:key], before: "" }
    end

    def turn_verdict(input, body)
      return { verdict: :held, token: revision(body) } if body["succeeded"]

      own = Transactions.keys(body, 1).first
      queued = own && own[:created] == input[:position].to_i
      mine(input, body, 0) || { verdict: queued ? :again : :lost }
    end

    def leave_verdict(input, body)
      return { verdict: :left } unless body["succeeded"]

      before = Transactions.keys(body, 0).find { |kv| kv[:key] != ticket(input[:lock], input[:uuid]) }
      { verdict: :as_tail, older: named(before) }
    end

    def leave_as_tail_verdict(_input, body) = { verdict: body["succeeded"] ? :left : :again }

    def named(kv)
      return unless kv

      { "ticket" => kv[:key].rpartition("/").last, "create_revision" => kv[:created].to_s, "lease" => kv[:lease] }
    end

    # -- Parts of bodies.

    # A put that also returns the previous value.
    def replace(...) = put(...).tap { |operation| operation[:request_put][:prev_kv] = true }

    def place(lock, uuid, kind)
      return share_place(lock, uuid) if kind

      [ticket(lock, uuid), field(lock, "uuid"), ticket(lock, ".tail"), delay(lock)].map { |key| range(key) }
    end

    def tickets(lock, limit) = queued(lock, limit: limit.to_s, sort_order: "DESCEND", sort_target: "CREATE")
    def waiters(lock) = queued(lock, keys_only: true)

    def queued(lock, **how)
      range(ticket(lock, "/"), "#{ticket(lock, "")[0..-2]}0").tap { |read| read[:request_range].merge!(how) }
    end

    def unqueue(lock, uuid)
      tail = ticket(lock, ".tail")
      [delete(ticket(lock, uuid)), { request_txn: { compare: [equals(tail, uuid)], success: [delete(tail)] } }]
    end
  end
end
