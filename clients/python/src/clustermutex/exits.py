"""What this process has is given back when it ends: at its exit, and by a signal that nobody handles."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from types import FrameType
from typing import Optional, Protocol, Set

from .gateway import clock

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
    """Give everything back that this process has, in parallel."""
    until = clock() + LIMIT
    threads = [_beside(one, until) for one in list(_owned) if one.pid == os.getpid()]
    for thread in threads:
        if thread is not None:
            thread.join(max(until - clock(), 0))


def _beside(one: Owned, until: float) -> Optional[threading.Thread]:
    """Begin in a thread of its own: whatever this one was doing when the signal came, it may hold a lock."""
    thread = threading.Thread(target=one.give_back, args=(until,), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # since Python 3.12 there are no new ones at the exit
        if clock() < until:
            one.give_back(until)
        return None
    return thread


def _by_signal(number: int, frame: Optional[FrameType]) -> None:
    """End as the signal would have done, a moment later."""
    signal.signal(number, signal.SIG_DFL)  # a second one waits for nothing
    give_back()
    os.kill(os.getpid(), number)
