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

    def acquire_once(lock:, seen:, taken:, **input)
      acquire(lock:, **input).tap do |txn|
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
  end
end
