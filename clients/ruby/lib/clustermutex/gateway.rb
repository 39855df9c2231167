# frozen_string_literal: true

require "net/http"
require "openssl"

module ClusterMutex
  # etcd over HTTP: several endpoints with failover, TLS, login and its renewal, a deadline for every request, watches.
  # Thread-safe and fork-safe: a child opens its own connections and does not touch its parent's.
  class Gateway
    # What a request raises if the server is gone, hangs or does not speak HTTP.
    BROKEN = [SystemCallError, IOError, SocketError, OpenSSL::SSL::SSLError, Net::OpenTimeout, Net::ReadTimeout,
              Net::WriteTimeout, Net::ProtocolError, Net::HTTPBadResponse, Net::HTTPHeaderSyntaxError].freeze
    FAILED = { verdict: :resend }.freeze

    # Whether a request of an attempt is unanswered: it may have been applied, or may be later. Set before sending, so
    # that it is right even if an exception from another thread interrupts the wait for the answer.
    Doubt = Struct.new(:unanswered)

    # Raised if the lease of a request is gone.
    class LeaseGone < Error; end

    # Raised if etcd is out of space.
    class FullError < UnavailableError; end

    # A request sent in one write: Net::HTTP uses two, which wake etcd twice.
    class Post < Net::HTTP::Post
      def initialize(endpoint, path, bytes, token)
        super(path, { "Accept-Encoding" => "identity" })
        self.body = bytes
        @head = "POST #{endpoint.path}#{path} HTTP/1.1\r\nHost: #{endpoint.authority}\r\n" \
                "Content-Type: application/json\r\nContent-Length: #{bytes.bytesize}\r\n" \
                "Grpc-Metadata-hasleader: true\r\n#{"Authorization: #{token}\r\n" unless token.empty?}\r\n"
      end

      def exec(socket, *) = socket.write(@head + body)
    end

    # A connection that is kept. The next answer on it must be that to the next request.
    class Connection < Net::HTTP
      # Whether the server has neither closed it nor said anything unasked.
      def quiet?
        @socket.read_timeout = 0
        @socket.read(1)
        false
      rescue Net::ReadTimeout
        true
      rescue *BROKEN
        false
      end
    end

    # Seconds for one request.
    attr_reader :timeout

    def initialize(endpoints, user: nil, password: nil, ca: nil, cert: nil, key: nil, timeout: 5.0)
      @endpoints = Array(endpoints).map { |endpoint| Endpoint.new(endpoint) }
      raise RefusedError, "no etcd endpoint was given" if @endpoints.empty?

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

    # Omits the password.
    def inspect = "#<#{self.class} #{@endpoints.join(" ")}>"

    # Sends a step of the protocol, byte for byte the same, until an answer settles it, and returns the verdict. Raises
    # UnavailableError at +till+ (by Clock.now), RefusedError if etcd refuses.
    def settle(transactions, step, input, till:, doubt: Doubt.new)
      bytes = JSON.generate(transactions.body(step, input))
      request("/v3/kv/txn", bytes, till:, doubt:) do |answer, unanswered|
        transactions.verdict(step, input.merge(unanswered:), answer)
      end
    end

    # The same for a request other than a transaction. Returns the body of its answer.
    def call(path, body, till:)
      request(path, JSON.generate(body), till:, doubt: Doubt.new) do |answer|
        Transactions.error(answer) || { verdict: :done, body: answer["body"] }
      end[:body]
    end

    # One request and its answer, in the format of transactions.json. Never raises for a broken connection.
    def post(path, bytes, seconds)
      finish = Clock.now + seconds
      http = nil
      begin
        at = @current
        http = connection(at, seconds)
        http.read_timeout = http.write_timeout = [finish - Clock.now, 0.01].max
        http.open_timeout = connect_limit(http.read_timeout)
        response = http.request(message(at, path, bytes))
        kept = http
        http = nil
        keep(at, kept)
        answer(response, at)
      rescue *BROKEN => e
        fail_over(at)
        { "none" => true, "unsent" => http.nil?, "at" => at }.merge(Call.cause(e, seconds, @timeout))
      ensure
        close(http) if http
      end
    end

    # Opens a connection of its own for a watch, and sends the request.
    def stream(path, bytes, silence)
      log_in(@timeout)
      at = @current
      http = dial(at, @timeout)
      http.read_timeout = silence
      [http, message(at, path, bytes)]
    end

    def close(http)
      http.finish if http.started?
    rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
      nil
    end

    # How long one request may take in a call that ends at +till+.
    def seconds_of(till) = [[@timeout, (till - Clock.now) / 3.0].min, Call::SHORTEST].max

    # Switches to the next endpoint, unless that has already happened.
    def fail_over(from = @current)
      @mutex.synchronize { @current = (from + 1) % @endpoints.size if @current == from }
    end

    # Drops a token that is no longer valid.
    def log_out(token = @token)
      @token = nil if @token.equal?(token)
    end

    private

    def request(path, bytes, till:, doubt:, &judge)
      call = Call.new(@endpoints, till)
      (0..).each do |attempt|
        answer, found = log_in(seconds_of(till))
        token = @token
        answer, found = send_once(path, bytes, seconds_of(till), doubt, &judge) unless found
        case found[:verdict]
        when :login then expired(token, call, found)
        when :report then raise RefusedError, "etcd refuses: #{found[:message]}"
        when :lease then raise LeaseGone, found[:message]
        when :resend, :full then call.failed(answer, found)
        else return found
        end
        give_up_or_pause(attempt, call, answer, found)
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

    # A request is repeated once after a login.
    def expired(token, call, found)
      raise RefusedError, "etcd requires a login: #{found[:message]}" if @user.empty? || call.logged_in

      call.logged_in = true
      log_out(token)
    end

    def give_up_or_pause(attempt, call, answer, found)
      raise FullError, "etcd is out of space and accepts no writes" if found[:full] || found[:verdict] == :full

      call.give_up_when_over
      fail_over(answer["at"]) if answer["status"] && found[:verdict] != :login
      sleep([rand(0.5..1.0) * [0.05 * (2**[attempt, 5].min), 1].min, [call.till - Clock.now, 0].max].min)
    end

    def answer(response, at)
      answer = { "status" => response.code.to_i, "at" => at }
      text = response.body.to_s.dup.force_encoding("UTF-8").scrub("\uFFFD")
      answer.merge("body" => JSON.parse(text))
    rescue JSON::ParserError
      answer.merge("text" => text)
    end

    # Logs in if there is a user and no token. Returns nil, or the failure like +send_once+. One thread logs in while
    # the others wait.
    def log_in(seconds)
      return if @token || @user.empty?

      till = Clock.now + seconds
      sleep(0.01) until @login.try_lock || Clock.now >= till
      return [{ "at" => @current, "error" => "no login in #{seconds.round(1)} s" }, FAILED] unless @login.owned?

      send_login([till - Clock.now, 0.1].max) unless @token
    ensure
      @login.unlock if @login.owned?
    end

    def send_login(seconds)
      answer = post("/v3/auth/authenticate", JSON.generate(name: @user, password: @password), seconds)
      found = Transactions.error(answer)
      case [found&.fetch(:verdict), found&.fetch(:message)]
      in [nil, _] then @token = answer["body"]["token"].to_s.delete("\r\n")
      in [:report, /\Aetcdserver: authentication is not enabled/] then @token = ""
      in [:report, message] then raise RefusedError, "etcd refuses the login of #{@user.inspect}: #{message}"
      else return [answer, FAILED.merge(found.slice(:doubt, :message))]
      end
      nil
    end

    def message(at, path, bytes) = Post.new(@endpoints[at], path, bytes, @token.to_s)

    def connection(at, seconds)
      found = @mutex.synchronize do
        if @pid != Process.pid # the parent's: closing them would end its TLS sessions
          @idle = []
          @pid = Process.pid
        end
        index = @idle.rindex { |endpoint, _| endpoint == at }
        @idle.delete_at(index)[1] if index
      end
      return found if found&.quiet?

      close(found) if found
      dial(at, seconds)
    end

    def keep(at, http)
      @mutex.synchronize { @idle << [at, http] if @pid == Process.pid && @idle.size < 16 }
    end

    def dial(at, seconds)
      endpoint = @endpoints[at]
      http = Connection.new(endpoint.host, endpoint.port, nil) # no proxy
      http.open_timeout = connect_limit(seconds)
      http.max_retries = 0
      http.keep_alive_timeout = 30
      if endpoint.tls?
        http.use_ssl = true
        http.min_version = OpenSSL::SSL::TLS1_2_VERSION
        @tls.call(http)
      end
      http.start
    end

    # A timeout may need another thread, and none can be started while the program is ending.
    def connect_limit(seconds) = (seconds unless Ending.now?)

    # Sets up TLS for a connection. It reads the files every time, so that certificates can be replaced.
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
end
