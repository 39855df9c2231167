"""Locks for asyncio programs: the same protocol, run by tasks.

    from clustermutex.aio import Client

    async with client.lock("billing/invoice-run", purpose="nightly invoices") as lock:
        await lock.alive("3 of 9")
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any, Awaitable, Callable, Mapping

from . import record
from .attempt import holder
from .errors import LostError
from .handover import Reservation, reserving
from .hold import OnAsked, OnLost
from .lock import Group, Handle, after
from .loops import AsyncFlag, AsyncIO
from .periods import Ticks, give_tick_back, periods, scheduled, take_tick
from .record import Attribute
from .session import Opened, Session
from .settings import Settings, leads, settle


def _uncancel() -> bool:
    """Undo one cancellation of this task. Return False if something else has also cancelled it."""
    uncancel = getattr(asyncio.current_task(), "uncancel", lambda: 0)  # since Python 3.11
    return not uncancel()


class Client(Opened):
    """Takes locks in one event loop. The arguments are those of :class:`clustermutex.Client`."""

    _loop = AsyncIO()

    def lock(self, name: str, *, semaphore: int | None = None, weight: int = 1, shared: bool = False,
             exclusive: bool = False, wait: float | None = None, alert_after: float | None = None,
             auto_unlock_after: float | None = None, margin: float | None = None, heartbeat: bool | float | None = None,
             purpose: str = "", attributes: Mapping[str, Attribute] | None = None, cancel_on_loss: bool = True,
             on_lost: OnLost | None = None,
             on_asked: OnAsked | None = None) -> Lock:
        """Return a lock for ``async with``, or for ``acquire`` and ``release``. Nothing is sent yet.

        The arguments are those of :meth:`clustermutex.Client.lock`. With ``cancel_on_loss``, losing the lock cancels
        the body of ``async with``, which then raises the LostError. The callbacks run in the event loop.
        """
        settings = settle(name, (semaphore, weight, shared, exclusive), wait, alert_after, auto_unlock_after, margin,
                          heartbeat, purpose, attributes)
        return Lock(self._session, settings, cancel_on_loss, on_lost, on_asked)

    def lock_all(self, *locks: Lock) -> Locks:
        """Return several locks to be taken together, all or none. See :meth:`clustermutex.Client.lock_all`."""
        return Locks(self._session, locks)

    async def reserve(self, name: str, reason: str, seconds: float, *, semaphore: int | None = None, weight: int = 1,
                      shared: bool = False, exclusive: bool = False, wait: float | None = None,
                      attributes: Mapping[str, Attribute] | None = None) -> Reservation:
        """Take the lock and leave it held. See :meth:`clustermutex.Client.reserve`."""
        while True:
            lock = self.lock(name, semaphore=semaphore, weight=weight, shared=shared, exclusive=exclusive, wait=wait,
                             alert_after=seconds, auto_unlock_after=seconds, purpose=reason, attributes=attributes)
            lock.settings = reserving(lock.settings)
            await lock.acquire()
            if (left := lock.leave()) is not None:
                return left
            await lock.release()

    async def adopt(self, name: str, uuid: str, *, cancel_on_loss: bool = True, on_lost: OnLost | None = None,
                    on_asked: OnAsked | None = None) -> Lock:
        """Return the lock with a hold that another process took. See :meth:`clustermutex.Client.adopt`."""
        lock = self.lock(name, cancel_on_loss=cancel_on_loss, on_lost=on_lost, on_asked=on_asked)
        await lock.adopt(uuid, lock.call(AsyncFlag(), self._session.gateway.timeout))
        return lock

    def campaign(self, name: str, *, life: float = 60.0, address: str = "",
                 check: Callable[[], Awaitable[bool]] | None = None, wait: float | None = None, purpose: str = "",
                 attributes: Mapping[str, Attribute] | None = None, cancel_on_loss: bool = True,
                 on_lost: OnLost | None = None) -> Lock:
        """Return a lock whose holder is the leader. See :meth:`clustermutex.Client.campaign`."""
        lock = self.lock(name, wait=wait, alert_after=life, auto_unlock_after=life, purpose=purpose,
                         attributes=leads(address, attributes), cancel_on_loss=cancel_on_loss, on_lost=on_lost)
        lock.settings = replace(lock.settings, leads=True, check=check)
        return lock

    async def leader(self, name: str) -> record.Record | None:
        """Return the leader's record, or None if there is no leader."""
        return await holder(self._session, name)


class Lock(Handle):
    """One lock of a :class:`Client`. One task at a time may use it; it can be taken again after its release.

    To give up a wait, cancel the waiting task, as usual in asyncio.
    """

    def __init__(self, session: Session, settings: Settings, cancel_on_loss: bool,
                 on_lost: OnLost | None, on_asked: OnAsked | None) -> None:
        super().__init__(session, settings, self._loss, on_asked)
        self._cancel_on_loss = cancel_on_loss
        self._on_loss = on_lost
        self._body: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def acquire(self) -> Lock:
        """Take the lock. See :meth:`clustermutex.Lock.acquire`."""
        call = self.call(AsyncFlag())
        try:
            await self.take(call)
            return self
        except BaseException:
            self.undo(call)
            raise

    async def once_per(self, every: float, work: Callable[[Lock], Awaitable[object]], *, offset: float = 0.0,
                       retry_on_error: bool = False) -> bool:
        """Run work under the lock once in each period. See :meth:`clustermutex.Lock.once_per`."""
        return await self._once(periods(every, offset), work, retry_on_error)

    async def once_at(self, tick: datetime | float, work: Callable[[Lock], Awaitable[object]], *,
                      retry_on_error: bool = False) -> bool:
        """Run work under the lock once for this tick. See :meth:`clustermutex.Lock.once_at`."""
        return await self._once(scheduled(tick), work, retry_on_error)

    async def _once(self, ticks: Ticks, work: Callable[[Lock], Awaitable[object]], retry_on_error: bool) -> bool:
        call = self.call(AsyncFlag(), self._session.gateway.timeout)
        try:
            if not await take_tick(self._session, self, call, ticks):
                return False
        except BaseException:
            self.undo(call)
            raise
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self)
            self._enter()
            try:
                await work(self)
            except BaseException:
                if retry_on_error and self.hold.mine():
                    await give_tick_back(self.hold.attempt)
                raise
        return True

    async def alive(self, progress: str = "", *, alert_after: float | None = None,
                    auto_unlock_after: float | None = None) -> None:
        """Report progress, and extend both deadlines from now. See :meth:`clustermutex.Lock.alive`."""
        await self.hold.alive(progress, alert_after, auto_unlock_after)

    async def release(self) -> None:
        """Release the lock, in the background if the caller is cancelled. See :meth:`clustermutex.Lock.release`."""
        await asyncio.shield(asyncio.ensure_future(self.hold.release()))

    async def __aenter__(self) -> Lock:
        await self.acquire()
        self._enter()
        return self

    def _enter(self) -> None:
        """Have this task cancelled when the lock is lost."""
        self._cancelled = False
        self._body = asyncio.current_task() if self._cancel_on_loss else None

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._body = None
        interrupted = isinstance(error, asyncio.CancelledError)
        try:
            with after(error):
                await self.release()
        except asyncio.CancelledError:
            if not self._cancelled or interrupted:
                raise
            interrupted = True  # the work ended before it could be interrupted
        if self._cancelled and interrupted and _uncancel() and self._hold is not None and self._hold.lost is not None:
            raise self._hold.lost

    def _loss(self, error: LostError) -> None:
        if self._body is not None:
            self._cancelled = True
            self._body.cancel()
        if self._on_loss is not None:
            self._on_loss(error)


class Locks(Group[Lock]):
    """Several locks, all or none, for ``async with`` or for ``acquire`` and ``release``."""

    async def acquire(self) -> Locks:
        """Take all of them, or none. See :meth:`clustermutex.Locks.acquire`."""
        call = self.call(AsyncFlag())
        try:
            await self.take(call)
            return self
        except BaseException:
            self.undo(call)
            raise

    async def alive(self, progress: str = "") -> None:
        """Report progress for each lock."""
        for lock in self.locks:
            await lock.alive(progress)

    async def release(self) -> None:
        """Release all of them."""
        async with AsyncExitStack() as stack:
            for lock in self.locks:
                stack.push_async_callback(lock.release)

    async def __aenter__(self) -> Locks:
        await self.acquire()
        for lock in self.locks:
            lock._enter()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        async with AsyncExitStack() as stack:
            for lock in self.locks:
                stack.push_async_callback(lock.__aexit__, kind, error, trace)
