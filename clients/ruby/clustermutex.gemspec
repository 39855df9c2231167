# frozen_string_literal: true

require_relative "lib/clustermutex/version"

Gem::Specification.new do |gem|
  gem.name = "clustermutex"
  gem.version = ClusterMutex::VERSION
  gem.summary = "Distributed locks in etcd that show who holds them, where, since when and what for"
  gem.description = "Takes locks of the unlocker protocol over etcd's JSON gateway, with the standard library only: " \
                    "fair queues, fencing tokens, progress, notice of a loss. Safe for threads, timeouts and fork."
  gem.authors = ["The unlocker authors"]
  gem.license = "Apache-2.0"
  gem.homepage = "https://github.com/clustermutex/unlocker"
  gem.metadata = {
    "source_code_uri" => "#{gem.homepage}/tree/main/clients/ruby",
    "changelog_uri" => "#{gem.homepage}/blob/main/CHANGELOG.md",
    "rubygems_mfa_required" => "true"
  }
  gem.required_ruby_version = ">= 3.1"
  gem.files = Dir.chdir(__dir__) { Dir["lib/**/*.rb", "sig/**/*.rbs", "README.md", "RECIPES.md", "LICENSE"] }
end
