# frozen_string_literal: true

module ClusterMutex
  # Threads in a program in which an exception of another thread (Timeout, Thread#raise, Thread#kill) may come at any
  # point.
  module Threads
    module_function

    # A thread that can be ended at once, although the one that starts it may defer that. It has begun, so that its
    # ensure is run, too. nil when the program is ending.
    def start(&work)
      Thread.handle_interrupt(Object => :never) do
        begun = Queue.new
        thread = Thread.new { (begun << true) && Thread.handle_interrupt(Object => :immediate, &work) }
        begun.pop && thread
      end
    rescue ThreadError
      nil
    end

    # Runs the block to its end, or until +till+ (by Clock.now), and returns its value. What another thread raises
    # meanwhile comes afterwards. The block has a thread of its own: timeouts within it are such exceptions, too.
    # Thread.start, because Thread.new is refused when the program is ending.
    def to_the_end(till = nil, &work)
      Thread.handle_interrupt(Object => :never) do
        thread = Thread.start { Thread.handle_interrupt(Object => :immediate, &work) }
        thread.report_on_exception = false
        thread.join(till && [till - Clock.now, 0].max) || thread.kill
        thread.value
      end
    end
  end

  # The end of the program: when everything else is done, its at_exit blocks included, Ruby ends all threads. Those of
  # this library then give back what the process holds. That is not so after a kill -9 or exit!, nor in a fork.
  module Ending
    SECONDS = 2 # for everything together

    module_function

    # Whether the threads are being ended.
    def now? = !Thread.main.alive?

    # Until when everything has to be given back, by Clock.now; nil unless the program is about to end, maybe because of
    # this error. An end that was rescued counts no more.
    def till(error = nil)
      return unless now? || error.is_a?(SystemExit) || error.is_a?(SignalException)

      now = Clock.now
      @till = now + SECONDS unless @till && now < @till + SECONDS
      @till
    end
  end
end
