"""What this process has is given back when it ends: at its exit, and by a signal that nobody handles."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from concurrent.futures import wait
from functools import partial
from types import FrameType
from typing import Optional, Protocol, Set

from .threads import beside
from .transport import clock

LIMIT = 2.0  # seconds for all of it
SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT")


class Owned(Protocol):
    """Something in etcd that belongs to this process."""

    pid: int  # of the process that took it: a forked child leaves it alone

    def give_back(self, until: float) -> None: ...  # blocks until that instant of clock(), and raises nothing


_owned: Set[Owned] = set()
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


def add(one: Owned) -> None:
    """Give this back, should the process end before :func:`discard`."""
    _owned.add(one)


def discard(one: Owned) -> None:
    _owned.discard(one)


def give_back() -> None:
    """Give everything back that this process has, in parallel, in threads of their own.

    Whatever this one was doing when the signal came, it may hold a lock.
    """
    until = clock() + LIMIT
    wait([beside(partial(one.give_back, until)) for one in list(_owned) if one.pid == os.getpid()], LIMIT)


def _by_signal(number: int, frame: Optional[FrameType]) -> None:
    """End as the signal would have done, a moment later."""
    signal.signal(number, signal.SIG_DFL)  # a second one waits for nothing
    give_back()
    os.kill(os.getpid(), number)
