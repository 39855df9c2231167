# frozen_string_literal: true

module ClusterMutex
  # What the operations of an answer read about a lock, by key.
  class Reading
    attr_reader :revision

    def initialize(transactions, input, body)
      @transactions = transactions
      @lock, @uuid, @token, @kind = input.values_at(:lock, :uuid, :token, :kind)
      @body = body
      @revision = body.dig("header", "revision").to_i
      read = (body["responses"] || []).flat_map { |one| one.dig("response_range", "kvs") || [] }
      @keys = read.map { |kv| key_value(kv) }.uniq
      @rooms = @keys.group_by { |kv| kv[:key].scrub.delete_prefix(transactions.prefix)[%r{\A[^/]*}] }
    end

    # What was read of one of several locks.
    def part(input, number)
      Reading.new(@transactions, input, @body.merge("responses" => @body["responses"].to_a[4 * number, 4]))
    end

    def succeeded? = @body["succeeded"]
    def [](key) = @keys.find { |kv| kv[:key] == key }
    def tail = self[@transactions.tail(@lock)]
    def ticket = self[@transactions.ticket(@lock, @uuid)]
    # The other tickets of the queue, the newest last.
    def others = tickets.reject { |kv| kv[:key] == @transactions.ticket(@lock, @uuid) }
    # The clocks of unlockers. One without a lease may be stale.
    def clocks = in_room(".unlockers").select { |kv| kv[:lease].to_i.positive? }.map { |kv| kv[:value] }

    # Those of the queue that were read, the newest last.
    def tickets = (in_room(".queue") - [tail]).sort_by { |kv| kv[:created] }

    # The fields of the record, as in Transactions#fields.
    def record(name = @lock) = @transactions.fields(name, in_room(Name.segment(name)))

    # Whether the record is that of this attempt.
    def mine? = record.first["uuid"] == @uuid

    # Who holds the lock, and its lock delays.
    def holders
      @holders ||= begin
        delays = delays_by_share
        Holders.new(@revision, holder(@lock), shares, delays[0], delays.except(0))
      end
    end

    # The hold of an earlier send of the same attempt.
    def earlier
      share = holders.mine(@uuid) or return
      { verdict: :held_by_earlier_send, token: holders.holder(share).token, share: }
    end

    # How the hold was lost.
    def loss
      note = self[@transactions.ending(@uuid)]
      ending = Document.ending(note[:value], @token.to_i) if note
      gone = record[1].zero? ? "deleted" : "replaced"
      { verdict: :lost, reason: ending ? ending["ended"] : gone, ending: }
    end

    # The value that a put has replaced.
    def replaced(number)
      Reading.unb64(@body.dig("responses", number, "response_put", "prev_kv", "value"))
    end

    def self.unb64(text) = text.to_s.unpack1("m").force_encoding("UTF-8")

    private

    def key_value(one)
      { key: Reading.unb64(one["key"]), value: Reading.unb64(one["value"]), created: one["create_revision"].to_i,
        modified: one["mod_revision"].to_i, lease: one["lease"] }
    end

    def in_room(name) = @rooms.fetch(name, [])

    def holder(name)
      fields, token = record(name)
      Holder.new(fields, token) if token.positive?
    end

    # A plain lock leaves out others with such names, whose numbers the other kinds need.
    def shares
      numbers = @rooms.keys.filter_map { |segment| share(segment) }
      found = numbers.to_h { |number| [number, holder(@transactions.share_name(@lock, number))] }.compact
      @kind ? found : found.select { |_, holder| %w[semaphore shared].include?(holder.attributes["kind"]) }
    end

    def share(segment)
      Need.share(@lock, Name.of(segment))
    rescue RefusedError # another lock with such a name
      nil
    end

    # The lock delays by the number of the share, 0 for the lock itself.
    def delays_by_share
      in_room(".delays").each_with_object({}) do |kv, all|
        name = @lock + kv[:key].delete_prefix(@transactions.delay(@lock))
        number = name == @lock ? 0 : Need.share(@lock, name)
        all[number] = Delay.new(kv[:value], name) if number
      end
    end
  end

  # What the answers to the steps mean.
  module Verdicts
    private

    def acquire_verdict(input, found)
      taken(found) do |holders|
        again = !found.tail && room?(holders, input)
        { verdict: again ? :again : :refused, lock: input[:lock], holders: }
      end
    end
    alias try_verdict acquire_verdict

    def turn_verdict(input, found)
      taken(found) do |holders|
        next { verdict: :lost } unless queued?(input, found)

        share, = holders.shares.min_by { |_, holder| holder.token } unless input[:kind] || holders.whole
        next { verdict: :again, holders: } unless share

        { verdict: :wait, watch: field(share_name(input[:lock], share), "uuid"), holders: }
      end
    end

    def taken(found)
      return { verdict: :held, token: found.revision } if found.succeeded?

      found.earlier || yield(found.holders)
    end

    def room?(holders, input) = holders.room?(**input.slice(:kind, :limit, :weight))

    # Whether the attempt has its place in the queue.
    def queued?(input, found)
      own = found.ticket
      own && own[:created] == input.fetch(:position, own[:created]).to_i
    end

    # Another process with this uuid may have reported progress: :again.
    def alive_verdict(input, found)
      found.succeeded? ? { verdict: :still_held, revision: found.revision } : read_verdict(input, found, :again)
    end

    def read_verdict(input, found, verdict = :still_held)
      fields, token, modified = found.record
      found.mine? && token == input[:token].to_i ? { verdict:, fields:, modified: } : found.loss
    end

    def detach_verdict(_input, found) = found.succeeded? ? { verdict: :still_held } : found.loss

    def release_verdict(input, found)
      return { verdict: :released } if found.succeeded?

      lost = found.loss
      # An earlier send released it, unless the ending or a record with this uuid says otherwise.
      lost[:ending] || !input[:unanswered] || found.mine? ? lost : { verdict: :released }
    end
    alias release_in_doubt_verdict release_verdict

    def cancel_verdict(input, found) = { verdict: :cancelled, share: found.holders.mine(input[:uuid]) }
    def withdraw_verdict(input, found) = { verdict: :again, share: found.holders.mine(input[:uuid]) }
    def restore_tail_verdict(_input, _found) = { verdict: :again }

    # Some clients keep their ticket while they hold the lock.
    def standing_verdict(_input, found)
      uuids = found.holders.all.map(&:uuid)
      waiting = found.others.count { |kv| !uuids.include?(named(kv)["ticket"]) }
      { verdict: :read, holders: found.holders, waiting: }
    end

    def join_verdict(_input, found)
      own = found.ticket
      return { verdict: :joined_by_earlier_send, position: own[:created] } if own
      return { verdict: :lost } unless found.succeeded?

      before = found.replaced(1)
      { verdict: :joined, position: found.revision, before: (before unless before.empty?) }
    end

    def look_verdict(input, found)
      verdict = placed(input, found)
      before = input[:before].to_s
      lost_sight = !before.empty? && verdict[:before] == "" && !found.holders.mine(before)
      lost_sight || (verdict[:verdict] == :wait && !found.tail) ? { verdict: :scan } : verdict
    end

    def scan_verdict(input, found)
      verdict = placed(input, found)
      newest = found.tickets.last
      verdict[:restore] = named(newest) if verdict[:verdict] == :wait && newest && !found.tail
      verdict
    end

    # What to wait for, if only the ticket that was read may be ahead. before: that ticket, empty for the first.
    def placed(input, found)
      mine = found.earlier
      return mine if mine
      return { verdict: :lost } unless queued?(input, found)

      ahead = found.others.reverse.find { |kv| kv[:created] < found.ticket[:created] }
      return { verdict: :wait, watch: ahead[:key], before: named(ahead)["ticket"] } if ahead

      holders = found.holders
      return { verdict: :turn, before: "", holders: } if room?(holders, input)

      held = holders.whole || input[:kind]
      { verdict: :wait, watch: held ? field(input[:lock], "uuid") : delay(input[:lock]), before: "", holders: }
    end

    def leave_verdict(_input, found)
      return { verdict: :left } unless found.succeeded?

      before = found.others.last
      { verdict: :as_tail, older: before && named(before) }
    end

    def leave_as_tail_verdict(_input, found) = { verdict: found.succeeded? ? :left : :again }

    def named(kv)
      { "ticket" => kv[:key].rpartition("/").last, "create_revision" => kv[:created].to_s, "lease" => kv[:lease] }
    end

    def read_period_verdict(input, found)
      last = found[period(input[:lock])] || { modified: 0 }
      clocks = found.clocks.filter_map { |text| Clock.parse(Document.object(text)&.fetch("now", nil).to_s) }
      { verdict: :read, value: last[:value], seen: last[:modified], clocks: }
    end

    def acquire_once_verdict(input, found)
      verdict = acquire_verdict(input, found)
      seen = found[period(input[:lock])]&.fetch(:modified)
      verdict[:verdict] == :refused && seen.to_i != input[:seen].to_i ? verdict.merge(verdict: :again) : verdict
    end

    def restore_period_verdict(_input, _found) = { verdict: :again }
    def settle_verdict(_input, found) = found.earlier || { verdict: :again }

    def acquire_all_verdict(input, found)
      each = input[:locks].each_with_index.map do |one, number|
        one = one.transform_keys(&:to_sym)
        acquire_verdict(one, found.part(one, number))
      end
      refused = each.select { |verdict| verdict[:verdict] == :refused }
      refused.find { |verdict| !verdict[:holders].room? } || refused.first || each.first
    end
  end
end
