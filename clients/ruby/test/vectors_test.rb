# frozen_string_literal: true

require_relative "helper"

# Writing as in the vectors of docs/protocol, and reading of records. test/conformance covers the rest and all
# transactions.
class VectorsTest < Minitest::Test
  include ClusterMutex

  VECTORS = JSON.parse(File.read(File.expand_path("../../../docs/protocol/vectors.json", __dir__)))

  def test_the_fields_are_those_of_the_protocol
    keys, others, members = VECTORS.fetch("fields").values_at("keys", "keys_of_others", "members")
    assert_equal keys + others, Holder::OWN_KEYS
    assert_equal (keys + others + members + ["metadata"]).sort, Record::RESERVED.sort
  end

  def test_names_are_written_and_read
    VECTORS.fetch("names").each do |name|
      assert_equal name["segment"], Name.segment(name["name"]), name["about"]
      assert_equal name["name"], Name.of(name["segment"]), name["about"]
    end
  end

  def test_times_are_written
    VECTORS.fetch("times").each do |vector|
      assert_equal vector["written"] || vector["text"], Clock.format(Clock.parse(vector["text"])), vector["about"]
    end
  end

  def test_records_are_read_whatever_is_wrong_with_them
    transactions = Transactions.new("/mutexes/")
    VECTORS.fetch("records").each do |vector|
      keys = vector["fields"].map do |field|
        { key: transactions.field("x", field["name"]), created: 7, modified: field["mod_revision"] || 7,
          value: bytes(field) }
      end
      holder = Holder.new(*transactions.fields("x", keys).first(2))
      facts = holder.facts.transform_values { |fact| one_mark(fact) }
      assert_equal decoded(vector), facts, vector["about"]
      assert_equal vector["malformed"], holder.malformed?, vector["about"]
    end
  end

  private

  def bytes(vector) = vector["value"] || vector["value_base64"].unpack1("m")

  # Members of the wrong form count as absent.
  def decoded(vector)
    vector["decoded"].to_h do |name, value|
      next [name, one_mark(value.reject { |_, text| text == "" })] if value.is_a?(Hash)
      next [name, value] unless name.end_with?("_base64")

      [name.delete_suffix("_base64"), one_mark(value.unpack1("m").force_encoding("UTF-8").scrub("\uFFFD"))]
    end
  end

  # Each run of invalid UTF-8 becomes U+FFFD.
  def one_mark(value)
    case value
    when String then value.gsub(/\uFFFD+/, "\uFFFD")
    when Hash then value.transform_values { |inner| one_mark(inner) }
    else value
    end
  end
end
