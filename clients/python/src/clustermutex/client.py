"""Locks for programs with threads: the protocol, run by blocking calls."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import wraps
from typing import Any, Callable, Mapping, Sequence, TypeVar, cast

from . import exits
from .attempt import Call, holder
from .handover import Reservation, reserving
from .hold import OnAsked, OnLost
from .lock import Group, Handle, after, check_done, check_eager
from .loops import background
from .periods import Ticks, give_tick_back, periods, scheduled, take_tick
from .record import Attribute, Record
from .session import Opened, Session
from .settings import Settings, leads, settle
from .threads import BlockingFlag
from .transport import run

F = TypeVar("F", bound=Callable[..., Any])

LINGER = exits.LIMIT  # the longest an interrupted program waits to leave the queue


class Client(Opened):
    """Takes locks. One client per process is enough; threads may share it.

    ``endpoints`` are the URLs of etcd's members, a list or a comma-separated string. ``owner`` names the program in its
    records; by default, the name of the running one. ``timeout`` is the seconds that one attempt may take, and also one
    request before it is sent again to the next endpoint. ``ca``, ``cert`` and ``key`` are file names.

    Locks that this process holds are released when it exits, and when SIGTERM, SIGINT or SIGHUP ends it and the
    application has no handler for the signal. ``release_at_exit=False`` turns this off.
    """

    _loop = background

    def lock(self, name: str, *, semaphore: int | None = None, weight: int = 1, shared: bool = False,
             exclusive: bool = False, wait: float | None = None, alert_after: float | None = None,
             auto_unlock_after: float | None = None, margin: float | None = None, heartbeat: bool | float | None = None,
             purpose: str = "", attributes: Mapping[str, Attribute] | None = None,
             on_lost: OnLost | None = None,
             on_asked: OnAsked | None = None) -> Lock:
        """Return a lock for ``with``, as a decorator, or for ``acquire`` and ``release``. Nothing is sent yet.

        All times are in seconds. ``wait``: 0 tries once, a number waits that long, None waits without limit.
        ``alert_after`` (300): how long the work takes on a bad day; after that, operators are alerted.
        ``auto_unlock_after`` (three times that): when a silent holder loses the lock. Both count from the acquisition,
        and again from each ``alive``. ``margin``: how long before the auto-unlock the hold counts as lost here, so that
        the work can stop; by default a tenth of that time, at most 30. ``heartbeat``: the longest time for which a
        live process extends the lock in the background; True means an hour. It does not postpone the alert, because
        being alive is not progress.

        ``semaphore``: take ``weight`` (1) of this many permits; all callers should pass the same number. ``shared``:
        read, together with other readers. ``exclusive``: write alone, or take a whole semaphore. Without any of these,
        the lock has one holder.

        ``on_lost(error)``, with the LostError, and ``on_asked(request)`` each run in a thread of their own.

        A signal handler that raises in the main thread (Ctrl-C, Celery's soft time limit) leaves no lock, except at the
        first instruction of ``__exit__``, where none of our code has run: that hold lasts until ``release``, the end of
        the process, or its deadline.
        """
        settings = settle(name, (semaphore, weight, shared, exclusive), wait, alert_after, auto_unlock_after, margin,
                          heartbeat, purpose, attributes)
        return Lock(self._session, settings, on_lost, on_asked)

    def lock_all(self, *locks: Lock) -> Locks:
        """Return several locks to be taken together: ``with client.lock_all(client.lock("a"), …) as both:``.

        All are taken or none. Up to 24 plain locks are taken in one transaction. If there are more, or other kinds, or
        if one is held, they are taken one by one in the order of their names. The shortest ``wait`` applies to all.
        """
        return Locks(self._session, locks)

    def reserve(self, name: str, reason: str, seconds: float, *, semaphore: int | None = None, weight: int = 1,
                shared: bool = False, exclusive: bool = False, wait: float | None = None,
                attributes: Mapping[str, Attribute] | None = None) -> Reservation:
        """Take the lock for that many seconds and leave it held, even after this process has ended.

        Another process releases or extends it: see :meth:`adopt`. Otherwise it is auto-unlocked when its time is up.
        ``reason`` is the purpose of the record.
        """
        while True:
            lock = self.lock(name, semaphore=semaphore, weight=weight, shared=shared, exclusive=exclusive, wait=wait,
                             alert_after=seconds, auto_unlock_after=seconds, purpose=reason, attributes=attributes)
            lock.settings = reserving(lock.settings)
            lock.acquire()
            if (left := lock.leave()) is not None:
                return left
            lock.release()

    def adopt(self, name: str, uuid: str, *, on_lost: OnLost | None = None, on_asked: OnAsked | None = None) -> Lock:
        """Return the lock with a hold that another process took: ``client.adopt(name, uuid).release()`` releases it.

        From then on the end of that process proves nothing. ``alive`` extends the hold by as much as its last writer
        did. Raises LostError if the lock has another holder, or none.
        """
        lock = self.lock(name, on_lost=on_lost, on_asked=on_asked)
        run(lock.adopt(uuid, lock.call(BlockingFlag(), self._session.gateway.timeout)))
        return lock

    def campaign(self, name: str, *, life: float = 60.0, address: str = "", check: Callable[[], bool] | None = None,
                 wait: float | None = None, purpose: str = "", attributes: Mapping[str, Attribute] | None = None,
                 on_lost: OnLost | None = None) -> Lock:
        """Return a lock whose holder is the leader. It waits its turn, then is kept alive until it is released.

        ``life``: how long leadership outlasts the last sign of life. ``address``: where others reach this process, see
        :meth:`leader`. ``check``: while it does not return True, no sign of life is given.
        """
        lock = self.lock(name, wait=wait, alert_after=life, auto_unlock_after=life, purpose=purpose,
                         attributes=leads(address, attributes), on_lost=on_lost)
        lock.settings = replace(lock.settings, leads=True, check=check)
        return lock

    def leader(self, name: str) -> Record | None:
        """Return the leader's record, with its ``address`` in ``attributes``, or None if there is no leader."""
        return run(holder(self._session, name))


class Lock(Handle):
    """One lock of a :class:`Client`. One thread at a time may use it; it can be taken again after its release."""

    def __init__(self, session: Session, settings: Settings, on_lost: OnLost | None, on_asked: OnAsked | None) -> None:
        super().__init__(session, settings, on_lost, on_asked)
        self._stop = BlockingFlag()

    def acquire(self) -> Lock:
        """Take the lock. Raises HeldError, which says who holds it, or after a wait its subclass WaitTimeoutError."""
        call = self.call(self._stop)
        try:
            run(self.take(call))
            self._stop = BlockingFlag()
            return self
        except BaseException as error:
            self._stop = BlockingFlag()
            self._undo(call, error)
            raise

    __enter__ = acquire  # not a function that calls it: a signal handler may raise an exception between the two

    def _undo(self, call: Call, error: BaseException) -> None:
        self.undo(call)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._session.linger(LINGER)

    def once_per(self, every: float, work: Callable[[Lock], object], *, offset: float = 0.0,
                 retry_on_error: bool = False) -> bool:
        """Run work under the lock once per period of ``every`` seconds among all replicas; report whether it ran here.

        Periods are multiples of ``every`` since 1970 in UTC, shifted by ``offset``. Return False if the period is
        taken. Raise HeldError if another process holds the lock; that does not use up the period. Otherwise the period
        is used up when the work begins. With ``retry_on_error``, work that raises gives it back for the next call.
        """
        return self._once(periods(every, offset), work, retry_on_error)

    def once_at(self, tick: datetime | float, work: Callable[[Lock], object], *, retry_on_error: bool = False) -> bool:
        """Run work under the lock once for this tick of a schedule, and for no earlier one afterwards.

        ``tick``: the time that the run is for, with its zone, or in seconds since 1970. Take it from the schedule, not
        from the clock, so that all replicas name the same. Otherwise like :meth:`once_per`.
        """
        return self._once(scheduled(tick), work, retry_on_error)

    def _once(self, ticks: Ticks, work: Callable[[Lock], object], retry_on_error: bool) -> bool:
        check_eager(work)
        call = self.call(self._stop, self._session.gateway.timeout)
        try:
            if not run(take_tick(self._session, self, call, ticks)):
                return False
            with ExitStack() as stack:
                stack.push(self)
                try:
                    check_done(work, work(self))
                except BaseException:
                    if retry_on_error and self.hold.mine():
                        run(give_tick_back(self.hold.attempt))
                    raise
            return True
        except BaseException as error:
            self._undo(call, error)
            raise

    def alive(self, progress: str = "", *, alert_after: float | None = None,
              auto_unlock_after: float | None = None) -> None:
        """Report progress, which is shown with the lock, and extend both deadlines from now.

        Raises LostError if the hold is over. After an UnavailableError, the hold keeps its previous deadline.
        """
        run(self.hold.alive(progress, alert_after, auto_unlock_after))

    def release(self) -> None:
        """Release the lock. Raises LostError if it was already lost: another holder may have worked at the same time.

        After an UnavailableError, the release continues in the background. In a forked child this does nothing.
        """
        run(self.hold.release())

    def cancel(self) -> None:
        """Give up the wait of another thread, or else the next wait: its ``acquire`` raises CancelledError."""
        self._stop.set()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            with after(error):
                self.release()
        except BaseException:
            self.hold.attempt.undo()
            raise

    def __call__(self, work: F) -> F:
        """Return a function that calls ``work`` under the lock, for use as a decorator.

        Raises RefusedError for coroutine functions and generators, whose body would run after the release.
        """
        check_eager(work)

        @wraps(work)
        def under_lock(*args: Any, **kwargs: Any) -> Any:
            with Lock(self._session, self.settings, self._on_lost, self._on_asked):
                result = work(*args, **kwargs)
                check_done(work, result)
                return result

        return cast(F, under_lock)


class Locks(Group[Lock]):
    """Several locks, all or none, for ``with`` or for ``acquire`` and ``release``. Each has a token of its own."""

    def __init__(self, session: Session, locks: Sequence[Lock]) -> None:
        super().__init__(session, locks)
        self._stop = BlockingFlag()

    def acquire(self) -> Locks:
        """Take all of them, or none. Raises what :meth:`Lock.acquire` raises, for the lock that could not be taken."""
        call = self.call(self._stop)
        try:
            run(self.take(call))
            self._stop = BlockingFlag()
            return self
        except BaseException:
            self._stop = BlockingFlag()
            self.undo(call)
            raise

    __enter__ = acquire

    def alive(self, progress: str = "") -> None:
        """Report progress for each lock."""
        for lock in self.locks:
            lock.alive(progress)

    def release(self) -> None:
        """Release all of them."""
        with ExitStack() as stack:
            for lock in self.locks:
                stack.callback(lock.release)

    def cancel(self) -> None:
        """Give up the wait of another thread."""
        self._stop.set()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            with ExitStack() as stack:
                for lock in self.locks:
                    stack.callback(lock.__exit__, kind, error, trace)
        except BaseException:
            for lock in self.locks:
                lock.hold.attempt.undo()
            raise
