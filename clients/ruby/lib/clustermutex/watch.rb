# frozen_string_literal: true

module ClusterMutex
  # A bell that other threads can ring.
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

    # Waits up to +seconds+ for a ring. Returns whether it rang.
    def wait(seconds)
      till = Clock.now + seconds
      @mutex.synchronize do
        @ringing.wait(@mutex, [till - Clock.now, 0.001].max) until @rung || Clock.now >= till
        @rung.tap { @rung = false }
      end
    end
  end

  # Watches some keys in a thread of its own until it is closed or breaks. It rings the bell for each event that the
  # block accepts, and when it breaks.
  class Watch
    SILENCE = 60 # seconds after which a quiet stream counts as broken

    # ranges: a list of [key] or [key, end of a range].
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

    # Waits until etcd has confirmed the watch. Returns whether it did.
    def confirmed?(seconds)
      till = Clock.now + seconds
      @bell.wait(0.5) until @pending <= 0 || @ended || Clock.now >= till
      standing?
    end

    def standing? = @pending <= 0 && !@ended

    # Ends the watch. A forked child leaves the connection to its parent.
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
    rescue StandardError # the user of the watch opens another one
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
      events = (result["events"] || []).map { |event| [event["type"] || "PUT", Reading.unb64(event["kv"]["key"])] }
      @bell.ring if events.any? { |type, key| @wanted.call(type, key) }
    end
  end
end
