# frozen_string_literal: true

module ClusterMutex
  # Untrusted JSON written by others. Nothing here raises: what cannot be read is nil.
  module Document
    TEXT = ->(value) { value.is_a?(String) }
    WHOLE = ->(value) { value.is_a?(Integer) && value.abs < 2**53 }
    TIME = ->(value) { [String, Integer, Float].include?(value.class) && Clock.parse(value.to_s) }
    # The form of each member, the same in all documents.
    FORMS = {
      "lock" => TEXT, "uuid" => TEXT, "owner" => TEXT, "hostname" => TEXT, "by" => TEXT, "source" => TEXT,
      "reason" => TEXT, "why" => TEXT, "at" => TIME, "auto_unlock_at" => TIME, "token" => WHOLE, "seconds" => WHOLE,
      "permits" => WHOLE,
      "ended" => ->(value) { value.is_a?(String) && value.match?(/\A[a-z][a-z0-9_]{0,62}\z/) }
    }.freeze
    LARGEST = 2048 # bytes of a note to a holder
    LARGEST_DELAY = 4096
    LARGEST_METADATA = 65_536

    # A surrogate pair, half of one, or any other escape.
    ESCAPE = /\\(?:u[dD][89abAB]\h\h\\u[dD][c-fC-F]\h\h|u[dD][89a-fA-F]\h\h|.)/m

    module_function

    # A request or an extension, if it is for this hold.
    def of_hold(text, uuid, token)
      found = read(text, LARGEST)
      found if found && found.values_at("uuid", "token") == [uuid, token]
    end

    # The ending of the hold with this token.
    def ending(text, token)
      found = read(text)
      found if found && found["ended"] && found["token"] == token
    end

    # The delay of this lock.
    def delay(text, lock)
      found = read(text, LARGEST_DELAY)
      found if found && found["lock"] == lock
    end

    # A document of the protocol, if all its members are well formed.
    def read(text, most = Float::INFINITY)
      found = object(text) if text && text.bytesize <= most
      found if found&.all? { |name, value| value.nil? || !FORMS.key?(name) || FORMS[name].call(value) }
    end

    # Any JSON object.
    def object(text)
      text = text.dup.force_encoding("UTF-8").scrub("\uFFFD")
      found = JSON.parse(text.gsub(ESCAPE) { |escape| escape.match?(/\A\\u[dD][89a-fA-F]..\z/) ? "\\ufffd" : escape })
      found if found.is_a?(Hash)
    rescue JSON::ParserError
      nil
    end
    private_class_method :read
  end
end
