# frozen_string_literal: true

require_relative "helper"

# The vectors and the transactions of docs/protocol, which all clients share.
class VectorsTest < Minitest::Test
  include ClusterMutex

  def self.read(file) = JSON.parse(File.read(File.expand_path("../../../docs/protocol/#{file}", __dir__)))

  VECTORS = read("vectors.json")
  TRANSACTIONS = read("transactions.json").merge(read("kinds.json")) do |_, all, of_kinds|
    all.is_a?(Array) ? all + of_kinds : all
  end

  def setup = @transactions = Transactions.new("/mutexes/")

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

  def test_names_that_no_lock_may_have_are_refused
    VECTORS.fetch("refused_names").each do |name|
      assert_raises(RefusedError, name["about"]) { Name.segment(name["name"] || name["name_base64"].unpack1("m")) }
    end
    VECTORS.fetch("refused_segments").each do |name|
      assert_raises(RefusedError, name["about"]) { Name.of(name["segment"]) }
    end
  end

  def test_times_are_read_and_written
    VECTORS.fetch("times").each do |vector|
      time = Clock.parse(vector["text"])
      assert_equal vector.values_at("seconds", "nanoseconds"), [time.to_i, time.nsec], vector["about"]
      assert_equal vector["written"] || vector["text"], Clock.format(time), vector["about"]
    end
    VECTORS.fetch("refused_times").each { |vector| assert_nil Clock.parse(vector["text"]), vector["about"] }
  end

  def test_records_are_read_whatever_is_wrong_with_them
    VECTORS.fetch("records").each do |vector|
      keys = vector["fields"].map do |field|
        { key: @transactions.field("x", field["name"]), created: 7, modified: field["mod_revision"] || 7,
          value: bytes(field) }
      end
      holder = Holder.new(*@transactions.fields("x", keys).first(2))
      facts = holder.facts.transform_values { |fact| one_mark(fact) }
      assert_equal decoded(vector), facts, vector["about"]
      assert_equal vector["malformed"], holder.malformed?, vector["about"]
    end
  end

  def test_what_others_write_for_a_hold_is_read_or_ignored
    %w[requests extensions].flat_map { |name| VECTORS.fetch(name) }.each do |vector|
      assert_read vector, Document.of_hold(bytes(vector), vector["uuid"], vector["token"])
    end
  end

  def test_endings_are_read_or_ignored
    VECTORS.fetch("endings").each { |vector| assert_read vector, Document.ending(bytes(vector), 7) }
  end

  def test_delays_are_read_or_keep_others_back_all_the_same
    VECTORS.fetch("delays").each do |vector|
      lock = Name.of(vector["key"].split("/").last)
      assert_read vector, Document.delay(bytes(vector), lock)
      refute_match(/\p{C}/, Delay.new(bytes(vector), lock).to_s, vector["about"])
    end
  end

  def test_bodies
    TRANSACTIONS.fetch("transactions").each do |step|
      body = @transactions.body(step["step"], step["input"].transform_keys(&:to_sym))
      assert_equal step["body"], JSON.parse(JSON.generate(body)), "#{step["step"]}: #{step["about"]}"
    end
  end

  def test_verdicts
    TRANSACTIONS.fetch("verdicts").each do |step|
      input = step["input"].transform_keys(&:to_sym)
      found = @transactions.verdict(step["step"], input, step["answer"])
      holders = found[:holders] || Holders.none
      found.merge!(holder: holders.all.first, delayed: !holders.delay_for(**input.slice(:kind, :limit, :weight)).nil?)
      want = step.except("about", "step", "input", "answer")
      got = want.to_h { |member, _| [member, member == "share" ? found[:share] : plain(found[member.to_sym])] }
      assert_equal want, got, "#{step["step"]}: #{step["about"]}"
    end
  end

  private

  # The texts of a document, or nothing.
  def assert_read(vector, found)
    want, got = [vector["decoded"], found].map do |document|
      document&.slice("by", "reason", "source", "ended", "why", "owner", "hostname")
              &.transform_values { |text| one_mark(text.to_s) }&.reject { |_, text| text.empty? }
    end
    assert want == got, "#{vector["about"]}: #{got} instead of #{want}"
  end

  def bytes(vector) = vector["value"] || vector["value_base64"].unpack1("m")

  def plain(value)
    case value
    when Symbol, Integer then value.to_s
    when Holder then value.uuid
    else value
    end
  end

  # What a text is not read as is absent.
  def decoded(vector)
    vector["decoded"].to_h do |name, value|
      next [name, one_mark(value.reject { |_, text| text == "" })] if value.is_a?(Hash)
      next [name, value] unless name.end_with?("_base64")

      [name.delete_suffix("_base64"), one_mark(value.unpack1("m").force_encoding("UTF-8").scrub("\uFFFD"))]
    end
  end

  # U+FFFD stands for bytes in a row that are not UTF-8.
  def one_mark(value)
    case value
    when String then value.gsub(/\uFFFD+/, "\uFFFD")
    when Hash then value.transform_values { |inner| one_mark(inner) }
    else value
    end
  end
end
