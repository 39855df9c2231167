# frozen_string_literal: true

# A job of the demo, in Ruby: a newsletter goes to all customers, in batches.

require "clustermutex"

BATCHES = 20

def send_batch(_number, pace) = sleep(4 * pace)

def send_newsletter(locks, pace)
  locks.lock("newsletter/autumn", purpose: "autumn newsletter to all customers", alert_after: 60,
                                  attributes: { "template" => "autumn-2026", "recipients" => 40_000 }) do |lock|
    1.upto(BATCHES) do |number|
      send_batch(number, pace)
      lock.alive!("#{number * 2000} of 40000 sent")
    end
  end
end

def end_with_mutexdev(job)
  $stdin.read # which ends when mutexdev does, however that ends
  job.raise(SystemExit) # which leaves the block, so the lock is released
  sleep 3
  exit!(1)
end

endpoint, speed = ARGV
pace = 1 / Float(speed)
job = Thread.current
Thread.new { end_with_mutexdev(job) }
locks = ClusterMutex::Client.new(endpoint, owner: "crm")
loop do
  begin
    send_newsletter(locks, pace)
  rescue ClusterMutex::LostError => e # somebody forced the unlock, say
    warn e.message
  end
  sleep 4 * pace
end
