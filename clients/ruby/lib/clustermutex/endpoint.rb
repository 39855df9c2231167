# frozen_string_literal: true

module ClusterMutex
  # The address of an etcd member: host, host:port or http(s)://host:port/path.
  class Endpoint
    FORM = %r{\A(?:(https?)://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(/[!-~&&[^?#@]]*)?\z}i
    PORT = 2379

    attr_reader :host, :port, :path, :authority

    def initialize(text)
      text = text.to_s
      raise RefusedError, "an endpoint must not contain a user or password: give them as user and password" if
        text.include?("@")

      scheme, host, port, path = FORM.match(text.b)&.captures
      @port = (port || PORT).to_i
      raise RefusedError, "endpoint #{text.inspect}: want http://HOST:PORT or https://HOST:PORT" unless
        host && @port.between?(1, 65_535)

      @tls = scheme&.downcase == "https"
      @host = host.delete("[]")
      @path = path.to_s.sub(%r{/+\z}, "")
      @authority = "#{host}:#{@port}"
      @text = "http#{"s" if @tls}://#{@authority}#{@path}"
    end

    def tls? = @tls
    def to_s = @text
  end
end
