# frozen_string_literal: true

require_relative "helper"

# What is written as the vectors of docs/protocol say. That they are read so, and all transactions, test/conformance
# shows.
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
end
