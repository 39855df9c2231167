# frozen_string_literal: true

module ClusterMutex
  # The steps for waiting in a queue.
  module QueueSteps
    def join(lock:, uuid:, ticket:, lease:, **)
      own = ticket(lock, uuid)
      { compare: [absent(own), absent(cancelled(uuid))],
        success: [put(own, ticket, lease), replace(tail(lock), uuid, lease)], failure: [range(own)] }
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

    def turn(lock:, uuid:, fields:, position:, kind: nil, share: 0, counted: 0, **)
      own = ticket(lock, uuid)
      { compare: [*free(lock, uuid, kind, share, counted), created(own, position)],
        success: [*puts(share_name(lock, share), fields), *unqueue(lock, uuid)],
        failure: [*who(lock, kind), range(own)] }
    end

    def leave(lock:, uuid:, **)
      { compare: [equals(tail(lock), uuid)], success: [tickets(lock, 2)], failure: [delete(ticket(lock, uuid))] }
    end

    def leave_as_tail(lock:, uuid:, older: nil, **)
      compare = [equals(tail(lock), uuid)]
      compare << created(ticket(lock, older["ticket"]), older["create_revision"]) if older
      { compare:,
        success: [delete(ticket(lock, uuid)), older ? tail_to(lock, older) : delete(tail(lock))] }
    end

    def restore_tail(lock:, older:, **)
      { compare: [absent(tail(lock)), created(ticket(lock, older["ticket"]), older["create_revision"])],
        success: [tail_to(lock, older)] }
    end

    private

    def tail_to(lock, older) = put(tail(lock), older["ticket"], older["lease"])

    # A put that also returns the previous value.
    def replace(...) = put(...).tap { |operation| operation[:request_put][:prev_kv] = true }

    def place(lock, uuid, kind)
      own, *shares, delays = kind ? who(lock, kind) : [range(field(lock, "uuid")), range(delay(lock))]
      [range(ticket(lock, uuid)), own, range(tail(lock)), delays, *shares]
    end

    def tickets(lock, limit) = queued(lock, limit: limit.to_s, sort_order: "DESCEND", sort_target: "CREATE")
    def waiters(lock) = queued(lock, keys_only: true)

    def queued(lock, **how)
      range(ticket(lock, "/"), "#{ticket(lock, "")[0..-2]}0").tap { |read| read[:request_range].merge!(how) }
    end

    def unqueue(lock, uuid)
      tail = tail(lock)
      [delete(ticket(lock, uuid)), { request_txn: { compare: [equals(tail, uuid)], success: [delete(tail)] } }]
    end
  end
end
