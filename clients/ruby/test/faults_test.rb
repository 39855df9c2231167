# frozen_string_literal: true

require_relative "helper"

# Lost answers, endpoints that are gone, logins that expire: errors are not answers.
class FaultsTest < LockTest
  Interruption = Class.new(StandardError)

  # Whether a body takes the lock.
  def claim?(body)
    success = JSON.parse(body)["success"] || []
    success.any? { |one| one.dig("request_put", "key")&.unpack1("m") == "#{prefix}a/uuid" }
  end

  def tombstones = keys.keys.grep(%r{/\.cancelled/})

  def test_no_late_send_takes_the_lock_after_giving_up
    down = true
    proxy = Faults.new(etcd) { |_, body| (claim?(body) ? :late : :request) if down }
    locks = client(proxy.endpoint, timeout: 0.5)
    assert_raises(UnavailableError) { locks.lock("a", wait: 0) }
    down = false
    eventually("tombstone") { tombstones.any? }
    proxy.send_late
    assert_nothing_left
  end

  def test_a_waiter_with_an_unanswered_join_does_not_count_itself
    holder = client.lock("a")
    join = "#{prefix}.queue/a/.tail"
    proxy = Faults.new(etcd) do |_, body|
      puts = JSON.parse(body)["success"] || []
      :answer if puts.any? { |one| one.dig("request_put", "key")&.unpack1("m") == join }
    end
    error = assert_raises(WaitTimeoutError) { client(proxy.endpoint).lock("a", wait: 2) }
    assert_equal [holder.uuid, 0], [error.holder.uuid, error.waiting]
    eventually("empty queue") { keys.none? { |key, _| key.include?("/.queue/") } }
    holder.release
  end

  def test_an_unanswered_release_continues_in_the_background
    down = false
    proxy = Faults.new(etcd) { |_, _| :request if down }
    locks = client(proxy.endpoint, timeout: 0.5)
    session(locks).define_singleton_method(:patience) { Clock.now + 1 } # instead of 15 seconds
    lock = locks.lock("a")
    down = true
    error = assert_raises(UnavailableError) { lock.release }
    assert_match(/continues in the background/, error.message)
    assert_same error, assert_raises(UnavailableError) { lock.release }
    assert_held_by lock.uuid
    down = false
    assert_nothing_left
  end

  # An endpoint that refuses connections, and one that accepts them and never answers.
  def gone = "http://127.0.0.1:#{TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }}"
  def silent = "http://127.0.0.1:#{(@silent = TCPServer.new("127.0.0.1", 0)).addr[1]}"

  def test_requests_go_to_another_endpoint_when_one_is_gone_or_hangs
    locks = client([gone, silent, etcd.endpoint], timeout: 1)
    locks.lock("a", wait: LONG, &:alive!)
    assert_nothing_left
  end

  # A server that answers each request with its body: "late" when it is told to, "twice" at once and then again, "long"
  # with more than that.
  def parrot(asked, go_on)
    server = TCPServer.new("127.0.0.1", 0)
    Thread.new { loop { Thread.new(server.accept) { |client| talk(client, asked, go_on) } } }
    "http://127.0.0.1:#{server.addr[1]}"
  end

  def talk(client, asked, go_on)
    while (head = client.gets("\r\n\r\n"))
      body = client.read(head[/^Content-Length: (\d+)/, 1].to_i)
      answer = "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}"
      (asked << client) && go_on.pop if body.include?("late")
      client.write(body.include?("long") ? answer * 2 : answer)
      go_on.pop && client.write(answer) if body.include?("twice")
    end
  rescue SystemCallError
    nil # the answer came too late
  end

  # Asks for a late answer in a thread, which the block ends.
  def abandoned(gateway, asked)
    thread = Thread.new do
      gateway.post("/", '["late"]', LONG)
    rescue Interruption
      nil
    end
    client = asked.pop
    yield thread
    thread.join
    client
  end

  def test_no_answer_is_taken_for_that_to_a_later_request
    asked = Queue.new
    go_on = Queue.new
    gateway = ClusterMutex.const_get(:Gateway).new(parrot(asked, go_on))
    says = ->(text, seconds = LONG) { gateway.post("/", JSON.generate([text]), seconds)["body"] }
    {
      "a timeout" => -> { go_on << asked.pop unless says.call("late", 0.1) },
      "an error" => -> { go_on << abandoned(gateway, asked) { |thread| thread.raise(Interruption) } },
      "an end" => -> { go_on << abandoned(gateway, asked, &:kill) },
      "more than one answer" => -> { says.call("long") },
      "another answer" => lambda {
        go_on << says.call("twice")
        assert gateway.instance_variable_get(:@idle).last[1].instance_variable_get(:@socket).io.wait_readable(LONG)
      }
    }.each do |what, happens|
      happens.call
      3.times { |n| assert_equal [n], says.call(n), "after #{what}" }
    end
  end

  def test_a_wait_bounds_the_call_whatever_etcd_does
    [gone, silent, [silent, silent]].product([0, 0.5]).each do |endpoints, wait|
      locks = client(endpoints, timeout: 2)
      began = Clock.now
      error = assert_raises(UnavailableError) { locks.lock("a", wait:) }
      assert_operator Clock.now - began, :<, 6, "#{endpoints} #{wait}" # half a second more than 2, on a calm machine
      Array(endpoints).each { |endpoint| assert_includes error.message, "#{endpoint}: " }
    end
  end

  def test_silence_in_a_hurry_hides_no_failure
    call = ClusterMutex.const_get(:Call).new(["a"], 0)
    call.failed({ "at" => 0, "status" => 503 }, { message: "no leader" })
    call.failed(ClusterMutex.const_get(:Gateway).new(silent).post("/", "{}", 0.05), {})
    assert_match(/no leader\z/, assert_raises(UnavailableError) { call.give_up_when_over }.message)
  end

  ANSWERS = [ # of servers that are not etcd
    [404, "<h1>Not Found</h1>"], [404, "404 page not found"], [404, '{"error":"no such route"}'], [401, "Unauthorized"],
    [403, '{"error":"forbidden"}'], [200, "<h1>Welcome</h1>"], [200, '{"status":"ok"}'], [200, "[]"], [200, ""],
    [200, '{"header":7}'], [502, "<h1>Bad Gateway</h1>"], [503, '{"message":"away"}']
  ].freeze

  def test_a_foreign_answer_leads_to_the_next_endpoint
    ANSWERS.each do |code, body|
      other = Faults.new(etcd) { [code, body] }
      client([other.endpoint, etcd.endpoint]).lock("a", wait: 0).release
      error = assert_raises(UnavailableError, body) { client([gone, other.endpoint], timeout: 5).lock("a", wait: 0) }
      assert_match(/\Aetcd did not answer: http.*refused.*; #{other.endpoint}: HTTP #{code}/, error.message)
      refute_match(/\p{C}/, error.message)
    end
  end

  def test_a_useless_login_is_refused_the_second_time
    expired = [401, JSON.generate(code: 16, message: "etcdserver: invalid auth token")]
    logins = 0
    proxy = Faults.new(etcd) do |path, _|
      next expired unless path.end_with?("/authenticate")

      logins += 1
      [200, '{"header":{},"token":"abc"}']
    end
    error = assert_raises(RefusedError) { client(proxy.endpoint, user: "ann", password: "x").lock("a", wait: 0) }
    assert_match(/requires a login: etcdserver: invalid auth token/, error.message)
    assert_equal 2, logins
  end

  def test_a_waiter_survives_a_restart_of_etcd
    server = Etcd.new
    first = client(server.endpoint).lock("a")
    taken = Queue.new
    waiter = Thread.new { client(server.endpoint).lock("a") { |lock| taken << lock.token } }
    Timeout.timeout(LONG) { sleep(0.01) until server.keys(prefix).any? { |key, _| key.include?("/.queue/") } }
    server.stop
    server.start
    first.release
    assert_operator Timeout.timeout(LONG) { taken.pop }, :>, first.token
    waiter.join
  ensure
    server.stop
  end

  def test_a_login_is_renewed
    server = Etcd.new("-token-ttl", "1")
    server.call("/v3/auth/user/add", name: "root", password: "secret")
    server.call("/v3/auth/user/grant", user: "root", role: "root")
    server.call("/v3/auth/role/add", name: "locks")
    server.call("/v3/auth/role/grant", name: "locks", perm: { permType: "READWRITE", key: [prefix].pack("m0"),
                                                              range_end: ["#{prefix[0..-2]}0"].pack("m0") })
    server.call("/v3/auth/user/add", name: "billing", password: "secret")
    server.call("/v3/auth/user/grant", user: "billing", role: "locks")
    server.call("/v3/auth/enable", {})
    locks = client(server.endpoint, user: "billing", password: "secret")
    locks.lock("a") do |lock|
      gateway = session(locks).gateway
      token = gateway.instance_variable_get(:@token)
      Timeout.timeout(LONG) { sleep(2) && lock.alive! until gateway.instance_variable_get(:@token) != token }
    end
    assert_raises(RefusedError) { client(server.endpoint, user: "billing", password: "wrong").lock("a", wait: 0) }
    assert_raises(RefusedError) { client(server.endpoint).lock("a", wait: 0) }
    error = assert_raises(RefusedError) do
      Client.new(server.endpoint, user: "billing", password: "secret", prefix: "/other/").lock("a", wait: 0)
    end
    assert_match(/permission denied/, error.message)
  ensure
    server.stop
  end

  def test_tls_with_a_client_certificate
    server = Etcd.new("-tls", "DIR", "-client-certs")
    files = { ca: "#{server.dir}/cert.pem", cert: "#{server.dir}/cert.pem", key: "#{server.dir}/key.pem" }
    client(server.endpoint, **files).lock("a") { |lock| assert_nil lock.lost }
    stranger = assert_raises(RefusedError) { client(server.endpoint).lock("a") }
    assert_match(/\Athe certificate of #{server.endpoint} is not trusted: self.signed/, stranger.message)
    other = server.endpoint.sub("127.0.0.1", "localhost")
    error = assert_raises(RefusedError) { client(other, **files).lock("a") }
    assert_match(/\Athe certificate of #{other} is not trusted: .*(mismatch|match)/, error.message)
    client([server.endpoint, etcd.endpoint]).lock("a", wait: 0).release
  ensure
    server.stop
  end
end
