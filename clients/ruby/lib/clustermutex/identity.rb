# frozen_string_literal: true

require "socket"

module ClusterMutex
  # The identity of this process, so that a witness can prove its death, and its place in the code. What cannot be read
  # is left out, never guessed.
  module Identity
    FRAMES = 30
    LIBRARY = "#{__dir__}/".freeze
    INITIAL_TIME = "time:[4026531834]" # the initial time namespace

    module_function

    # The members of the record that identify this process. A fork has its own.
    def members
      @members = nil unless @pid == Process.pid
      @pid = Process.pid
      @members ||= { "hostname" => Text.cut(Socket.gethostname, 1024), "pid" => @pid }.merge(machine, pod).freeze
    end

    # The uuids of the holds under which this process runs, as +mutexctl run+ passes them, for a ticket.
    def under
      words = "#{ENV.fetch("MUTEX_UNDER", "")} #{ENV.fetch("MUTEX_UUID", "")}".scrub.split
      uuids = words.grep(/\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\z/).uniq.first(16)
      uuids.empty? ? {} : { under: uuids.join(" ") }
    end

    # The call stack outside this library, newest frame first, one "FILE:LINE in FUNCTION" per line.
    def backtrace
      frames = caller_locations(1, FRAMES * 2).reject do |frame|
        (frame.absolute_path || frame.path).to_s.start_with?(LIBRARY, "<internal:", "#{LIBRARY.chomp("/")}.rb")
      end
      lines = frames.first(FRAMES).map do |frame|
        "#{frame.absolute_path || frame.path}:#{frame.lineno} in #{frame.label}"
      end
      cut(lines.join("\n").scrub)
    end

    # Cuts at the end of a line, and marks the cut.
    def cut(text, limit = 16_384)
      return text if text.bytesize <= limit

      "#{Text.cut(text, limit - 9).rpartition("\n").first}\n... cut\n"
    end

    def machine
      boot = name(read("/proc/sys/kernel/random/boot_id")&.strip) or return {}
      namespace = read("/proc/self/ns/pid", :readlink).to_s[/\Apid:\[(\d+)\]\z/, 1]&.to_i
      time = read("/proc/self/ns/time", :readlink)
      start = read("/proc/self/stat").to_s.rpartition(")").last.split[19]&.to_i # field 22; names may contain spaces
      start = nil unless namespace && [nil, INITIAL_TIME].include?(time)
      { "boot_id" => boot, "process_start" => start, "pid_namespace" => namespace }.compact
    end

    def pod
      found = { "pod_namespace" => "POD_NAMESPACE", "pod_name" => "POD_NAME", "pod_uid" => "POD_UID",
                "container" => "CONTAINER_NAME" }.transform_values { |variable| name(ENV.fetch(variable, nil)) }.compact
      found.key?("pod_uid") || found.key?("pod_name") ? found : {} # otherwise they are not from Kubernetes
    end

    # The text if it is a valid name, else nil: an odd environment variable must not fail a lock.
    def name(text) = text&.match?(/\A[A-Za-z0-9._-]{1,253}\z/) ? text : nil

    def read(file, how = :read)
      File.public_send(how, file)
    rescue SystemCallError
      nil
    end

    private_class_method :cut, :machine, :pod, :name, :read
  end
end
