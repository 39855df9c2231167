"""What this process has is given back when it ends: at its exit, and by a signal that nobody handles."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from concurrent.futures import wait
from functools import partial
from types import FrameType
from typing import Any, Callable, Coroutine, Optional, Set

from .threads import beside
from .transport import clock, run

LIMIT = 2.0  # seconds for all of it
Work = Callable[[float], Coroutine[Any, Any, None]]  # is told when to stop trying
SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT")


class Debt:
    """Something that is to be settled in etcd, at the latest when this process ends."""

    def __init__(self, work: Work, at_exit: bool) -> None:
        self.pid = os.getpid()  # a forked child leaves it alone
        self.work = work
        self._at_exit = at_exit

    def begin(self) -> None:
        """Settle it should the process end before :meth:`end`."""
        if self._at_exit:
            _debts.add(self)

    def end(self) -> None:
        _debts.discard(self)

    def give_back(self, until: float) -> None:
        """Settle it in this thread, while whoever was at it stands still or goes on."""
        try:
            if clock() < until:
                run(self.work(until))
        except Exception:  # nobody is left to be told
            pass


_debts: Set[Debt] = set()
_install = threading.Lock()
_installed = False


def install() -> None:
    """Act on the end of this process, and on signals that the application does nothing about."""
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


def give_back() -> None:
    """Give everything back that this process has, in parallel, in threads of their own.

    Whatever this one was doing when the signal came, it may hold a lock.
    """
    until = clock() + LIMIT
    wait([beside(partial(one.give_back, until)) for one in list(_debts) if one.pid == os.getpid()], LIMIT)


def _by_signal(number: int, frame: Optional[FrameType]) -> None:
    """End as the signal would have done, a moment later."""
    signal.signal(number, signal.SIG_DFL)  # a second one waits for nothing
    give_back()
    os.kill(os.getpid(), number)
