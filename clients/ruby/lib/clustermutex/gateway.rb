# frozen_string_literal: true

require "json"
require "net/http"
require "openssl"
require "uri"

module ClusterMutex
  # etcd over HTTP: several endpoints with failover, TLS, login and its renewal, a deadline for every request, watches.
  # Safe for threads, and for fork: a child opens connections of its own and leaves those of its parent alone.
  class Gateway
    # What a server that is gone, hangs or is none does to a request.
    BROKEN = [SystemCallError, IOError, SocketError, OpenSSL::SSL::SSLError, Net::OpenTimeout, Net::ReadTimeout,
              Net::WriteTimeout, Net::ProtocolError, Net::HTTPBadResponse, Net::HTTPHeaderSyntaxError].freeze
    LOGINS = 5 # that in a row did not help

    # Notes whether a send of one attempt is unanswered: it may have been done, or may be done later. Set before a send,
    # so that it is right even where an exception of another thread ends the wait for the answer.
    Doubt = Struct.new(:unanswered)

    # Raised where the lease of a request is gone.
    class LeaseGone < Error; end

    # Raised where etcd is out of space.
    class FullError < UnavailableError; end

    # Seconds for one request.
    attr_reader :timeout

    def initialize(endpoints, user: nil, password: nil, ca: nil, cert: nil, key: nil, timeout: 2.0)
      @endpoints = Array(endpoints).map { |endpoint| parse(endpoint) }
      raise RefusedError, "there is no endpoint of etcd" if @endpoints.empty?

      @user = user.to_s
      @password = password.to_s
      @timeout = timeout
      @tls = tls(ca.to_s, cert.to_s, key.to_s)
      @mutex = Mutex.new
      @login = Mutex.new
      @current = 0
      @idle = []
      @pid = Process.pid
    end

    # Sends a step of the protocol, byte for byte the same, until an answer settles it, and returns the verdict.
    # UnavailableError when +till+ has come (by Clock.now), RefusedError when etcd refuses.
    def settle(transactions, step, input, till:, doubt: Doubt.new)
      bytes = JSON.generate(transactions.body(step, input))
      request("/v3/kv/txn", bytes, till:, doubt:) do |answer, unanswered|
        transactions.verdict(step, input.merge(unanswered:), answer)
      end
    end

    # The same for a request that is no transaction: returns the body of its answer.
    def call(path, body, till:)
      request(path, JSON.generate(body), till:, doubt: Doubt.new) do |answer|
        Transactions.error(answer) || { verdict: :done, body: answer["body"] }
      end[:body]
    end

    # One request and its answer, as transactions.json writes it. Never raises for a broken connection.
    def post(path, bytes, seconds)
      finish = Clock.now + seconds
      http = nil
      begin
        at = @current
        http = connection(at, seconds)
        http.read_timeout = http.write_timeout = [finish - Clock.now, 0.01].max
        http.open_timeout = connect_limit(http.read_timeout)
        response = http.request(message(path, bytes))
        keep(at, http)
        http = nil
        answer(response)
      rescue *BROKEN => e
        fail_over(at)
        { "none" => true, "unsent" => http.nil?, "error" => "#{@endpoints[at]}: #{e.message}" }
      ensure
        close(http) if http
      end
    end

    # A connection of its own for a watch, with the request for it.
    def stream(path, bytes, silence)
      log_in if @token.nil? && !@user.empty?
      http = dial(@current, @timeout)
      http.read_timeout = silence
      [http, message(path, bytes)]
    end

    def close(http)
      http.finish if http.started?
    rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
      nil
    end

    # Has requests go to another endpoint, unless they do already.
    def fail_over(from = @current)
      @mutex.synchronize { @current = (from + 1) % @endpoints.size if @current == from }
    end

    # The token is not good any more.
    def log_out(token = @token) = @login.synchronize { @token = nil if @token.equal?(token) }

    private

    def request(path, bytes, till:, doubt:, &judge)
      logins = 0
      (0..).each do |attempt|
        log_in if @token.nil? && !@user.empty?
        token = @token
        answer, found = send_once(path, bytes, [[@timeout, till - Clock.now].min, 0.05].max, doubt, &judge)
        case found[:verdict]
        when :login then expired(token, logins += token ? 1 : 0, found)
        when :report then raise RefusedError, refusal(answer, found)
        when :lease then raise LeaseGone, found[:message]
        when :resend, :full then nil
        else return found
        end
        give_up_or_pause(attempt, answer, found, till)
      end
    end

    def send_once(path, bytes, seconds, doubt)
      before = doubt.unanswered
      doubt.unanswered = true
      answer = post(path, bytes, seconds)
      found = yield(answer, before)
      doubt.unanswered = before || found[:doubt] || false
      [answer, found]
    end

    def expired(token, logins, found)
      raise RefusedError, "etcd wants a login: #{found[:message]}" if @user.empty? || logins > LOGINS

      log_out(token)
    end

    def give_up_or_pause(attempt, answer, found, till)
      raise FullError, "etcd is out of space and takes no writes" if found[:full] || found[:verdict] == :full
      raise UnavailableError, "etcd did not answer: #{answer["error"] || found[:message]}" if Clock.now >= till

      fail_over if found[:doubt] && answer["status"]
      sleep([rand(0.5..1.0) * [0.02 * (2**[attempt, 7].min), 2].min, [till - Clock.now, 0].max].min)
    end

    def refusal(answer, found)
      return "etcd's JSON gateway is not there: #{found[:message]}" if answer["status"] == 404

      "etcd refuses: #{found[:message]}"
    end

    def answer(response)
      answer = { "status" => response.code.to_i }
      text = response.body.to_s.dup.force_encoding("UTF-8").scrub("\uFFFD")
      answer.merge("body" => JSON.parse(text))
    rescue JSON::ParserError
      answer.merge("text" => text, "error" => "HTTP #{response.code} #{Text.plain(text)}")
    end

    # Only one thread logs in; the others wait for it.
    def log_in
      @login.synchronize do
        return if @token

        answer = post("/v3/auth/authenticate", JSON.generate(name: @user, password: @password), @timeout)
        body = answer["body"].is_a?(Hash) ? answer["body"] : {}
        case [answer["status"], body["code"]]
        in [200, _] then @token = body["token"].to_s
        in [_, 9] then @token = "" # authentication is not enabled
        in [_, 3 | 7] then raise RefusedError, "etcd refuses the login of #{@user.inspect}: #{body["message"]}"
        else nil # what follows fails for the same reason, and is sent again
        end
      end
    end

    def message(path, bytes)
      headers = { "Content-Type" => "application/json", "Accept-Encoding" => "identity",
                  "Grpc-Metadata-hasleader" => "true" }
      headers["Authorization"] = @token unless @token.to_s.empty?
      Net::HTTP::Post.new(path, headers).tap { |post| post.body = bytes }
    end

    def connection(at, seconds)
      found = @mutex.synchronize do
        if @pid != Process.pid # the parent's: not even closed, which would end its TLS sessions
          @idle = []
          @pid = Process.pid
        end
        index = @idle.rindex { |endpoint, _| endpoint == at }
        @idle.delete_at(index)[1] if index
      end
      found || dial(at, seconds)
    end

    def keep(at, http)
      @mutex.synchronize { @idle << [at, http] if @pid == Process.pid && @idle.size < 16 }
    end

    def dial(at, seconds)
      uri = @endpoints[at]
      http = Net::HTTP.new(uri.hostname, uri.port, nil) # no proxy
      http.open_timeout = connect_limit(seconds)
      http.max_retries = 0
      http.keep_alive_timeout = 30
      if uri.scheme == "https"
        http.use_ssl = true
        http.min_version = OpenSSL::SSL::TLS1_2_VERSION
        @tls.call(http)
      end
      http.start
    end

    # A limit may need one more thread, which nobody gets when the program is ending.
    def connect_limit(seconds) = (seconds unless Ending.now?)

    def parse(endpoint)
      uri = URI.parse(endpoint.to_s.include?("://") ? endpoint.to_s : "http://#{endpoint}")
      return uri if uri.is_a?(URI::HTTP) && !uri.hostname.to_s.empty?

      raise RefusedError, "the endpoint #{endpoint.inspect} is no URL like http://127.0.0.1:2379"
    rescue URI::InvalidURIError
      raise RefusedError, "the endpoint #{endpoint.inspect} is no URL like http://127.0.0.1:2379"
    end

    # Sets up the TLS of a connection. The files are read again for each, so that certificates can be replaced.
    def tls(ca, cert, key)
      raise RefusedError, "a client certificate needs both cert and key" if cert.empty? != key.empty?

      setup = lambda do |http|
        http.ca_file = ca unless ca.empty?
        unless cert.empty?
          http.cert = OpenSSL::X509::Certificate.new(File.read(cert))
          http.key = OpenSSL::PKey.read(File.read(key))
        end
      end
      File.read(ca) unless ca.empty?
      setup.call(Net::HTTP.new("localhost"))
      setup
    rescue SystemCallError, OpenSSL::OpenSSLError => e
      raise RefusedError, "the certificate files cannot be used: #{e.message}"
    end
  end

  # Something to wait for that other threads ring.
  class Bell
    def initialize
      @mutex = Mutex.new
      @ringing = ConditionVariable.new
      @rung = false
    end

    def ring
      @mutex.synchronize do
        @rung = true
        @ringing.broadcast
      end
    end

    # Waits until somebody rings, for so many seconds at most; whether somebody did.
    def wait(seconds)
      till = Clock.now + seconds
      @mutex.synchronize do
        @ringing.wait(@mutex, [till - Clock.now, 0.001].max) until @rung || Clock.now >= till
        @rung.tap { @rung = false }
      end
    end
  end

  # A watch of some keys in a thread of its own, until it is closed or breaks. It rings the bell for each event that the
  # block lets through, and when it breaks.
  class Watch
    SILENCE = 60 # seconds after which a quiet stream counts as broken

    # What is watched: a list of [key] or [key, end of a range].
    attr_reader :keys

    def initialize(gateway, keys, bell, &wanted)
      @gateway = gateway
      @keys = keys
      @bell = bell
      @wanted = wanted
      @pending = keys.size
      @ended = false
      @thread = Threads.start { run }
      @thread.report_on_exception = false
    end

    # Waits until etcd has confirmed the watch; whether it did.
    def confirmed?(seconds)
      till = Clock.now + seconds
      @bell.wait(0.5) until @pending <= 0 || @ended || Clock.now >= till
      standing?
    end

    def standing? = @pending <= 0 && !@ended

    # Ends the watch. A child of a fork leaves the connection to its parent.
    def close
      @thread.kill
      self
    end

    private

    def run
      bytes = @keys.map { |key, to| JSON.generate(create_request: range(key, to)) }.join("\n")
      http, request = @gateway.stream("/v3/watch", bytes, SILENCE)
      rest = +""
      http.request(request) do |response|
        response.read_body do |chunk|
          rest << chunk
          read(rest.slice!(0..rest.index("\n"))) while rest.include?("\n")
        end
      end
    rescue StandardError # whatever the server sent: whoever waits for the watch opens another
      @gateway.fail_over
    ensure
      @ended = true
      @bell.ring
      @gateway.close(http) if http
    end

    def range(key, to) = { key: [key].pack("m0"), range_end: ([to].pack("m0") if to) }.compact

    def read(line)
      result = JSON.parse(line)["result"] or raise IOError, line
      if result["canceled"]
        @gateway.log_out if result["cancel_reason"].to_s.match?(/Unauthenticated|invalid auth token|auth store/)
        raise IOError, result["cancel_reason"].to_s
      end
      if result["created"]
        @pending -= 1
        @bell.ring if @pending <= 0
      end
      events = (result["events"] || []).map { |event| [event["type"] || "PUT", Transactions.unb64(event["kv"]["key"])] }
      @bell.ring if events.any? { |type, key| @wanted.call(type, key) }
    end
  end
end
