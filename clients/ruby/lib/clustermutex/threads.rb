# frozen_string_literal: true

module ClusterMutex
  # Threads in a program in which an exception of another thread (Timeout, Thread#raise, Thread#kill) may come at any
  # point.
  module Threads
    module_function

    # A thread that can be ended at once, although the one that starts it may defer that.
    # nil when the program is ending.
    def start(&work)
      Thread.new { Thread.handle_interrupt(Object => :immediate, &work) }
    rescue ThreadError
      nil
    end

    # Runs the block to its end, and returns its value. What another thread raises meanwhile comes afterwards. The block
    # has a thread of its own, because timeouts within it are such exceptions, too. Thread.start, because Thread.new is
    # refused when the program is ending.
    def to_the_end(&work)
      Thread.handle_interrupt(Object => :never) do
        thread = Thread.start { Thread.handle_interrupt(Object => :immediate, &work) }
        thread.report_on_exception = false
        thread.value
      end
    end
  end
end
