"""What blocks the threads of callers, and the one thread in which everything goes on that nobody waits for."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import ssl
import threading
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, Callable, Deque, List, Optional, TypeVar

from .loops import AsyncConnection, AsyncFlag, AsyncIO, Work, within
from .transport import Connection, clock

GATHERED = 0.05  # seconds in which what is to begin in the background is gathered: most holds are shorter
STOPS_IN = 1.0

T = TypeVar("T")


class BlockingFlag:
    """A :class:`transport.Flag` on a threading.Event."""

    def __init__(self) -> None:
        self.cuts: Optional[Callable[[], None]] = None
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()
        cut = self.cuts
        if cut is not None:
            cut()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, timeout: float) -> bool:
        return self._event.wait(timeout)


class BlockingConnection:
    """A :class:`transport.Connection` on a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._pid = os.getpid()
        self._open = threading.Lock()

    async def send(self, data: bytes, timeout: float) -> None:
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(data)
        except socket.timeout:
            raise TimeoutError("no answer in time") from None

    async def receive(self, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(1 << 16)
        except socket.timeout:
            raise TimeoutError("no answer in time") from None

    def usable(self) -> bool:
        if self._pid != os.getpid():
            return False
        try:
            self._socket.settimeout(0)
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)  # not SSLSocket's, which has no such look
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def interrupt(self) -> None:
        with self._open:
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not SSLSocket's, which is for its owner
            except OSError:
                pass

    def close(self) -> None:
        if self._pid == os.getpid():
            self.interrupt()  # a forked child may have the connection, too, and leaves it to its parent
        with self._open:
            self._socket.close()


class BlockingIO:
    """The :class:`transport.IO` of threads."""

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext], timeout: float) -> BlockingConnection:
        end = clock() + timeout
        failed = OSError("it has no address")
        try:
            addresses = resolved(host, port).result(timeout)
        except FutureTimeout:
            raise TimeoutError(f"{host} was not resolved in time") from None
        for family, kind, protocol, _, address in addresses:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(max(end - clock(), 0.001))
                sock.connect(address)
                sock.settimeout(max(end - clock(), 0.001))
                return BlockingConnection(tls.wrap_socket(sock, server_hostname=host) if tls else sock)
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                failed = TimeoutError("no answer in time") if isinstance(error, socket.timeout) else error
        raise failed

    def flag(self) -> BlockingFlag:
        return BlockingFlag()


class Background(AsyncIO):
    """An event loop in a thread of its own, which keeps nothing alive. It begins with the first work."""

    def __init__(self) -> None:
        super().__init__()
        self._arrivals: Deque[Work] = deque()
        self._called = False  # the bell rings for them, or is about to
        self._bell = AsyncFlag()
        self._stopped = False
        self._starts = threading.Lock()
        self._thread: Optional[threading.Thread] = None

    def here(self) -> bool:
        return threading.current_thread() is self._thread

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext], timeout: float) -> Connection:
        connection: Connection = await within(self._connect(host, port, tls), timeout, AsyncConnection.close)
        return connection

    def spawn(self, work: Work) -> None:
        """Begin something, a moment later: one call is for all that comes until then."""
        self._arrivals.append(work)
        if not self._called:
            self._called = True
            self._start()
            self._bell.set()

    def stop(self) -> None:
        """End all of it, before the interpreter ends."""
        self._stopped = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join(STOPS_IN)

    def _start(self) -> None:
        with self._starts:
            if self._thread is not None or self._stopped:
                return
            self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="clustermutex", daemon=True)
            try:
                self._thread.start()
                atexit.register(self.stop)
            except RuntimeError:  # since Python 3.12 there are no new ones at the exit
                self._stopped = True

    async def _work(self) -> None:
        while not self._stopped:
            await self._bell.wait()
            await asyncio.sleep(GATHERED)
            self._bell = AsyncFlag()
            self._called = False
            while self._arrivals:
                super().spawn(self._arrivals.popleft())

    async def _connect(self, host: str, port: int, tls: Optional[ssl.SSLContext]) -> AsyncConnection:
        """Connect, without the threads that asyncio resolves names in: the interpreter waits for them at its end."""
        failed = OSError("it has no address")
        for *_, address in await asyncio.wrap_future(resolved(host, port)):
            try:
                name = host if tls else None
                streams = await asyncio.open_connection(address[0], port, ssl=tls, server_hostname=name)
                return await AsyncConnection(*streams).open()
            except OSError as error:
                failed = error
        raise failed


background = Background()  # that of all clients
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=background.__init__)  # type: ignore[misc]


def beside(work: Callable[[], T]) -> "Future[T]":
    """Call something in a thread of its own, which keeps nothing alive."""
    future: "Future[T]" = Future()

    def call() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    try:
        threading.Thread(target=call, name="clustermutex", daemon=True).start()
    except RuntimeError:  # since Python 3.12 there are no new ones at the exit
        call()
    return future


def resolved(host: str, port: int) -> "Future[List[Any]]":
    """Find out what socket.getaddrinfo does: the system's resolver has a patience of its own."""
    find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        addresses: "Future[List[Any]]" = Future()
        addresses.set_result(find(flags=socket.AI_NUMERICHOST))
        return addresses
    except socket.gaierror:
        return beside(find)
