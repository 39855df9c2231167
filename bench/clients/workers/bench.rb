# frozen_string_literal: true

# Takes and releases a lock as often as each line of standard input says, and prints the microseconds of each.

require "clustermutex"

$stdout.sync = true
locks = ClusterMutex::Client.new(ARGV.fetch(0), owner: "bench")
$stdin.each_line do |line|
  took = Array.new(line.to_i) do
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    locks.lock("bench/ruby") {} # rubocop:disable Lint/EmptyBlock
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - began
  end
  puts took.join(" ")
end
