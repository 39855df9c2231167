# frozen_string_literal: true

module ClusterMutex
  VERSION = "0.2.0"
end
