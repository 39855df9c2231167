# frozen_string_literal: true

module ClusterMutex
  # The transactions of the lock protocol as data: inputs in, the body of a request out; an answer in, a verdict out.
  # Nothing here does I/O.
  class Transactions
    include QueueSteps
    include Shares
    include JobSteps
    include Verdicts

    attr_reader :prefix

    def initialize(prefix)
      prefix = Text.check("the lock prefix", prefix, 1024)
      raise RefusedError, "the lock prefix is empty" if prefix.delete("/").empty?
      raise RefusedError, "the lock prefix #{prefix.inspect} has control characters" if prefix.match?(/\p{Cc}/)

      @prefix = "#{prefix.delete_suffix("/")}/"
    end

    def record(lock) = "#{@prefix}#{Name.segment(lock)}/"
    def field(lock, name) = record(lock) + name
    def ticket(lock, uuid) = "#{@prefix}.queue/#{Name.segment(lock)}/#{uuid}"
    def tail(lock) = ticket(lock, ".tail")
    def delay(lock) = "#{@prefix}.delays/#{Name.segment(lock)}"
    def ending(uuid) = "#{@prefix}.history/#{uuid}"

    # The body of a step. For semaphores and read-write locks, some steps differ.
    def body(step, input)
      own = :"share_#{step}"
      public_send(input[:kind] && respond_to?(own) ? own : step, **input)
    end

    # -- Bodies. Steps ignore arguments that they do not need, so that an attempt can be passed as a whole.

    # counted: the revision at which there was room beside the shares of others.
    def acquire(lock:, uuid:, fields:, kind: nil, share: 0, counted: 0, **)
      { compare: [*free(lock, uuid, kind, share, counted), absent(tail(lock))],
        success: puts(share_name(lock, share), fields), failure: [*who(lock, kind), range(tail(lock))] }
    end

    def try(lock:, uuid:, **input)
      acquire(lock:, uuid:, **input).tap { |txn| txn[:compare] << absent(ticket(lock, uuid)) }
    end

    # seen: for a heartbeat, the mod revision of alive as last read, so that it overwrites no newer progress.
    def alive(lock:, uuid:, token:, fields:, seen: nil, **)
      deadline = field(lock, "auto_unlock_at")
      later = { key: b64(deadline), target: "VALUE", result: "LESS", value: b64(fields["auto_unlock_at"]) }
      move = puts(lock, fields.slice("alert_at", "auto_unlock_at"))
      { compare: [*held(lock, uuid, token), *(modified(field(lock, "alive"), seen) if seen)],
        success: [{ request_txn: { compare: [later], success: move } }, *puts(lock, fields.slice("alive"))],
        failure: why(lock, uuid) }
    end

    # Records that the end of the process that took the lock proves nothing about the hold.
    def detach(lock:, uuid:, token:, **)
      statements = %w[deaths suspicions].map { |kind| delete("#{@prefix}.#{kind}/#{uuid}") }
      { compare: held(lock, uuid, token), success: [put(field(lock, "detached"), "true"), *statements],
        failure: why(lock, uuid) }
    end

    def release(lock:, uuid:, token:, queued: false, **)
      leave = queued ? unqueue(lock, uuid) : []
      { compare: held(lock, uuid, token), success: [delete(record(lock), :prefix), *leave],
        failure: [*why(lock, uuid), *leave] }
    end

    def release_in_doubt(lock:, uuid:, token:, lease:, **)
      entombed(release(lock:, uuid:, token:, queued: true), lock, uuid, lease)
    end

    def cancel(lock:, uuid:, lease:, queued: false, **)
      entombed(withdraw(lock:, uuid:, queued:), lock, uuid, lease)
    end

    def withdraw(lock:, uuid:, queued: false, **)
      leave = queued ? unqueue(lock, uuid) : []
      { compare: [equals(field(lock, "uuid"), uuid)], success: [delete(record(lock), :prefix), *leave],
        failure: leave }.reject { |_, part| part.empty? }
    end

    # Reads whether the hold stands, and what others wrote into its record.
    def read(lock:, uuid:, **) = { success: why(lock, uuid) }

    # Reads who holds the lock, who waits for it, and its lock delays.
    def standing(lock:, kind: nil, **) = { success: [*who(lock, kind), waiters(lock)] }

    # -- Verdicts.

    LOG_IN = ["etcdserver: user name is empty", "etcdserver: revision of auth store is old"].freeze

    # What an error answer means: :resend, :login, :report (to the caller), :lease (get another lease) or :full (etcd is
    # out of space), and whether the request may still be applied. nil for a result.
    def self.error(answer)
      body = answer["body"].is_a?(Hash) ? answer["body"] : {}
      return if answer["status"] == 200 && (body["header"].is_a?(Hash) || body["result"].is_a?(Hash))

      body = body["error"] if body["error"].is_a?(Hash) # of a stream
      code = body["code"] || body["grpc_code"]
      message = body["message"]
      # An answer that is not from etcd means nothing.
      return { verdict: :resend, doubt: !answer["unsent"] } unless code.is_a?(Integer) && message.is_a?(String)

      { doubt: false, message: }.merge(meaning(code, message))
    end

    # Another member may do it.
    REFUSED_HERE = /too many requests|not supported for learner|not capable/
    private_constant :REFUSED_HERE

    def self.meaning(code, message)
      case code
      in code if code == 16 || LOG_IN.any? { |text| message.start_with?(text) } then { verdict: :login }
      in 5 if message.include?("lease") then { verdict: :lease }
      in 8 | 9 if message.match?(REFUSED_HERE) then { verdict: :resend }
      in 3 | 5 | 7 | 9 then { verdict: :report }
      in 8 if message.include?("space exceeded") then { verdict: :full, doubt: true }
      else { verdict: :resend, doubt: true }
      end
    end
    private_class_method :meaning

    # What :full and :lease mean for a step: other steps keep sending if etcd is full, and need another lease.
    FULL = { cancel: :withdraw, release_in_doubt: :withdraw, leave_as_tail: :withdraw, restore_tail: :again }.freeze
    LEASE = { leave_as_tail: :again, restore_tail: :again }.freeze

    # What the answer to a step means. +unanswered+ in the input: an earlier send of it got no answer.
    def verdict(step, input, answer)
      error = Transactions.error(answer)
      return send(:"#{step}_verdict", input, Reading.new(self, input, answer["body"])) unless error

      case error[:verdict]
      when :full then error.merge(verdict: FULL.fetch(step.to_sym, :resend), full: true)
      when :lease then error.merge(verdict: LEASE.fetch(step.to_sym, :lease))
      else error
      end
    end

    # The fields of a record among the keys of its range, without foreign keys and leftovers of an earlier hold. Yields
    # the create revision of the uuid key, 0 if the lock is not held.
    def fields(lock, keys)
      from = record(lock)
      all = keys.select { |kv| kv[:key].delete_prefix(from).b.match?(/\A[a-z][a-z0-9_]{0,62}\z/) }
      token = all.find { |kv| kv[:key] == "#{from}uuid" }&.fetch(:created) || 0
      current = all.select { |kv| kv[:modified] >= token }
      [current.to_h { |kv| [kv[:key].delete_prefix(from), kv[:value]] }, token,
       current.to_h { |kv| [kv[:key].delete_prefix(from), kv[:modified]] }]
    end

    private

    # -- Parts of bodies.

    def b64(bytes) = [bytes].pack("m0")
    def cancelled(uuid) = "#{@prefix}.cancelled/#{uuid}"
    def absent(key) = created(key, 0)
    def held(lock, uuid, token) = [equals(field(lock, "uuid"), uuid), created(field(lock, "uuid"), token)]
    def equals(key, value) = { key: b64(key), target: "VALUE", result: "EQUAL", value: b64(value) }

    def created(key, revision)
      { key: b64(key), target: "CREATE", result: "EQUAL", create_revision: revision.to_s }
    end

    def modified(key, revision)
      [{ key: b64(key), target: "MOD", result: "EQUAL", mod_revision: revision.to_s }]
    end

    def puts(lock, fields) = fields.map { |name, value| put(field(lock, name), value) }

    def put(key, value, lease = nil)
      { request_put: { key: b64(key), value: (b64(value) unless value.empty?), lease: lease&.to_s }.compact }
    end

    def tombstone(lock, uuid, lease) = put(cancelled(uuid), lock, lease)

    # The same with a tombstone, whichever branch is done.
    def entombed(body, lock, uuid, lease)
      body.merge(%i[success failure].to_h { |branch| [branch, [tombstone(lock, uuid, lease), *body[branch]]] })
    end

    # A range: everything with this prefix, or one key.
    def keys_of(key, to)
      to = "#{key[0..-2]}0" if to == :prefix # "0" is what follows "/"
      { key: b64(key), range_end: (b64(to) if to) }.compact
    end

    def range(key, to = nil) = { request_range: keys_of(key, to) }
    def delete(key, to = nil) = { request_delete_range: keys_of(key, to) }

    # Reads the record and the ending, which say why the hold is over.
    def why(lock, uuid) = [range(record(lock), :prefix), range(ending(uuid))]
  end
end
