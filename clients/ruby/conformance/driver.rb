# frozen_string_literal: true

# Takes locks for the conformance suite: requests on stdin, answers and events on stdout, one JSON object per line.

$LOAD_PATH.unshift File.expand_path("../lib", __dir__)
require "clustermutex"

# The driver.
class Driver
  Cancelled = Class.new(StandardError)
  Failed = Class.new(StandardError)

  def initialize
    @output = Mutex.new
    @mutex = Mutex.new
    @locks = {}
    @acquiring = {}
    @transactions = ClusterMutex::Transactions.new("/mutexes/")
    $stdout.sync = true
  end

  def run
    $stdin.each_line do |line|
      request = JSON.parse(line)
      case request["do"]
      when "open" then answer(request) # before what follows
      when "acquire" then acquire_apart(request)
      when "end" then request["how"] == "exit" ? exit : raise("as it was asked to")
      else Thread.new { answer(request) }
      end
    end
    exit!(0)
  end

  private

  # In a thread that can be cancelled.
  def acquire_apart(request)
    @mutex.synchronize { @acquiring[request["id"]] = Thread.new { answer(request) } }
  end

  def answer(request)
    say({ id: request["id"] }.merge(send(:"do_#{request["do"]}", request)))
  rescue Cancelled then fail_with(request, "cancelled", "given up")
  rescue ClusterMutex::WaitTimeoutError => e then fail_with(request, "timeout", e.message, held(e))
  rescue ClusterMutex::HeldError => e then fail_with(request, "held", e.message, held(e))
  rescue ClusterMutex::LostError => e then fail_with(request, "lost", e.message, { reason: e.reason })
  rescue ClusterMutex::RefusedError => e then fail_with(request, "refused", e.message)
  rescue ClusterMutex::UnavailableError => e then fail_with(request, "unavailable", e.message)
  rescue StandardError => e then fail_with(request, "broken", e.full_message(highlight: false))
  end

  def say(object) = @output.synchronize { $stdout.puts(JSON.generate(object)) }

  def fail_with(request, error, message, more = {})
    say({ id: request["id"], error:, message: }.merge(more))
  end

  def held(error)
    facts = %w[uuid owner hostname purpose].to_h { |name| [name, error.holder.public_send(name)] } if error.holder
    { holder: facts, waiting: error.waiting, delayed: !error.delay.nil? }
  end

  KINDS = %w[semaphore read-write together once back leader reserve].freeze

  def do_info(_) = { client: "ruby/#{ClusterMutex::VERSION}", levels: %w[basic queue kinds], kinds: KINDS }

  def do_open(request)
    options = %w[user password ca cert key].to_h { |name| [name.to_sym, request[name]] }
    @client = ClusterMutex::Client.new(request["endpoints"], prefix: request["prefix"] || "/mutexes/",
                                                             owner: request["owner"] || "driver",
                                                             timeout: request["timeout"] || 5.0, **options)
    {}
  end

  def do_acquire(request)
    options = { wait: request["wait"], attributes: request["attributes"] || {}, purpose: request["purpose"],
                heartbeat: request["heartbeat"] || false, **durations(request) }
    lock, first = take(request, options)
    number = Thread.handle_interrupt(Object => :never) do
      @mutex.synchronize do
        @acquiring.delete(request["id"])
        (@locks.size + 1).tap { |free| @locks[free] = lock }
      end
    end
    first.on_lost { |error| say(event: "lost", lock: number, reason: error.reason) }
    first.on_asked { |asked| say(event: "asked", lock: number, by: asked.by, reason: asked.reason) }
    { lock: number, uuid: first.uuid, token: first.token }
  ensure
    @mutex.synchronize { @acquiring.delete(request["id"]) }
  end

  # The lock, or all of several; and the first of them.
  def take(request, options)
    options.merge!(kind(request))
    if request["names"]
      own = (request["own"] || {}).transform_values { |one| kind(one) }
      locks = @client.lock_all(*(request["names"] - own.keys), **own, **options)
      return locks, locks.all.first
    end
    return [@client.lock(request["name"], **options)] * 2 unless request["life"]

    [@client.campaign(request["name"], life: request["life"], address: request["address"])] * 2
  end

  def kind(request)
    case request["kind"]
    when "semaphore" then { semaphore: request["limit"], weight: request["weight"] || 1 }
    when String then { request["kind"].to_sym => true }
    else {}
    end
  end

  def do_once(request)
    token = nil
    options = { retry_on_error: request["fails"], **durations(request) }
    work = lambda do |lock|
      token = lock.token
      sleep(request["hold"])
      raise Failed if request["fails"]
    end
    ran = if request["tick"]
            @client.once_at(request["name"], request["tick"], **options, &work)
          else
            @client.once_per(request["name"], request["every"], offset: request["offset"], **options, &work)
          end
    { ran:, token: }
  rescue Failed
    { ran: true, token: }
  end

  def do_reserve(request)
    @client.reserve(request["name"], request["purpose"], request["auto_unlock_after"], wait: 0).to_h
  end

  def do_adopt(request)
    lock = @client.adopt(request["name"], request["uuid"])
    number = @mutex.synchronize { (@locks.size + 1).tap { |free| @locks[free] = lock } }
    { lock: number, uuid: lock.uuid, token: lock.token }
  end

  def durations(request) = request.slice("alert_after", "auto_unlock_after").transform_keys(&:to_sym)

  def lock(request) = @mutex.synchronize { @locks.fetch(request["lock"]) }

  def do_alive(request)
    lock(request).alive!(request["progress"], **durations(request))
    {}
  end

  def do_release(request)
    lock(request).release
    {}
  end

  def do_check(request)
    held = lock(request)
    asked = held.asked
    { lost: held.lost, asked: asked && { by: asked.by, reason: asked.reason } }
  end

  def do_cancel(request)
    @mutex.synchronize { @acquiring.delete(request["request"])&.raise(Cancelled) }
    {}
  end

  def do_document(request)
    value = request["value_base64"]&.unpack1("m") || request["value"]
    found = case request["kind"]
            when "request", "extension" then ClusterMutex::Document.of_hold(value, request["uuid"], request["token"])
            when "ending" then ClusterMutex::Document.ending(value, request["token"])
            when "delay" then ClusterMutex::Document.delay(value, request["lock"]) || {}
            else return { error: "unsupported", message: "this client does not read it" }
            end
    { decoded: found&.slice("by", "reason", "source", "seconds", "ended", "why", "owner", "hostname")&.compact }
  end

  def do_segment(request)
    { segment: ClusterMutex::Name.segment(request["name_base64"]&.unpack1("m") || request["name"]) }
  end

  def do_name(request) = { name: ClusterMutex::Name.of(request["segment"]) }

  def do_time(request)
    time = ClusterMutex::Clock.parse(request["text"]) or raise ClusterMutex::RefusedError, "no time"
    { seconds: time.to_i.to_s, nanoseconds: time.nsec }
  end

  def do_decode(request)
    keys = request["fields"].map do |field|
      { key: @transactions.field("any", field["name"]), created: 7, modified: field["mod_revision"] || 7,
        value: field["value_base64"]&.unpack1("m") || field["value"] }
    end
    fields, token = @transactions.fields("any", keys)
    holder = ClusterMutex::Holder.new(fields, token)
    { decoded: holder.facts, malformed: holder.malformed? }
  end

  def do_transaction(request)
    { body: @transactions.body(request["step"], request["input"].transform_keys(&:to_sym)) }
  end

  def do_verdict(request)
    input = request["input"].transform_keys(&:to_sym)
    found = @transactions.verdict(request["step"], input, request["answer"])
    if found[:verdict] == :refused
      found[:holder] = { uuid: found[:holders].all.first&.uuid }
      found[:delayed] = !found[:holders].delay_for(**input.slice(:kind, :limit, :weight)).nil?
    end
    found = found.slice(:verdict, :token, :reason, :position, :before, :watch, :restore, :older, :doubt, :delayed,
                        :holder, :share).compact
    %i[token position].each { |name| found[name] = found[name].to_s if found[name] }
    found
  end
end

Driver.new.run
