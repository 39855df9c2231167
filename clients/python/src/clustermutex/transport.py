"""HTTP over any connection: one request after the other, as long as both sides keep it open.

Nothing here depends on threads or asyncio: each provides an :class:`IO`.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
import weakref
from contextlib import suppress
from typing import Any, Callable, Coroutine, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from .record import visible

MAX_BODY = 64 << 20
KEEP = 30.0  # seconds after which an idle connection is not reused
MOST_IDLE = 16

TIMEOUTS = (TimeoutError, socket.timeout)  # the same since Python 3.10

T = TypeVar("T")


class Endpoint(NamedTuple):
    """One member of the cluster."""

    url: str
    host: str
    port: int
    tls: bool
    path: str


def parse_endpoint(url: str) -> Endpoint:
    """Parse ``http://host:port/path``, ``https://…`` or ``host:port``. Raises ValueError if it is none of these."""
    if "@" in url:
        raise ValueError("an endpoint must not contain a user or password: give them as user and password")
    try:
        parts = urlsplit(url if "://" in url else "http://" + url)
        port = parts.port or 2379
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f'endpoint "{visible(url)}": want http://HOST:PORT or https://HOST:PORT')
    full = f"{parts.scheme}://{parts.netloc}{parts.path}"
    return Endpoint(full, parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/"))


class Certificates:
    """What new TLS connections trust and show, from files that are read again when one of them changes."""

    def __init__(self, ca: str, cert: str, key: str) -> None:
        """Read the files. Raises OSError if that fails."""
        self._ca = ca
        self._cert = cert
        self._key = key
        self._versions = self._stat()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """Return the files as they are now. While they are being replaced, return the previous ones."""
        with suppress(OSError):
            versions = self._stat()
            if versions != self._versions:
                self._context = self._read()
                self._versions = versions
        return self._context

    def _stat(self) -> list[tuple[int, int, int]]:
        states = [os.stat(file) for file in (self._ca, self._cert, self._key) if file]
        return [(state.st_ino, state.st_size, state.st_mtime_ns) for state in states]

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._ca or None)
        if self._cert:
            context.load_cert_chain(self._cert, self._key)
        return context


class Connection(Protocol):
    """A connection to one endpoint. Timeouts raise one of TIMEOUTS, other failures OSError."""

    async def send(self, data: bytes, timeout: float) -> None: ...

    async def receive(self, timeout: float) -> bytes: ...  # empty at the end

    def usable(self) -> bool: ...  # by this process and loop; the peer has neither closed it nor sent more

    def interrupt(self) -> None: ...  # from any thread: a pending receive returns the end

    def close(self) -> None: ...  # by its owner only: another connection may reuse its file descriptor at once


class Flag:
    """An event that happens once, and interrupts what its owner is doing."""

    def __init__(self) -> None:
        self.cuts: Callable[[], None] | None = None
        self._set = False

    def set(self) -> None:
        """Set it, from any thread."""
        self._set = True
        self._wake()
        cut = self.cuts
        if cut is not None:
            cut()

    def is_set(self) -> bool:
        return self._set

    def _wake(self) -> None:
        raise NotImplementedError

    async def wait(self, timeout: float) -> bool:
        raise NotImplementedError


class IO(Protocol):
    """The I/O that the protocol needs: blocking for threads, or asyncio's."""

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None, timeout: float) -> Connection: ...

    def flag(self) -> Flag: ...


class Pool:
    """Open idle connections. Threads share its list without a lock."""

    def __init__(self) -> None:
        self._idle: list[tuple[Endpoint, float, Connection]] = []
        weakref.finalize(self, _close_all, self._idle)  # a client has no close method

    def take(self, endpoint: Endpoint) -> Connection | None:
        """Return the most recently used connection; None if there is none."""
        with suppress(IndexError):  # no other is left
            while True:
                at, since, connection = self._idle.pop()
                if at == endpoint and clock() - since < KEEP and connection.usable():
                    return connection
                connection.close()
        return None

    def give(self, endpoint: Endpoint, connection: Connection) -> None:
        """Return a connection whose answer was read completely."""
        if len(self._idle) < MOST_IDLE:
            self._idle.append((endpoint, clock(), connection))
        else:
            connection.close()


def _close_all(idle: list[tuple[Endpoint, float, Connection]]) -> None:
    while idle:
        idle.pop()[2].close()


def clock() -> float:
    """Return seconds of a monotonic clock that advances while the machine sleeps."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the protocol to its end over a blocking IO, with which it never yields."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("the work awaits a non-blocking IO")


class Response:
    """Parses one HTTP response from bytes as they arrive."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.over = False
        self._keeps = True  # the server keeps the connection open
        self._raw = b""
        self._chunked = False
        self._length: int | None = None

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises ValueError if they are not HTTP."""
        self._raw += data
        if len(self._raw) + len(self.body) > MAX_BODY:
            raise ValueError("the answer is too large")
        if not self.status and not self._head():
            return
        if not self._chunked:
            more = None if self._length is None else self._length - len(self.body)
            self.body += self._raw[:more]
            self._raw = b"" if more is None else self._raw[more:]
            self.over = self._length is not None and len(self.body) >= self._length
        while self._chunked and not self.over and self._chunk():
            pass

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self.over and self._keeps and not self._raw

    def end(self) -> None:
        """Handle the end of the connection. Raises ValueError if the answer was cut off."""
        self._keeps = False
        if not self.status or self._chunked or self._length is not None:
            raise ValueError("the answer was cut off")
        self.over = True

    def lines(self) -> list[bytes]:
        """Return complete lines, each once."""
        *whole, self.body = self.body.split(b"\n")
        return whole

    def _head(self) -> bool:
        head, found, rest = self._raw.partition(b"\r\n\r\n")
        if not found:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        if not first.startswith("HTTP/1.") or len(first.split(" ")) < 2:
            raise ValueError("the answer is not HTTP")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.status = int(first.split(" ")[1])
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._length = int(headers["content-length"]) if "content-length" in headers else None
        self._keeps = first.startswith("HTTP/1.1") and headers.get("connection", "").lower() != "close"
        self._raw = rest
        return True

    def _chunk(self) -> bool:
        line, found, rest = self._raw.partition(b"\r\n")
        if not found:
            return False
        size = int(line.partition(b";")[0], 16)
        if len(rest) < size + 2:
            return False
        self.over = size == 0
        self.body += rest[:size]
        self._raw = rest[size + 2:]
        return True


class Watch:
    """A watch on some keys: a request with an endless answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._response = Response()
        self._events: list[dict[str, Any]] = []

    async def open(self, request: bytes, parts: int, until: float) -> None:
        """Send the request, and wait until etcd confirms all its parts."""
        await self._connection.send(request, max(until - clock(), 0.001))
        while parts > 0:
            parts -= await self._read(until)

    async def events(self, timeout: float) -> list[dict[str, Any]]:
        """Return the next events, or none after ``timeout`` seconds. Raises OSError if the watch broke."""
        end = clock() + timeout
        with suppress(*TIMEOUTS):
            while not self._events and clock() < end:
                await self._read(end)
        events, self._events = self._events, []
        return events

    def interrupt(self) -> None:
        """End the watch from any thread: its owner gets an OSError."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection. Only the reader of the events may call it."""
        self._connection.close()

    async def _read(self, until: float) -> int:
        """Read more events. Return how many parts of the request were confirmed."""
        received = await self._connection.receive(max(until - clock(), 0.001))
        if not received:
            raise OSError("the watch ended")
        try:
            self._response.feed(received)
        except ValueError as error:
            raise OSError(str(error)) from None
        if self._response.over or self._response.status not in (0, 200):
            raise OSError(f"the watch ended with HTTP status {self._response.status}")
        results = [_result(line) for line in self._response.lines()]
        self._events += [event for result in results for event in result.get("events", [])]
        return sum(bool(result.get("created")) for result in results)


def _result(line: bytes) -> dict[str, Any]:
    """Parse one message of a watch. Raises OSError if the watch is over."""
    try:
        result = json.loads(line).get("result")
    except (ValueError, AttributeError, RecursionError):
        result = None
    if not isinstance(result, dict) or result.get("canceled"):
        raise OSError(f"etcd ended the watch: {line[:200]!r}")
    return result
