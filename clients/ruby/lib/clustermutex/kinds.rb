# frozen_string_literal: true

module ClusterMutex
  # How a caller wants to hold a lock: a plain lock has one holder, a semaphore or a read-write lock several.
  class Need
    MAX_LIMIT = 1_000_000
    MAX_READERS = 99_999
    SHARE = /\A(.+)#([1-9][0-9]{0,8})\z/m

    attr_reader :kind, :limit, :weight

    # Which share of a lock has this name; nil if none.
    def self.share(lock, name)
      match = SHARE.match(name)
      match[2].to_i if match && match[1] == lock
    end

    def initialize(semaphore: nil, weight: 1, shared: false, exclusive: false)
      kinds = { "semaphore" => semaphore, "shared" => shared, "exclusive" => exclusive }.select { |_, wanted| wanted }
      raise RefusedError, "#{kinds.keys.first(2).join(" and ")} contradict each other" if kinds.size > 1

      @kind = kinds.keys.first
      @limit = semaphore
      @weight = weight
    end

    # Raises RefusedError if the options are out of range.
    def check(name, attributes)
      if @kind == "semaphore"
        whole("the semaphore", @limit, MAX_LIMIT)
        whole("the weight", @weight, @limit)
      elsif @weight != 1
        raise RefusedError, "only a semaphore has a weight"
      end
      return self unless @kind

      raise RefusedError, "the lock name ends in # and a number, reserved for shares" if name.to_s.match?(SHARE)
      raise RefusedError, "the lock name leaves no room for the number of a share" if
        name.to_s.bytesize > 256 - "##{@limit || MAX_READERS}".bytesize

      taken = attributes.keys.map(&:to_s) & %w[kind permits limit]
      taken.any? ? raise(RefusedError, "attribute #{taken.first.inspect}: the name is reserved") : self
    end

    # The attributes of the record that describe the kind.
    def attributes
      (@kind == "semaphore" ? { kind: @kind, permits: @weight, limit: @limit } : { kind: @kind }).compact
    end

    # The inputs for the transactions.
    def input = @kind ? { kind: @kind, limit: @limit, weight: @weight } : {}

    private

    def whole(what, number, most)
      return if number.is_a?(Integer) && number.between?(1, most)

      raise RefusedError, "#{what} is #{number.inspect}: want a whole number from 1 to #{most}"
    end
  end

  # The holders of a lock at one revision, and the lock delays of ended holds; those of shares by number.
  Holders = Struct.new(:revision, :whole, :shares, :delay, :delays) do
    def self.none = new(0, nil, {}, nil, {})

    # All holders, the oldest first.
    def all = [*whole, *shares.values.sort_by(&:token)]
    # The share whose record has this uuid, 0 for the lock itself; nil if none.
    def mine(uuid) = whole&.uuid == uuid ? 0 : shares.key(shares.values.find { |holder| holder.uuid == uuid })
    # The holder of that share.
    def holder(share) = share.zero? ? whole : shares[share]
    # The delay that keeps another holder of this kind out.
    def delay_for(...) = (delay || delays.values.first unless room?(...))

    # How many of +limit+ permits are free.
    def free(limit)
      return 0 if whole || delay

      taken = shares.values.sum { |holder| permits(holder, limit) }
      [limit - taken - delays.values.sum { |ended| ended.permits || limit }, 0].max
    end

    # Whether there is room for another holder of this kind.
    def room?(kind: nil, limit: nil, weight: nil)
      return false if whole || delay
      return weight <= free(limit) if kind == "semaphore"

      kind == "shared" || (shares.empty? && delays.empty?)
    end

    # What to claim: the lowest free share number after skipping +skip+ free ones.
    def claim(kind:, limit: nil, weight: nil, skip: 0)
      known = room?(kind:, limit:, weight:) ? self : Holders.none
      free = (1..).lazy.reject { |number| known.shares.key?(number) || known.delays.key?(number) }
      { share: kind == "exclusive" ? 0 : free.drop(skip).first, counted: known.revision }
    end

    private

    # The permits of a share: one by default, all if its number cannot be read.
    def permits(holder, limit)
      value = holder.attributes.fetch("permits", 1)
      value = value.to_i if value.is_a?(Float) && value == value.to_i
      number = value.to_s[/\A[0-9]{1,9}\z/].to_i
      number.zero? ? limit : number
    end
  end
end
