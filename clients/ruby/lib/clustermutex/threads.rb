# frozen_string_literal: true

module ClusterMutex
  # Threads that cope with exceptions from other threads (Timeout, Thread#raise, Thread#kill), which may arrive at any
  # point.
  module Threads
    module_function

    # Starts a thread that can be interrupted at any time, even if the caller defers interrupts. Returns once it runs,
    # so that its ensure block will run, too. Returns nil if the program is ending.
    def start(&work)
      Thread.handle_interrupt(Object => :never) do
        begun = Queue.new
        thread = Thread.new { (begun << true) && Thread.handle_interrupt(Object => :immediate, &work) }
        begun.pop && thread
      end
    rescue ThreadError
      nil
    end

    # Runs the block to its end, or until +till+ (by Clock.now), and returns its value. Exceptions from other threads
    # are deferred until then. The block has a thread of its own, because timeouts within it are such exceptions, too.
    # It uses Thread.start because Thread.new raises while the program is ending.
    def to_the_end(till = nil, &work)
      Thread.handle_interrupt(Object => :never) do
        thread = Thread.start { Thread.handle_interrupt(Object => :immediate, &work) }
        thread.report_on_exception = false
        thread.join(till && [till - Clock.now, 0].max) || thread.kill
        thread.value
      end
    end
  end

  # The end of the program: after everything else, including at_exit blocks, Ruby ends all threads. This library's
  # threads then release what the process holds, except after kill -9 or exit!, or in a fork.
  module Ending
    SECONDS = 2 # for everything together

    module_function

    # Whether the threads are being ended.
    def now? = !Thread.main.alive?

    # When everything must be released, by Clock.now; nil unless the program is about to end, maybe because of this
    # error. An exit that was rescued no longer counts.
    def till(error = nil)
      return unless now? || error.is_a?(SystemExit) || error.is_a?(SignalException)

      now = Clock.now
      @till = now + SECONDS unless @till && now < @till + SECONDS
      @till
    end
  end
end
