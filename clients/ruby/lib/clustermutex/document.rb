# frozen_string_literal: true

require "json"

module ClusterMutex
  # JSON that others wrote, who may write anything. Nothing here raises: what cannot be read is nil.
  module Document
    TEXT = ->(value) { value.is_a?(String) }
    TIME = ->(value) { [String, Integer, Float].include?(value.class) && Clock.parse(value.to_s) }
    # A member has the same form in all documents.
    FORMS = {
      "lock" => TEXT, "owner" => TEXT, "hostname" => TEXT, "by" => TEXT, "source" => TEXT, "reason" => TEXT,
      "why" => TEXT, "at" => TIME, "auto_unlock_at" => TIME,
      "ended" => ->(value) { value.is_a?(String) && value.match?(/\A[a-z][a-z0-9_]{0,62}\z/) },
      "seconds" => ->(value) { value.is_a?(Integer) && value.between?(0, (2**63) - 1) }
    }.freeze
    LARGEST = 2048 # bytes of what is written for a holder

    # A surrogate pair, half of one, or any other escape.
    ESCAPE = /\\(?:u[dD][89abAB]\h\h\\u[dD][c-fC-F]\h\h|u[dD][89a-fA-F]\h\h|.)/m

    module_function

    # The request or extension in a text, if it was written for this hold and all its members have their form.
    def of_hold(text, uuid, token)
      found = object(text) if text && text.bytesize <= LARGEST
      found if found && found["uuid"] == uuid && found["token"].eql?(token) && found.all? { |member| form?(*member) }
    end

    # An ending or a delay: the members that have their form.
    def read(text) = object(text)&.select { |*member| form?(*member) }

    # Any JSON object.
    def object(text)
      text = text.dup.force_encoding("UTF-8").scrub("\uFFFD")
      found = JSON.parse(text.gsub(ESCAPE) { |escape| escape.match?(/\A\\u[dD][89a-fA-F]..\z/) ? "\\ufffd" : escape })
      found if found.is_a?(Hash)
    rescue JSON::ParserError
      nil
    end

    def form?(name, value) = value.nil? || !FORMS.key?(name) || FORMS[name].call(value)
    private_class_method :form?
  end
end
