"""Blocking I/O for callers' threads."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from functools import partial
from typing import Any, Callable, TypeVar

from .transport import Flag, clock

T = TypeVar("T")


class BlockingFlag(Flag):
    """A flag that threads wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._event = threading.Event()

    def _wake(self) -> None:
        self._event.set()

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
        self._socket.sendall(data)

    async def receive(self, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        return self._socket.recv(1 << 16)

    def usable(self) -> bool:
        if self._pid != os.getpid():
            return False
        try:
            self._socket.settimeout(0)
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)  # SSLSocket's recv does not support MSG_PEEK
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def interrupt(self) -> None:
        with self._open, suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # SSLSocket's is only for the owning thread

    def close(self) -> None:
        if self._pid == os.getpid():
            self.interrupt()  # not in a forked child, which shares the connection with its parent
        with self._open:
            self._socket.close()


class BlockingIO:
    """The :class:`transport.IO` of threads."""

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None, timeout: float) -> BlockingConnection:
        end = clock() + timeout
        failed = OSError("the host has no address")
        try:
            addresses = resolved(host, port).result(timeout)
        except FutureTimeout:
            raise TimeoutError(f"{host} was not resolved in time") from None
        for *_, address in addresses:
            try:
                return _connected((address[0], port), host, tls, end)
            except OSError as error:
                failed = error
        raise failed

    def flag(self) -> BlockingFlag:
        return BlockingFlag()


def _connected(address: tuple[str, int], host: str, tls: ssl.SSLContext | None, end: float) -> BlockingConnection:
    sock = socket.create_connection(address, max(end - clock(), 0.001))
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(max(end - clock(), 0.001))
        return BlockingConnection(tls.wrap_socket(sock, server_hostname=host) if tls else sock)
    except BaseException:
        sock.close()
        raise


def beside(work: Callable[[], T]) -> "Future[T]":
    """Call a function in a daemon thread of its own."""
    future: "Future[T]" = Future()

    def call() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    try:
        threading.Thread(target=call, name="clustermutex", daemon=True).start()
    except RuntimeError:  # since Python 3.12, no thread can be started at exit
        call()
    return future


def resolved(host: str, port: int) -> "Future[list[Any]]":
    """Run socket.getaddrinfo in a thread, because the system's resolver has its own timeout."""
    find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        addresses: "Future[list[Any]]" = Future()
        addresses.set_result(find(flags=socket.AI_NUMERICHOST))
        return addresses
    except socket.gaierror:
        return beside(find)
