# frozen_string_literal: true

module ClusterMutex
  # Threads in a program in which exceptions of other threads (Timeout, Thread#raise, Thread#kill) may come at any point.
  module Threads
    module_function

    # A thread that can be ended at once, although the one that starts it may defer that.
    def start(&work) = Thread.new { Thread.handle_interrupt(Object => :immediate, &work) }

    # Runs the block to its end, and returns its value. What another thread raises meanwhile comes afterwards. The block
    # has a thread of its own, because timeouts within it are such exceptions, too.
    def to_the_end(&work)
      Thread.handle_interrupt(Object => :never) do
        start(&work).tap { |thread| thread.report_on_exception = false }.value
      end
    end
  end
end
