"""What locks for threads and locks for asyncio have in common."""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Iterator, Sequence, TypeVar

from .attempt import AFTERWARDS, MAX_RIVALS, Attempt, Call, acquire, in_doubt
from .errors import HeldError, LostError, MutexError, RefusedError, UnavailableError, WaitTimeoutError
from .handover import Reservation, find
from .hold import Hold, OnAsked, OnLost, Request
from .identity import backtrace
from .kinds import Holders
from .record import visible
from .session import Session, log
from .settings import Settings
from .transactions import together, verdicts
from .transport import Flag, clock

MOST = 24  # how many fit into one transaction of etcd


class Handle:
    """A lock, and its latest hold."""

    def __init__(self, session: Session, settings: Settings, on_lost: OnLost | None, on_asked: OnAsked | None) -> None:
        for callback in (on_lost, on_asked):
            if callback is not None:
                check_eager(callback)
        self._session = session
        self.settings = settings
        self._on_lost = on_lost
        self._on_asked = on_asked
        self._hold: Hold | None = None
        self._calls: list[Call] = []  # the first one takes it

    def call(self, stop: Flag, limit: float | None = None) -> Call:
        """Return a call for this lock that begins now and takes ``limit`` seconds; by default, as ``wait`` says."""
        seconds = self._session.patience(self.settings.wait) if limit is None else limit
        return Call(backtrace(), stop, clock() + seconds)

    async def take(self, call: Call) -> None:
        """Take the lock, one caller at a time."""
        try:
            self._calls.append(call)
            if self._calls[0] is not call:
                raise RefusedError(f'lock "{visible(self.name)}" is being taken with this object by another caller: '
                                   "give each its own")
            self.check_idle()
            self.begin(await acquire(self._session, self.settings, call))
        finally:
            if call in self._calls:
                self._calls.remove(call)

    def undo(self, call: Call) -> None:
        """Give the lock back in the background if this call took it: its caller got an exception instead."""
        call.undo()
        if self._hold is not None and self._hold.attempt.call is call:
            self._hold.over.set()

    def begin(self, attempt: Attempt) -> None:
        """Begin the hold of the lock that this attempt took."""
        self._hold = Hold(attempt, self._on_lost, self._on_asked)
        self._hold.begin()

    async def adopt(self, uuid: str, call: Call) -> None:
        """Begin with the hold that has this uuid."""
        self.begin(await find(self._session, self.settings, uuid, call))

    def leave(self) -> Reservation | None:
        """Leave the hold to the process that adopts it; None if a late request might still take the lock again."""
        attempt = self.hold.attempt
        if attempt.doubt:
            return None
        self.hold.leave()
        return Reservation(self.hold.txn.lock, attempt.uuid, attempt.token)

    def check_idle(self) -> None:
        """Raise RefusedError if the lock is already held by this object."""
        if self._hold is not None and not self._hold.over.is_set():
            raise RefusedError(f'lock "{visible(self.name)}" is already held by this object')

    @property
    def hold(self) -> Hold:
        """The latest hold. Raises RefusedError if there was none."""
        if self._hold is None:
            raise RefusedError(f'lock "{visible(self.name)}" is not held')
        return self._hold

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self.settings.name

    @property
    def share(self) -> int:
        """The number of the semaphore or reader share, which others see as ``pool#2``; 0 for other kinds."""
        return self._hold.attempt.share if self._hold is not None else 0

    @property
    def token(self) -> int:
        """The fencing token, which grows with every acquisition; 0 before the first."""
        return self._hold.token if self._hold is not None else 0

    @property
    def uuid(self) -> str:
        """The identifier of the latest hold; empty before the first."""
        return self._hold.attempt.uuid if self._hold is not None else ""

    @property
    def lost(self) -> str | None:
        """Why the hold was lost, one word as in :class:`LostError`; None while it lasts and after its release."""
        error = self._hold.lost if self._hold is not None else None
        return None if error is None else error.reason

    @property
    def asked(self) -> Request | None:
        """The latest request to finish early, or None."""
        return self._hold.asked if self._hold is not None else None


def check_eager(work: Any) -> None:
    """Raise RefusedError for a function that returns before its body has run, which would then run without the lock."""
    call = work if inspect.isroutine(work) or isinstance(work, partial) else getattr(work, "__call__", work)
    kinds = {"a coroutine function": inspect.iscoroutinefunction(call),
             "an async generator function": inspect.isasyncgenfunction(call),
             "a generator function": inspect.isgeneratorfunction(call)}
    for kind, lazy in kinds.items():
        if lazy:
            raise RefusedError(f"{_name(work)} is {kind}: its body would run after the call returned, without the lock"
                               f"{_ADVICE}")


def check_done(work: Any, result: Any) -> None:
    """Raise RefusedError if the result of the work is something that has yet to run, without the lock."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody awaited it
        raise RefusedError(f"{_name(work)} returned a {type(result).__name__}, which has yet to run, without the lock"
                           f"{_ADVICE}")


_ADVICE = "; take the lock inside of it (for coroutines: async with, of clustermutex.aio)"


def _name(work: Any) -> str:
    return str(getattr(work, "__qualname__", None) or work)


@contextmanager
def after(error: BaseException | None) -> Iterator[None]:
    """Wrap the release at the end of the work. An error of the work is the one to come out."""
    try:
        yield
    except MutexError as failed:
        if error is None:
            raise
        if not isinstance(failed, LostError):
            log.warning("%s, after the work failed", failed)


L = TypeVar("L", bound=Handle)


class Group(Generic[L]):
    """Some locks, taken in the order of their names, like all clients do."""

    def __init__(self, session: Session, locks: Sequence[L]) -> None:
        self.locks = list(locks)
        self._session = session
        self._sorted = sorted(locks, key=lambda lock: lock.name.encode())
        names = [lock.name for lock in self._sorted]
        if not names or len(set(names)) < len(names):
            raise RefusedError("no lock was given, or one was given twice")
        waits = [lock.settings.wait for lock in locks if lock.settings.wait is not None]
        self._wait = min(waits) if waits else None
        self._fits = len(names) <= MOST and not any(lock.settings.need.kind for lock in locks)
        if self._wait == 0 and not self._fits:
            raise RefusedError(f"with wait=0 they are taken in one transaction, which has room for {MOST} plain locks")
        self._settings = [replace(_with_others(lock.settings, names), wait=self._wait) for lock in self._sorted]

    def call(self, stop: Flag) -> Call:
        """Return a call for these locks that begins now."""
        return Call(backtrace(), stop, clock() + self._session.patience(self._wait))

    async def take(self, call: Call) -> None:
        """Take them in one transaction, or one after the other if that needs a wait or does not fit."""
        for lock in self.locks:
            lock.check_idle()
        try:
            if self._fits:
                return await self._at_once(call)
        except (HeldError, UnavailableError):
            if self._wait == 0 or clock() >= call.until or call.stop.is_set():
                raise
        await self._in_order(call)

    @property
    def lost(self) -> str | None:
        """Why the first of them was lost, one word as in :class:`LostError`; None while all are held."""
        return next((lock.lost for lock in self.locks if lock.lost is not None), None)

    def undo(self, call: Call) -> None:
        """Give back in the background what this call took: its caller got an exception instead."""
        for lock in self.locks:
            lock.undo(call)

    async def _in_order(self, call: Call) -> None:
        """Take one after the other, and keep what it has while it waits for the next."""
        taken: list[L] = []
        async with AsyncExitStack() as undo:
            try:
                for lock, settings in zip(self._sorted, self._settings):
                    for other in taken:
                        other.hold.waits_for(settings.name)
                    lock.begin(await acquire(self._session, settings, call))
                    undo.push_async_callback(lock.hold.give_up, call.until + AFTERWARDS)
                    lock.hold.stops = call.stop
                    taken.append(lock)
                for lock in taken:
                    await lock.hold.alive(patience=call.until - clock())
                undo.pop_all()
            except MutexError as error:
                lost = next((lock.hold.lost for lock in taken if lock.hold.lost is not None), None)
                late = isinstance(error, UnavailableError) and self._wait is not None
                raise lost or (late and call.refusal) or error from None
            finally:
                for lock in taken:
                    lock.hold.stops = None

    async def _at_once(self, call: Call, known: Sequence[Holders] = (), rivals: int = 0) -> None:
        attempts = [Attempt(self._session, settings, call) for settings in self._settings]
        for attempt, holders in zip(attempts, known):
            attempt.holders = holders
        body = together([attempt.txn.acquire(attempt.fields(), attempt.txn.claim(attempt.holders))
                         for attempt in attempts])
        limit = min(call.until, clock() + min(s.auto_unlock_after for s in self._settings) / 3)
        async with in_doubt(attempts):
            try:
                answer = await self._session.gateway.send("acquire_all", body, limit, call.stop)
            except (RefusedError, UnavailableError) as error:
                for attempt in attempts:
                    attempt.doubt = error.doubt
                raise
            found = verdicts([attempt.txn for attempt in attempts], answer)
            if any(attempt.late() for attempt in attempts):
                raise UnavailableError("etcd answered too late")
            for attempt, verdict in zip(attempts, found):
                attempt.doubt = answer.unanswered
                attempt.token = verdict.token if all(v.token for v in found) else 0
        if all(verdict.word == "again" for verdict in found) and rivals < MAX_RIVALS:
            return await self._at_once(call, [verdict.holders or Holders() for verdict in found], rivals + 1)
        refused = [(a, v.holders) for a, v in zip(attempts, found) if not a.token and v.holders]
        for attempt, holders in sorted(refused, key=lambda one: one[1].room(one[0].settings.need)):  # full ones first
            call.refusal = await attempt.refusal(HeldError if self._wait == 0 else WaitTimeoutError, holders, [])
            raise call.refusal
        for lock, attempt in zip(self._sorted, attempts):
            lock.begin(attempt)


def _with_others(settings: Settings, names: Sequence[str]) -> Settings:
    """Name in the record of one lock the others that are taken with it, as far as there is room."""
    others = [name for name in names if name != settings.name]
    kept = next((n for n in range(len(others)) if len(", ".join(others[:n + 1]).encode()) > 1000), len(others))
    text = ", ".join(others[:kept]) + (f" and {len(others) - kept} more" if kept < len(others) else "")
    return replace(settings, attributes={"together_with": text, **settings.attributes}) if others else settings
