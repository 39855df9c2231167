# frozen_string_literal: true

$LOAD_PATH.unshift File.expand_path("../lib", __dir__)
require "clustermutex"
require "minitest/autorun"
require "open3"
require "socket"
require "tmpdir"
require "timeout"

# A real etcd with its JSON gateway: the program of test/etcdserver, whose path is in ETCDSERVER. It ends with this one.
class Etcd
  attr_reader :endpoint, :dir

  def self.shared = @shared ||= new

  def initialize(*flags)
    @dir = Dir.mktmpdir
    @flags = flags.map { |flag| flag.sub("DIR", @dir) }
    at_exit_of_tests
    start
  end

  def start
    read, @input = IO.pipe
    output, write = IO.pipe
    listen = @endpoint ? ["-listen", @endpoint.split("//").last] : []
    @pid = spawn(ENV.fetch("ETCDSERVER"), *@flags, "-data", "#{@dir}/data", *listen, in: read, out: write,
                                                                                     err: "#{@dir}/log")
    [read, write].each(&:close)
    @endpoint = output.gets&.strip or raise File.read("#{@dir}/log")
  end

  def stop
    signal(:KILL)
    Process.wait(@pid)
    @input.close
    @pid = nil
  end

  def signal(name) = Process.kill(name, @pid)

  # Runs operations as another program, in one transaction.
  def put(key, value) = call("/v3/kv/put", key: [key].pack("m0"), value: [value].pack("m0"))
  def delete(key) = call("/v3/kv/deleterange", key: [key].pack("m0"))

  # Keys and values below a prefix.
  def keys(prefix)
    answer = call("/v3/kv/range", key: [prefix].pack("m0"), range_end: ["#{prefix[0..-2]}0"].pack("m0"))
    (answer["kvs"] || []).to_h { |kv| [kv["key"].unpack1("m"), kv["value"].to_s.unpack1("m")] }
  end

  def call(path, body)
    gateway.call(path, body, till: ClusterMutex::Clock.now + 30)
  end

  private

  def gateway
    ca = "#{@dir}/cert.pem"
    @gateway ||= ClusterMutex.const_get(:Gateway).new(@endpoint, ca: File.exist?(ca) ? ca : nil)
  end

  def at_exit_of_tests
    parent = Process.pid
    Minitest.after_run do
      if parent == Process.pid
        stop if @pid
        FileUtils.rm_rf(@dir)
      end
    end
  end
end

# A proxy that loses messages. For each path and body, the block returns what to lose: :request, :answer, :late (the
# request is sent again when the test calls +send_late+) or nil; or the status and the text to answer instead.
class Faults
  attr_reader :endpoint

  def initialize(etcd, &lose)
    @etcd = URI(etcd.endpoint)
    @lose = lose
    @late = []
    @server = TCPServer.new("127.0.0.1", 0)
    @endpoint = "http://127.0.0.1:#{@server.addr[1]}"
    Thread.new { loop { Thread.new(@server.accept) { |client| serve(client) } } }
  end

  def send_late = @late.each { |path, body| forward(path, body) }

  private

  def serve(client)
    path, body = request(client)
    return unless path

    fault = @lose.call(path, body)
    return if fault == :request
    return @late << [path, body] if fault == :late
    return answer(client, *fault) if fault.is_a?(Array)

    answer = forward(path, body) unless path == "/v3/watch"
    return if fault == :answer
    return watch(client, body) unless answer

    answer(client, answer.code, answer.body)
  rescue SystemCallError, IOError
    nil
  ensure
    client.close
  end

  def answer(client, code, body)
    client.write("HTTP/1.1 #{code} X\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n#{body}")
  end

  def request(client)
    path = client.gets&.split&.at(1) or return
    length = 0
    while (line = client.gets.strip) != ""
      length = line.split(":").last.to_i if line.downcase.start_with?("content-length:")
    end
    [path, client.read(length)]
  end

  def forward(path, body) = Net::HTTP.post(@etcd + path, body, "Content-Type" => "application/json")

  def watch(client, body)
    client.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    Net::HTTP.start(@etcd.host, @etcd.port, read_timeout: 60) do |http|
      http.request_post("/v3/watch", body) { |response| response.read_body { |part| client.write(part) } }
    end
  end
end

# A test with an etcd and a prefix of its own.
class LockTest < Minitest::Test
  include ClusterMutex

  LONG = 30 # generous seconds, for busy machines

  def etcd = Etcd.shared

  # Before there are threads that would each start one.
  def before_setup
    super
    etcd
  end

  def prefix = "/#{self.class}-#{name}/"

  def client(endpoints = etcd.endpoint, timeout: 10, **options)
    Client.new(endpoints, owner: "billing", prefix:, timeout:, **options)
  end

  # The private session of a client.
  def session(locks) = locks.instance_variable_get(:@session)

  def keys = etcd.keys(prefix)

  def eventually(what, &block)
    Timeout.timeout(LONG, nil, "no #{what}: #{keys}") { sleep(0.01) until (found = block.call) || found }
    block.call
  end

  # Nothing is left of the lock, and nothing is due.
  def assert_nothing_left(name = "a")
    eventually("end of #{name}") { keys.none? { |key, _| key.start_with?("#{prefix}#{name}/", "#{prefix}.queue/") } }
  end

  def assert_held_by(uuid, name = "a") = assert_equal(uuid, keys["#{prefix}#{name}/uuid"])

  # Waits until the holder has opened its watch and read its record, so that it learns the rest through the watch.
  def watched(lock)
    eventually("watch") { lock.instance_variable_get(:@watched) }
    lock
  end

  def queued(count) = eventually("queue") { keys.count { |key, _| key.start_with?("#{prefix}.queue/") } == count + 1 }
end
