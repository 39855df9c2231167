"""Locks for programs with asyncio: the same protocol, run by tasks.

    from clustermutex.aio import Client

    async with client.lock("billing/invoice-run", purpose="nightly invoices") as lock:
        await lock.alive("3 of 9")
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Awaitable, Callable, Coroutine, Mapping, Optional, Sequence, Set, Type, Union

from . import process, record
from .attempt import Attempt, Core, acquire, holder, log
from .client import make_core
from .errors import LostError, MutexError, RefusedError
from .hold import Handle, Hold, Request
from .periods import take_period
from .record import Attribute
from .settings import PLAIN, Settings, leads, settle
from .together import Group


class AsyncFlag:
    """A :class:`gateway.Flag` on an asyncio.Event."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, timeout: float) -> bool:
        try:
            await _within(self._event.wait(), timeout)
        except TimeoutError:
            pass
        return self._event.is_set()


class AsyncConnection:
    """A :class:`gateway.Connection` on the streams of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes, timeout: float) -> None:
        self._writer.write(data)
        await _within(self._writer.drain(), timeout)

    async def receive(self, timeout: float) -> bytes:
        received: bytes = await _within(self._reader.read(1 << 16), timeout)
        return received

    def interrupt(self) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.transport.abort()


class AsyncIO:
    """The :class:`gateway.IO` of asyncio."""

    def __init__(self) -> None:
        self._tasks: Set[asyncio.Task[None]] = set()

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext], timeout: float) -> AsyncConnection:
        return AsyncConnection(*await _within(asyncio.open_connection(host, port, ssl=tls), timeout,
                                              lambda streams: streams[1].transport.abort()))

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)  # the loop keeps no reference
        task.add_done_callback(self._tasks.discard)

    def flag(self) -> AsyncFlag:
        return AsyncFlag()


def _uncancel() -> bool:
    """Take back a cancellation of this task. False: somebody else wants it cancelled, too."""
    uncancel = getattr(asyncio.current_task(), "uncancel", lambda: 0)  # since Python 3.11
    return not uncancel()


async def _within(work: Coroutine[Any, Any, Any], timeout: float,
                  discard: Callable[[Any], object] = lambda result: None) -> Any:
    """Wait for work, but not for longer. Unlike asyncio.wait_for before Python 3.12, it never swallows a cancellation.

    A result that comes when nobody waits for it any more is discarded.
    """
    task = asyncio.ensure_future(work)
    taken = False
    try:
        await asyncio.wait({task}, timeout=timeout)
        taken = task.done()
        if taken:
            return task.result()
        raise TimeoutError("no answer in time")
    finally:
        if not taken:
            task.add_done_callback(lambda t: t.cancelled() or t.exception() or discard(t.result()))
            task.cancel()


class Client:
    """Takes locks in one event loop. The arguments are those of :class:`clustermutex.Client`."""

    def __init__(self, endpoints: Union[str, Sequence[str]], owner: str = "", *, prefix: str = "/mutexes/",
                 user: str = "", password: str = "", ca: str = "", cert: str = "", key: str = "",
                 timeout: float = 5.0, release_at_exit: bool = True) -> None:
        self._core = make_core(AsyncIO(), endpoints, owner, prefix, user, password, ca, cert, key, timeout,
                               release_at_exit)

    def lock(self, name: str, *, semaphore: Optional[int] = None, weight: int = 1, shared: bool = False,
             exclusive: bool = False, wait: Optional[float] = None, alert_after: Optional[float] = None,
             unlock_after: Optional[float] = None, margin: Optional[float] = None,
             heartbeat: Union[None, bool, float] = None, purpose: str = "",
             attributes: Optional[Mapping[str, Attribute]] = None, cancel_on_loss: bool = True,
             on_lost: Optional[Callable[[LostError], None]] = None,
             on_asked: Optional[Callable[[Request], None]] = None) -> Lock:
        """Return a lock for ``async with``, or for ``acquire`` and ``release``. Nothing is sent yet.

        The arguments are those of :meth:`clustermutex.Client.lock`. With ``cancel_on_loss``, the body of ``async with``
        is cancelled when the lock is lost, and the LostError comes out of it. The callbacks run in the event loop.
        """
        settings = settle(name, (semaphore, weight, shared, exclusive), wait, alert_after, unlock_after, margin,
                          heartbeat, purpose, attributes)
        return Lock(self._core, settings, cancel_on_loss, on_lost, on_asked)

    def lock_all(self, *locks: Lock) -> Locks:
        """Return several locks to take together, all or none. See :meth:`clustermutex.Client.lock_all`."""
        return Locks(self._core, locks)

    def campaign(self, name: str, *, life: float = 60.0, address: str = "",
                 check: Optional[Callable[[], Awaitable[bool]]] = None, wait: Optional[float] = None, purpose: str = "",
                 attributes: Optional[Mapping[str, Attribute]] = None, cancel_on_loss: bool = True,
                 on_lost: Optional[Callable[[LostError], None]] = None) -> Lock:
        """Return the lock of a leader. See :meth:`clustermutex.Client.campaign`."""
        settings = settle(name, PLAIN, wait, life, life, None, None, purpose, leads(address, attributes))
        return Lock(self._core, replace(settings, leads=True, check=check), cancel_on_loss, on_lost, None)

    async def leader(self, name: str) -> Optional[record.Record]:
        """Return who leads, None if nobody does."""
        return await holder(self._core, name)


class Lock(Handle):
    """One lock of a :class:`Client`. It can be taken again after it was released, by one task at a time.

    To give up a wait, cancel the task that waits, as everywhere in asyncio.
    """

    def __init__(self, core: Core, settings: Settings, cancel_on_loss: bool,
                 on_lost: Optional[Callable[[LostError], None]],
                 on_asked: Optional[Callable[[Request], None]]) -> None:
        super().__init__(core, settings)
        self._cancel_on_loss = cancel_on_loss
        self._on_lost = on_lost or (lambda error: None)
        self._on_asked = on_asked or (lambda request: None)
        self._taking = False
        self._body: Optional[asyncio.Task[Any]] = None
        self._cancelled = False

    async def acquire(self) -> Lock:
        """Take the lock. A HeldError says who has it; it is a WaitTimeoutError after a wait."""
        if self._taking:
            raise RefusedError(f'another task is taking lock "{record.visible(self.name)}" with this object: give each '
                               "task its own")
        self.check_idle()
        self._taking = True
        try:
            attempt = await acquire(self._core, self.settings, process.backtrace(), self._core.io.flag(),
                                    lambda watch: None)
        finally:
            self._taking = False
        self.begin(attempt)
        return self

    def begin(self, attempt: Attempt) -> None:
        self._hold = Hold(attempt, self._loss, self._on_asked)
        self._hold.begin()

    async def once_per(self, every: float, work: Callable[[Lock], Awaitable[object]], *, offset: float = 0.0) -> bool:
        """Run work under the lock once in each period. See :meth:`clustermutex.Lock.once_per`."""
        flag = self._core.io.flag()
        if not await take_period(self._core, self, process.backtrace(), flag, every, offset):
            return False
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self)
            self._enter()
            await work(self)
        return True

    async def alive(self, progress: str = "", *, alert_after: Optional[float] = None,
                    unlock_after: Optional[float] = None) -> None:
        """Report progress, which is shown with the lock, and extend both deadlines from now on.

        A LostError says that the hold is over. After an UnavailableError it stands until the deadline that it had.
        """
        await self.hold.alive(progress, alert_after, unlock_after)

    async def release(self) -> None:
        """Give the lock back. A LostError says that it had been lost before: the work may have run beside another's.

        After an UnavailableError, and if the caller is cancelled, the release goes on in the background.
        """
        hold = self.hold
        if hold.mine():
            await asyncio.shield(asyncio.ensure_future(hold.release()))

    async def __aenter__(self) -> Lock:
        await self.acquire()
        self._enter()
        return self

    def _enter(self) -> None:
        """Have this task cancelled when the lock is lost."""
        self._cancelled = False
        self._body = asyncio.current_task() if self._cancel_on_loss else None

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self._body = None
        interrupted = kind is not None and issubclass(kind, asyncio.CancelledError)
        try:
            await self.release()
        except asyncio.CancelledError:
            if not self._cancelled or interrupted:
                raise
            interrupted = True  # the work ended before it could be interrupted
        except MutexError as failed:
            if error is None:
                raise
            if not isinstance(failed, LostError):
                log.warning("%s, after the work failed", failed)
        if self._cancelled and interrupted and _uncancel() and self._hold is not None and self._hold.lost is not None:
            raise self._hold.lost

    def _loss(self, error: LostError) -> None:
        if self._body is not None:
            self._cancelled = True
            self._body.cancel()
        self._on_lost(error)


class Locks:
    """Several locks, all or none, for ``async with``, or for ``acquire`` and ``release``."""

    def __init__(self, core: Core, locks: Sequence[Lock]) -> None:
        self._core = core
        self._group = Group(core, locks)
        self.locks = list(locks)

    async def acquire(self) -> Locks:
        """Take all of them, or none. See :meth:`clustermutex.Locks.acquire`."""
        stop = self._core.io.flag()
        await self._group.acquire(process.backtrace(), stop, lambda watch: None, stop.set)
        return self

    async def alive(self, progress: str = "") -> None:
        """Report progress for each of them."""
        for lock in self.locks:
            await lock.alive(progress)

    async def release(self) -> None:
        """Give all of them back."""
        async with AsyncExitStack() as stack:
            for lock in self.locks:
                stack.push_async_callback(lock.release)

    async def __aenter__(self) -> Locks:
        await self.acquire()
        for lock in self.locks:
            lock._enter()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        async with AsyncExitStack() as stack:
            for lock in self.locks:
                stack.push_async_callback(lock.__aexit__, kind, error, trace)
