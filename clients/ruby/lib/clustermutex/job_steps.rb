# frozen_string_literal: true

module ClusterMutex
  # The steps for jobs that run once per period, and for several locks.
  module JobSteps
    # The key of the last period.
    def period(lock) = "#{@prefix}.periods/#{Name.segment(lock)}"

    # Reads which period was taken last, and the unlockers' clocks.
    def read_period(lock:, **)
      clocks = range("#{@prefix}.unlockers/", :prefix).tap { |read| read[:request_range][:limit] = "100" }
      { success: [range(period(lock)), clocks] }
    end

    def acquire_once(lock:, uuid:, fields:, seen:, taken:, **)
      acquire(lock:, uuid:, fields:).tap do |txn|
        txn[:compare].concat(modified(period(lock), seen))
        txn[:success] << put(period(lock), taken)
        txn[:failure] << range(period(lock))
      end
    end

    # Restores the period key to its value before this hold, unless it has changed since.
    def restore_period(lock:, uuid:, token:, before:, **)
      { compare: [*held(lock, uuid, token), *modified(period(lock), token)],
        success: [before ? put(period(lock), before) : delete(period(lock))] }
    end

    # Finds out whether an unanswered request took the lock, and keeps a late one from taking it.
    def settle(lock:, uuid:, lease:, **) = { success: [tombstone(lock, uuid, lease), *why(lock, uuid)] }

    # Takes several locks, all or none.
    def acquire_all(locks:, **)
      bodies = locks.map { |one| acquire(**one.transform_keys(&:to_sym)) }
      %i[compare success failure].to_h { |part| [part, bodies.flat_map { |body| body[part] }] }
    end

    private

    def read_period_verdict(_input, body)
      last = Transactions.keys(body, 0).first
      clocks = Transactions.keys(body, 1).select { |kv| kv[:lease].to_i.positive? } # without one it may be stale
      { verdict: :read, value: last && last[:value], seen: last ? last[:modified] : 0,
        clocks: clocks.filter_map { |kv| Clock.parse(Document.object(kv[:value])&.fetch("now", nil).to_s) } }
    end

    def acquire_once_verdict(input, body)
      found = acquire_verdict(input, body)
      seen = Transactions.keys(body, 2).first&.fetch(:modified)
      found[:verdict] == :refused && seen.to_i != input[:seen].to_i ? found.merge(verdict: :again) : found
    end

    def restore_period_verdict(_input, _body) = { verdict: :again }
    def settle_verdict(input, body) = mine(input, body, 1) || { verdict: :again }

    def acquire_all_verdict(input, body)
      return { verdict: :held, token: revision(body) } if body["succeeded"]

      each = input[:locks].each_with_index.map do |one, number|
        one = one.transform_keys(&:to_sym)
        mine(one, body, 2 * number) ||
          { verdict: :refused, lock: one[:lock], holders: sole_holder(one, body, 2 * number, (2 * number) + 1) }
      end
      refused = each.reject { |found| found[:token] }
      refused.find { |found| !found[:holders].room? } || refused.first || each.first
    end
  end
end
