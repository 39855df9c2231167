"""The asyncio side: everything in an asyncio program, and the background work of one with threads."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import ssl
import threading
from collections import deque
from concurrent.futures import Future
from typing import Any, AsyncIterator, Callable, Coroutine

from .threads import beside, resolved
from .transport import Flag

Work = Callable[[], Coroutine[Any, Any, None]]

GATHERED = 0.05  # seconds for which background work is collected before it starts: most holds are shorter
STOPS_IN = 1.0


class AsyncFlag(Flag):
    """A flag that tasks wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._waiter: asyncio.Event | None = None  # created when awaited: Python 3.9 binds it to a loop
        self._loop: asyncio.AbstractEventLoop | None = None

    def _wake(self) -> None:
        if self._waiter is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._waiter.set)

    async def wait(self, timeout: float | None = None) -> bool:
        if self._waiter is None:
            self._loop = asyncio.get_running_loop()
            self._waiter = asyncio.Event()
        if not self._set:
            with contextlib.suppress(TimeoutError):
                await within(self._waiter.wait(), timeout)
        return self._set


class AsyncConnection:
    """A :class:`transport.Connection` on the streams of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._end = _until_the_end(writer.transport)

    async def open(self) -> AsyncConnection:
        """Arrange for it to be closed with the loop."""
        await self._end.__anext__()
        return self

    async def send(self, data: bytes, timeout: float) -> None:
        self._writer.write(data)
        await within(self._writer.drain(), timeout)

    async def receive(self, timeout: float) -> bytes:
        received: bytes = await within(self._reader.read(1 << 16), timeout)
        return received

    def usable(self) -> bool:
        return (self._loop is asyncio.get_running_loop() and not self._reader.at_eof()
                and not self._writer.transport.is_closing() and not getattr(self._reader, "_buffer", b""))

    def interrupt(self) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the connection
            self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        self._writer.transport.abort()


async def _until_the_end(transport: asyncio.WriteTransport) -> AsyncIterator[None]:
    """Close a connection with its loop: a loop that shuts down closes its async generators."""
    try:
        yield
    finally:
        transport.abort()


class AsyncIO:
    """The :class:`transport.IO` of asyncio."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def here(self) -> bool:
        """Report whether the caller runs in this loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None, timeout: float) -> AsyncConnection:
        connection: AsyncConnection = await within(self._connect(host, port, tls), timeout, AsyncConnection.close)
        return connection

    async def _connect(self, host: str, port: int, tls: ssl.SSLContext | None) -> AsyncConnection:
        """Connect without asyncio's resolver threads, which the interpreter joins at exit."""
        failed = OSError("the host has no address")
        for *_, address in await asyncio.wrap_future(resolved(host, port)):
            try:
                name = host if tls else None
                streams = await asyncio.open_connection(address[0], port, ssl=tls, server_hostname=name)
                return await AsyncConnection(*streams).open()
            except OSError as error:
                failed = error
        raise failed

    def spawn(self, work: Work) -> None:
        """Start work that no caller waits for."""
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)  # the loop keeps only a weak reference
        task.add_done_callback(self._tasks.discard)

    def flag(self) -> AsyncFlag:
        return AsyncFlag()

    def aside(self, work: Callable[[], Any]) -> Any:
        """Call a function of the application's in this loop."""
        return work()


class Background(AsyncIO):
    """An event loop in a daemon thread, which starts with the first work."""

    def __init__(self) -> None:
        super().__init__()
        self._arrivals: deque[Work] = deque()
        self._called = False  # the bell has been rung for the arrivals, or is about to be
        self._bell = AsyncFlag()
        self._stopped = False
        self._starts = threading.Lock()
        self._thread: threading.Thread | None = None

    def here(self) -> bool:
        return threading.current_thread() is self._thread

    def spawn(self, work: Work) -> None:
        """Start work a moment later, together with whatever else arrives until then."""
        self._arrivals.append(work)
        if not self._called:
            self._called = True
            try:
                self._wake()
            except BaseException:  # of a signal handler: nobody else would ring
                self._wake()
                raise

    def aside(self, work: Callable[[], Any]) -> "Future[Any]":
        """Call it in a thread of its own, so that a slow one does not keep the locks from being extended."""
        return beside(work)

    def stop(self) -> None:
        """Stop the loop before the interpreter exits."""
        self._stopped = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join(STOPS_IN)

    def _wake(self) -> None:
        with self._starts:
            if self._thread is None and not self._stopped:
                self._start()
        self._bell.set()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._run, name="clustermutex", daemon=True).start()
        except RuntimeError:  # since Python 3.12, no thread can be started at exit
            self._stopped = True

    def _run(self) -> None:
        with self._starts:
            if self._thread is not None:  # a start that seemed to be interrupted had succeeded
                return
            self._thread = threading.current_thread()
        atexit.register(self.stop)
        asyncio.run(self._work(), debug=False)  # or Python's development mode warns about slow callbacks

    async def _work(self) -> None:
        while not self._stopped:
            await self._bell.wait()
            if self._stopped:
                return
            await asyncio.sleep(GATHERED)
            self._bell = AsyncFlag()
            self._called = False
            while self._arrivals:
                super().spawn(self._arrivals.popleft())


background = Background()  # shared by all clients
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=background.__init__)  # type: ignore[misc]


async def within(work: Coroutine[Any, Any, Any], timeout: float | None,
                 discard: Callable[[Any], object] = lambda result: None) -> Any:
    """Wait for work, but no longer than ``timeout``.

    Unlike asyncio.wait_for before Python 3.12, it never swallows a cancellation. A result that comes too late is passed
    to ``discard``.
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
