# frozen_string_literal: true

module ClusterMutex
  # Lock names, and their form in keys: one path segment.
  module Name
    module_function

    # The segment of a name. Raises RefusedError if it is not valid for a new lock.
    def segment(name)
      name = Text.check("the lock name", name, 256)
      raise RefusedError, "the lock name is empty" if name.empty?
      raise RefusedError, "the lock name contains a control character" if name.match?(/\p{Cc}/)

      escape(name)
    end

    # The name that a segment encodes. Raises RefusedError for what +segment+ never writes.
    def of(segment)
      name = segment.gsub(/%(25|2F|2E)/) { Regexp.last_match(1).hex.chr }
      return name if !segment.empty? && escape(name) == segment

      raise RefusedError, "#{segment.inspect} is not a lock's segment"
    end

    def escape(name) = name.gsub(%r{[%/]|\A\.}) { |char| format("%%%02X", char.ord) }
  end

  # Times: seconds since 1970, ten digits and at most nine decimals.
  module Clock
    SLEEPS = defined?(Process::CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC

    module_function

    # Seconds of the monotonic clock; where available, of one that advances while the machine sleeps.
    def now = Process.clock_gettime(SLEEPS)

    # The wall clock, in milliseconds like the record.
    def wall = Time.now.floor(3)

    def format(time)
      fraction = Kernel.format("%09d", time.nsec).sub(/0+\z/, "")
      Kernel.format("%010d", time.to_i) + (fraction.empty? ? "" : ".#{fraction}")
    end

    # Parses a Time; nil if the text is not one.
    def parse(text)
      match = /\A([0-9]{10})(?:\.([0-9]{1,9}))?\z/.match(text.b) or return # bytes: it need not be UTF-8
      Time.at(match[1].to_i, match[2].to_s.ljust(9, "0").to_i, :nsec)
    end

    # A time relative to now: "in 5 minutes".
    def words(time, now = Time.now)
      seconds = (time - now).round
      return "just now" if seconds.zero?

      unit, size = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]]
                     .find { |_, length| seconds.abs >= 2 * length || length == 1 }
      count = (seconds.abs.to_f / size).round
      amount = "#{count} #{unit}#{"s" if count > 1}"
      seconds.positive? ? "in #{amount}" : "#{amount} ago"
    end
  end

  # Untrusted text.
  module Text
    module_function

    # The text in UTF-8; binary strings are assumed to be UTF-8.
    def utf8(text) = text.encoding == Encoding::BINARY ? text.dup.force_encoding("UTF-8") : text.encode("UTF-8")

    # At most so many bytes of valid UTF-8, not cut inside a character.
    def cut(text, bytes) = text.byteslice(0, bytes).scrub(text.valid_encoding? ? "" : "\uFFFD")

    # The text with control characters escaped, cut to +most+ characters.
    def plain(text, most = 120)
      text = text.to_s.dup.force_encoding("UTF-8").scrub("\uFFFD")
      text[0, most].gsub(/[\p{C}\p{Zl}\p{Zp}]/) { |char| char.dump[1..-2] }
    end

    # Returns text that may be written. Raises RefusedError if it is invalid or too long.
    def check(what, text, limit = 1024)
      raise RefusedError, "#{what} is not text" unless text.is_a?(String)

      text = utf8(text)
      raise RefusedError, "#{what} is not valid UTF-8" unless text.valid_encoding?
      return text if text.bytesize <= limit

      raise RefusedError, "#{what} has #{text.bytesize} bytes; at most #{limit} are allowed"
    rescue EncodingError
      raise RefusedError, "#{what} is not valid UTF-8"
    end
  end

  # Who holds a lock, according to its record. What is absent or could not be read is nil.
  class Holder
    TEXTS = %w[owner hostname purpose client backtrace boot_id pod_namespace pod_name pod_uid container].freeze
    NUMBERS = %w[pid process_start pid_namespace supervisor_start cgroup_id lock_delay].freeze
    MAX_DELAY = 3600 # seconds
    TIMES = %w[locked_at alert_at auto_unlock_at heartbeat_until].freeze
    OWN_KEYS = %w[uuid alert_at auto_unlock_at alive asked extended acknowledged].freeze

    # The members by their names in the protocol; times are strings.
    attr_reader :facts
    # The fencing token of the hold.
    attr_reader :token

    def initialize(fields, token = nil)
      @token = token
      @facts = {}
      metadata = fields["metadata"].to_s
      members = (Document.object(metadata) if metadata.bytesize <= Document::LARGEST_METADATA) || {}
      members = members.reject { |name, value| OWN_KEYS.include?(name) || value.nil? }
      members.merge(fields.except("metadata")).sort.each { |name, value| read(name, value) }
    end

    (TEXTS + NUMBERS + %w[uuid]).each { |name| define_method(name) { @facts[name] } }
    TIMES.each { |name| define_method(name) { Clock.parse(@facts[name].to_s) } }

    # The holder's own attributes.
    def attributes = @facts["attributes"] || {}
    # The latest progress that the holder reported.
    def progress = @facts.dig("alive", "progress")
    # Whether a deadline or the uuid is missing.
    def malformed? = !(%w[uuid alert_at auto_unlock_at] - @facts.keys).empty?

    # One line: who, where, since when, what for, and when the lock is taken away.
    def to_s
      line = owner.to_s.empty? ? "an unknown owner" : Text.plain(owner)
      line += " on #{Text.plain(hostname)}" if hostname
      line += " (pid #{pid})" if pid
      line += ", taken #{Clock.words(locked_at)}" if locked_at
      line += " for \"#{Text.plain(purpose)}\"" if purpose
      line + (auto_unlock_at ? "; auto-unlock #{Clock.words(auto_unlock_at)}" : "")
    end

    private

    def read(name, value)
      value = value.dup.force_encoding("UTF-8") if value.is_a?(String)
      case name
      when *NUMBERS then keep(name, number(name, value))
      when *TIMES then keep(name, value.to_s.then { |text| text if Clock.parse(text) })
      when *TEXTS, "uuid" then keep(name, text(value, name == "backtrace" ? 16_384 : 1024))
      when "alive" then alive(value)
      when "detached" then keep(name, (true unless value.to_s == "false"))
      when "asked", "extended", "acknowledged" then nil # from others
      else attribute(name, value)
      end
    end

    def number(name, value)
      number = value.to_s.b[/\A[0-9]{1,18}\z/]&.to_i
      name == "lock_delay" && number ? [number, MAX_DELAY].min : number
    end

    def keep(name, value) = value.nil? || @facts[name] = value

    def text(value, limit = 1024)
      return if value.is_a?(Hash) || value.is_a?(Array)

      Text.cut(value.to_s.dup.force_encoding("UTF-8").scrub("\uFFFD"), limit)
    end

    def alive(value)
      at, _, progress = value.to_s.partition(" ")
      progress = text(progress) unless progress.empty?
      @facts["alive"] = { "at" => (at if Clock.parse(at)), "progress" => progress.empty? ? nil : progress }.compact
    end

    def attribute(name, value)
      return if value.is_a?(Hash) || value.is_a?(Array) || attributes.size >= 64

      (@facts["attributes"] ||= {})[name] = value.is_a?(String) ? text(value) : value
    end
  end

  # The lock delay of a hold that was ended: the lock must not be taken yet.
  class Delay
    # The owner and the host of that hold; when the delay ends, a Time by the clock of whoever ended the hold. nil if
    # unreadable.
    attr_reader :owner, :hostname, :until
    # How many permits of a semaphore it keeps; nil if not known, which counts as all.
    attr_reader :permits

    def initialize(document, lock)
      note = Document.delay(document, lock) or return
      @owner, @hostname, seconds = note.values_at("owner", "hostname", "seconds")
      @permits = [note["permits"] || 1, 1].max
      at = Clock.parse(note["at"].to_s)
      @until = at + seconds if at && seconds
    end

    def to_s
      who = " after the hold of #{Text.plain(owner)}#{" on #{Text.plain(hostname)}" if hostname}" if owner
      "a lock delay#{who}#{", which ends #{Clock.words(@until)}" if @until}"
    end
  end

  # The record that a client writes.
  module Record
    RESERVED = (Holder::TEXTS + Holder::NUMBERS + Holder::OWN_KEYS +
                %w[metadata locked_at detached heartbeat_until]).freeze

    module_function

    # The fields of a record that begins at a time. Raises RefusedError for what readers would not accept.
    def fields(uuid:, at:, alert_after:, auto_unlock_after:, members:, attributes:)
      document = members.compact.merge("locked_at" => Clock.format(at)).merge(check(attributes))
      fields = {
        "uuid" => uuid, "alert_at" => Clock.format((at + [alert_after, auto_unlock_after].min).floor(3)),
        "auto_unlock_at" => Clock.format((at + auto_unlock_after).floor(3)), "metadata" => JSON.generate(document)
      }
      size = fields.sum { |name, value| name.bytesize + value.bytesize }
      raise RefusedError, "the record has #{size} bytes; at most 65536 are allowed" if size > 65_536

      fields
    rescue JSON::GeneratorError
      raise RefusedError, "an attribute is a number that JSON cannot express"
    end

    def check(attributes)
      raise RefusedError, "the attributes are not a hash" unless attributes.respond_to?(:to_hash)
      raise RefusedError, "there are #{attributes.size} attributes; at most 64 are allowed" if attributes.size > 64

      attributes.to_hash.to_h { |name, value| [attribute_name(name.to_s), attribute(name, value)] }
    end

    def attribute_name(name)
      unless name.match?(/\A[a-z][a-z0-9_]{0,62}\z/)
        raise RefusedError, "attribute #{name.inspect}: want a lowercase letter, then at most 62 of a-z, 0-9 and _"
      end
      raise RefusedError, "attribute #{name.inspect}: the name is reserved" if RESERVED.include?(name)

      name
    end

    def attribute(name, value)
      case value
      when String, Symbol then Text.check("attribute #{name}", value.to_s)
      when Integer, Float, true, false then value
      else raise RefusedError, "attribute #{name}: want text, a number or a boolean, not #{value.class}"
      end
    end
    private_class_method :attribute_name, :attribute
  end
end
