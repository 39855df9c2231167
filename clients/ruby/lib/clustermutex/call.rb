# frozen_string_literal: true

module ClusterMutex
  # One call to etcd, which may take several requests: its deadline, and the latest failure of each endpoint.
  class Call
    SHORTEST = 0.1 # minimum seconds for a request
    MISTRUST = /certificate verify failed(?: \((.*)\))?|hostname .* does not match.*/
    EXPIRED = /alert certificate expired/ # etcd's answer to a client certificate

    attr_reader :till
    attr_accessor :logged_in

    # Whether there is no time left for another request.
    def self.over?(till) = Clock.now >= till - SHORTEST

    # An exception as members of a failed answer.
    def self.cause(error, seconds, timeout)
      case error
      when Net::OpenTimeout, Net::ReadTimeout, Net::WriteTimeout
        { "error" => "no answer in #{seconds.round(1)} s", "hurried" => seconds < timeout }
      when OpenSSL::SSL::SSLError
        return { "error" => "etcd refuses the client certificate: it has expired" } if EXPIRED.match?(error.message)

        found = MISTRUST.match(error.message)
        { "error" => found ? found[1] || found[0] : error.message, "untrusted" => !found.nil? }
      else
        { "error" => error.message }
      end
    end

    def initialize(endpoints, till)
      @endpoints = endpoints
      @till = till
      @causes = {}
    end

    # Records a failed answer. Silence in a hurry says less than an earlier failure.
    def failed(answer, found)
      return if answer["hurried"] && @causes.key?(answer["at"])

      @causes[answer["at"]] = answer.merge("error" => Text.plain(answer["error"] || words(answer, found), 200))
    end

    # Raises UnavailableError if the call is over, RefusedError once no endpoint has a trusted certificate.
    def give_up_when_over
      raise RefusedError, said("; ") if @causes.size == @endpoints.size && untrusted?
      return unless Call.over?(@till)
      raise RefusedError, said("; ") if !@causes.empty? && untrusted?

      raise UnavailableError, "etcd did not answer: #{said("; ")}"
    end

    private

    def untrusted? = @causes.values.all? { |cause| cause["untrusted"] }

    def words(answer, found)
      status = "HTTP #{answer["status"]}"
      found[:message].to_s.empty? ? "#{status}, which is not an answer from etcd" : "#{status}: #{found[:message]}"
    end

    # In the order of the endpoints.
    def said(between)
      @causes.sort.map do |at, cause|
        next "the certificate of #{@endpoints[at]} is not trusted: #{cause["error"]}" if cause["untrusted"]

        "#{@endpoints[at]}: #{cause["error"]}"
      end.join(between)
    end
  end
end
