.PHONY: client-ruby
client-ruby: ## the Ruby client: lint, signatures, tests, gem, README on a real etcd (installs from Debian what is missing)
	clients/ruby/check
