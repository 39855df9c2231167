# frozen_string_literal: true

require "json"
require_relative "clustermutex/version"
require_relative "clustermutex/errors"
require_relative "clustermutex/threads"
require_relative "clustermutex/document"
require_relative "clustermutex/record"
require_relative "clustermutex/kinds"
require_relative "clustermutex/queue_steps"
require_relative "clustermutex/shares"
require_relative "clustermutex/job_steps"
require_relative "clustermutex/verdicts"
require_relative "clustermutex/transactions"
require_relative "clustermutex/endpoint"
require_relative "clustermutex/call"
require_relative "clustermutex/gateway"
require_relative "clustermutex/watch"
require_relative "clustermutex/identity"
require_relative "clustermutex/session"
require_relative "clustermutex/settings"
require_relative "clustermutex/work"
require_relative "clustermutex/client"
require_relative "clustermutex/attempt"
require_relative "clustermutex/lock"
require_relative "clustermutex/handover"
require_relative "clustermutex/together"
require_relative "clustermutex/periods"

# Distributed locks in etcd that show who holds them, where, since when and what for.
module ClusterMutex
  private_constant :Attempt, :Bell, :Call, :Chores, :Ending, :Endpoint, :Gateway, :Handover, :Holders, :Identity, :Job,
                   :JobSteps, :Need, :QueueSteps, :Reading, :Record, :Session, :Settings, :Shares, :Threads, :Together,
                   :Verdicts, :Watch, :Work
end
