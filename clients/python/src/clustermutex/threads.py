"""Blocking I/O for callers' threads."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, Callable, TypeVar

from .transport import clock

T = TypeVar("T")


class BlockingFlag:
    """A :class:`transport.Flag` on a threading.Event."""

    def __init__(self) -> None:
        self.cuts: Callable[[], None] | None = None
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
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)  # SSLSocket's recv does not support MSG_PEEK
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def interrupt(self) -> None:
        with self._open:
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # SSLSocket's is only for the owning thread
            except OSError:
                pass

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
