"""Releases this process's locks and leaves its queues when it exits or an unhandled signal ends it.

From then on no thread takes another lock. What is slow is settled first; holds are released last, and then the process
ends, because its threads work on without their locks until it does.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from concurrent.futures import wait
from functools import partial
from types import FrameType
from typing import Any, Callable, Coroutine, Sequence

from .threads import beside
from .transport import clock, run

LIMIT = 2.0  # seconds for everything
Work = Callable[[float], Coroutine[Any, Any, None]]  # the argument is when to stop trying
SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT")


class Debt:
    """Something to be settled in etcd, at the latest when this process ends."""

    def __init__(self, work: Work, at_exit: bool, is_hold: Callable[[], bool] = lambda: False) -> None:
        self.pid = os.getpid()  # a forked child leaves it alone
        self.work = work
        self.is_hold = is_hold
        self._at_exit = at_exit
        self._open = False

    @property
    def open(self) -> bool:
        """Whether this process still has it to settle."""
        return self._open and self.pid == os.getpid()

    def begin(self) -> None:
        """Have it settled if the process ends before :meth:`end` is called."""
        self._open = True
        if self._at_exit:
            _debts.add(self)

    def end(self) -> None:
        self._open = False
        _debts.discard(self)

    def give_back(self, until: float) -> None:
        """Settle it in this thread, even if another thread was interrupted at it or is still at it."""
        try:
            if clock() < until:
                run(self.work(until))
        except Exception:  # no caller is left to handle it
            pass


_debts: set[Debt] = set()
_ending = 0  # the process that is ending; a forked child is another one
_install = threading.Lock()
_installed = False


def install() -> None:
    """Register for the exit of this process and for signals that the application does not handle."""
    global _installed
    with _install:
        if not _installed:
            atexit.register(give_back)
        _installed = True
    if threading.current_thread() is not threading.main_thread():
        return
    for name in SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            try:
                signal.signal(number, _by_signal)
            except ValueError:  # the main thread of another interpreter
                return


def ending() -> bool:
    """Report whether this process is ending, so that nothing may be taken any more.

    Whoever takes a lock begins its debt first and asks then, so that a lock is either not taken or given back.
    """
    return _ending == os.getpid()


def give_back() -> None:
    """Settle all debts of this process: first, for half of the time, those that are not holds; then the holds."""
    global _ending
    _ending = os.getpid()
    debts = [debt for debt in list(_debts) if debt.pid == _ending]
    holds = [debt for debt in debts if debt.is_hold()]
    _settle([debt for debt in debts if debt not in holds], LIMIT / 2 if holds else LIMIT)
    _settle(holds, LIMIT / 2)


def _settle(debts: Sequence[Debt], limit: float) -> None:
    """Settle debts in parallel, each in a thread of its own.

    The thread that the signal interrupted may be holding a lock of ours.
    """
    until = clock() + limit
    wait([beside(partial(debt.give_back, until)) for debt in debts], limit)


def _by_signal(number: int, frame: FrameType | None) -> None:
    """Release everything, then let the signal end the process."""
    signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
    give_back()
    os.kill(os.getpid(), number)
