# frozen_string_literal: true

require_relative "clustermutex/version"
require_relative "clustermutex/errors"
require_relative "clustermutex/record"
require_relative "clustermutex/transactions"
