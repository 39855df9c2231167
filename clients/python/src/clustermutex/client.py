"""Locks for programs with threads: the protocol, run by calls that block."""

from __future__ import annotations

import asyncio
from contextlib import ContextDecorator, ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Awaitable, Callable, Mapping, Optional, Sequence, Type, TypeVar, Union

from . import exits
from .attempt import Attempt, holder
from .errors import LostError, MutexError
from .hold import Hold, Request
from .lock import Handle
from .loops import background
from .periods import give_period_back, take_period
from .record import Attribute, Record
from .session import Opened, Session, log
from .settings import PLAIN, Settings, leads, settle
from .threads import BlockingFlag, beside
from .together import Group
from .transport import run

LINGER = exits.LIMIT  # how long a program that was interrupted takes to leave the queue, at most

T = TypeVar("T")


class Client(Opened):
    """Takes locks. One client a process is enough; threads may share it.

    ``endpoints`` are URLs of etcd's members, a list or text with commas. ``owner`` names the program in the records;
    by default it is that of the running one. ``timeout`` is how many seconds a try may take, and one request before it
    is sent again, to the next endpoint. ``ca``, ``cert`` and ``key`` are files.

    What this process holds is released when it exits, and when it ends by SIGTERM, SIGINT or SIGHUP, if the application
    has no handler for that; ``release_at_exit=False`` switches that off.
    """

    _loop = background

    def lock(self, name: str, *, semaphore: Optional[int] = None, weight: int = 1, shared: bool = False,
             exclusive: bool = False, wait: Optional[float] = None, alert_after: Optional[float] = None,
             unlock_after: Optional[float] = None, margin: Optional[float] = None,
             heartbeat: Union[None, bool, float] = None, purpose: str = "",
             attributes: Optional[Mapping[str, Attribute]] = None,
             on_lost: Optional[Callable[[LostError], None]] = None,
             on_asked: Optional[Callable[[Request], None]] = None) -> Lock:
        """Return a lock, for ``with``, as a decorator, or for ``acquire`` and ``release``. Nothing is sent yet.

        All times are in seconds. ``wait``: 0 tries once, a number waits that long, None without limit.
        ``alert_after`` (300): how long the work takes on a bad day; then somebody is alerted. ``unlock_after`` (three
        times that): when the lock is taken from a silent holder. Both count from the acquisition, and again from each
        ``alive``. ``margin``: how long before that the hold counts as lost here, so that the work can stop; by default
        a tenth of it, at most 30. ``heartbeat``: extend in the background while the process lives, for so long at
        most, True for an hour; it does not postpone the alert, because being alive is not progress.

        ``semaphore``: take ``weight`` (1) of so many permits, which all callers should give alike. ``shared``: read,
        beside other readers; ``exclusive``: write, beside nobody, or take a whole semaphore. Without these the lock has
        one holder.

        ``on_lost(error)``, with the LostError, and ``on_asked(request)`` are called in threads of their own.
        """
        settings = settle(name, (semaphore, weight, shared, exclusive), wait, alert_after, unlock_after, margin,
                          heartbeat, purpose, attributes)
        return Lock(self._session, settings, on_lost, on_asked)

    def lock_all(self, *locks: Lock) -> Locks:
        """Return several locks to take together, all or none: ``with client.lock_all(client.lock("a"), …) as both:``.

        Up to 24 plain locks are taken in one transaction; more, other kinds, and whatever has to be waited for, one by
        one in the order of names. The shortest ``wait`` is that of all.
        """
        return Locks(self._session, locks)

    def campaign(self, name: str, *, life: float = 60.0, address: str = "", check: Optional[Callable[[], bool]] = None,
                 wait: Optional[float] = None, purpose: str = "", attributes: Optional[Mapping[str, Attribute]] = None,
                 on_lost: Optional[Callable[[LostError], None]] = None) -> Lock:
        """Return the lock of a leader: whoever holds it leads. It waits, then is kept alive until it is released.

        ``life``: how long the leadership outlasts the last sign of life. ``address``: where others reach this process,
        see :meth:`leader`. ``check``: while it does not return True, no sign of life is given.
        """
        settings = settle(name, PLAIN, wait, life, life, None, None, purpose, leads(address, attributes))
        waited_for = None if check is None else partial(_in_time, check)
        return Lock(self._session, replace(settings, leads=True, check=waited_for), on_lost, None)

    def leader(self, name: str) -> Optional[Record]:
        """Return who leads, None if nobody does: ``attributes`` have the ``address``."""
        return run(holder(self._session, name))


class Lock(Handle, ContextDecorator):
    """One lock of a :class:`Client`. It can be taken again after it was released, by one thread at a time."""

    def __init__(self, session: Session, settings: Settings, on_lost: Optional[Callable[[LostError], None]],
                 on_asked: Optional[Callable[[Request], None]]) -> None:
        super().__init__(session, settings)
        self._on_lost = on_lost
        self._on_asked = on_asked
        self._stop = BlockingFlag()

    def acquire(self) -> Lock:
        """Take the lock. A HeldError says who has it; it is a WaitTimeoutError after a wait."""
        try:
            run(self.take(self._stop))
        except (KeyboardInterrupt, SystemExit):
            self._session.linger(LINGER)
            raise
        finally:
            self._stop = BlockingFlag()
        return self

    def begin(self, attempt: Attempt) -> None:
        self._hold = Hold(attempt, _aside(self._on_lost), _aside(self._on_asked))
        self._hold.begin()

    def once_per(self, every: float, work: Callable[[Lock], object], *, offset: float = 0.0,
                 back_on_error: bool = False) -> bool:
        """Run work under the lock once in each period of so many seconds over all replicas; report whether this did.

        Periods are multiples of ``every`` since 1970 in UTC, later by ``offset``. False: the period is taken. A
        HeldError: somebody holds the lock, and the period is not used up. Otherwise it is when the work begins; with
        ``back_on_error``, work that raises gives it back, and the next call tries again.
        """
        if not run(take_period(self._session, self, self._stop, every, offset)):
            return False
        with ExitStack() as stack:
            stack.push(self)
            try:
                work(self)
            except BaseException:
                if back_on_error and self.hold.mine():
                    run(give_period_back(self.hold.attempt))
                raise
        return True

    def alive(self, progress: str = "", *, alert_after: Optional[float] = None,
              unlock_after: Optional[float] = None) -> None:
        """Report progress, which is shown with the lock, and extend both deadlines from now on.

        A LostError says that the hold is over. After an UnavailableError it stands until the deadline that it had.
        """
        run(self.hold.alive(progress, alert_after, unlock_after))

    def release(self) -> None:
        """Give the lock back. A LostError says that it had been lost before: the work may have run beside another's.

        After an UnavailableError the release goes on in the background. In a forked child it does nothing.
        """
        hold = self.hold
        if hold.mine():
            run(hold.release())

    def cancel(self) -> None:
        """Give up the wait in another thread, or the next one: ``acquire`` raises a CancelledError there."""
        self._stop.set()

    def __enter__(self) -> Lock:
        return self.acquire()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self.release()
        except MutexError as failed:
            if error is None:
                raise
            if not isinstance(failed, LostError):
                log.warning("%s, after the work failed", failed)

    def _recreate_cm(self) -> Lock:
        return Lock(self._session, self.settings, self._on_lost, self._on_asked)


class Locks(Group[Lock]):
    """Several locks, all or none, for ``with``, or for ``acquire`` and ``release``. Each has a token of its own."""

    def __init__(self, session: Session, locks: Sequence[Lock]) -> None:
        super().__init__(session, locks)
        self._stop = BlockingFlag()

    def acquire(self) -> Locks:
        """Take all of them, or none. The errors are those of :meth:`Lock.acquire`, of the one that was not taken."""
        try:
            run(self.take(self._stop))
        finally:
            self._stop = BlockingFlag()
        return self

    def alive(self, progress: str = "") -> None:
        """Report progress for each of them."""
        for lock in self.locks:
            lock.alive(progress)

    def release(self) -> None:
        """Give all of them back."""
        with ExitStack() as stack:
            for lock in self.locks:
                stack.callback(lock.release)

    def cancel(self) -> None:
        """Give up the wait in another thread."""
        self._stop.set()

    def __enter__(self) -> Locks:
        return self.acquire()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        with ExitStack() as stack:
            for lock in self.locks:
                stack.callback(lock.__exit__, kind, error, trace)


def _aside(callback: Optional[Callable[[T], object]]) -> Callable[[T], object]:
    """Have a callback take its time: meanwhile the locks are kept alive."""
    def call(what: T) -> None:
        try:
            if callback is not None:
                callback(what)
        except Exception:
            log.exception("a callback failed")

    return lambda what: beside(partial(call, what)) if callback is not None else None


def _in_time(check: Callable[[], bool]) -> Awaitable[bool]:
    return asyncio.wrap_future(beside(check))
