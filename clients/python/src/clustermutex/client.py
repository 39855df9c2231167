"""Locks for programs with threads: the protocol, run by calls that block."""

from __future__ import annotations

import os
import queue
import socket
import ssl
import sys
import threading
from contextlib import ContextDecorator, ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Callable, Coroutine, List, Mapping, Optional, Sequence, Type, Union

from . import exits, process, record
from .attempt import Attempt, Core, acquire, holder, log
from .errors import LostError, MutexError, RefusedError
from .gateway import Gateway, IO, Watch, clock, parse_endpoint, run
from .hold import Handle, Hold, Request
from .periods import take_period
from .record import Attribute, Record
from .settings import PLAIN, Settings, leads, settle
from .together import Group

LINGER = exits.LIMIT  # how long a program that was interrupted takes to leave the queue, at most


class BlockingFlag:
    """A :class:`gateway.Flag` on a threading.Event."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, timeout: float) -> bool:
        return self._event.wait(timeout)


class BlockingConnection:
    """A :class:`gateway.Connection` on a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
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

    def interrupt(self) -> None:
        with self._open:
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not SSLSocket's, which is for its owner
            except OSError:
                pass

    def close(self) -> None:
        self.interrupt()  # a forked child may have the connection, too
        with self._open:
            self._socket.close()


class BlockingIO:
    """The :class:`gateway.IO` of threads. They are daemons: nothing here keeps the interpreter alive."""

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext], timeout: float) -> BlockingConnection:
        end = clock() + timeout
        failed = OSError("it has no address")
        for family, kind, protocol, _, address in addresses(host, port, timeout):
            sock = socket.socket(family, kind, protocol)
            try:
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

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        threading.Thread(target=lambda: run(work()), name="clustermutex", daemon=True).start()

    def flag(self) -> BlockingFlag:
        return BlockingFlag()


def addresses(host: str, port: int, timeout: float) -> List[Any]:
    """Return what socket.getaddrinfo does, in time: the system's resolver has a patience of its own."""
    find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        return find(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    found: "queue.Queue[Union[List[Any], OSError]]" = queue.Queue()

    def resolve() -> None:
        try:
            found.put(find())
        except (OSError, UnicodeError) as error:
            found.put(error if isinstance(error, OSError) else OSError(str(error)))

    try:
        threading.Thread(target=resolve, name="clustermutex", daemon=True).start()
    except RuntimeError:  # since Python 3.12 there are no new ones at the exit
        resolve()
    try:
        answer = found.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"{host} was not resolved in time") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def make_core(io: IO, endpoints: Union[str, Sequence[str]], owner: str, prefix: str, user: str, password: str, ca: str,
              cert: str, key: str, timeout: float, release_at_exit: bool) -> Core:
    """Check the settings of a client; a RefusedError says what is wrong with them."""
    try:
        urls = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
        all_endpoints = [parse_endpoint(url.strip()) for url in urls]
        if not all_endpoints:
            raise ValueError("no endpoints were given")
        if not prefix.startswith("/") or not prefix.endswith("/") or prefix == "/":
            raise ValueError(f'the prefix is "{prefix}", it must begin and end with a slash')
        if not timeout > 0:
            raise ValueError(f"the timeout is {timeout!r}, it must be positive")
        owner = owner or os.path.basename(sys.argv[0]) or "python"
        record.check_text("owner", owner)
        secure = any(e.tls for e in all_endpoints)
        if (ca or cert) and not secure:
            raise ValueError("certificates are given, but no endpoint begins with https://")
        if bool(cert) != bool(key):
            raise ValueError("a certificate and its key go together")
        if password and not user:
            raise ValueError("a password is given, but no user")
        tls = ssl.create_default_context(cafile=ca or None) if secure else None
        if tls is not None and cert:
            tls.load_cert_chain(cert, key)
    except (ValueError, OSError) as error:
        raise RefusedError(f"{ca or cert}: {error}" if isinstance(error, OSError) else str(error)) from None
    if release_at_exit:
        exits.install()
    return Core(Gateway(io, all_endpoints, tls, user, password, timeout), prefix, owner,
                BlockingIO() if release_at_exit else None)


class Client:
    """Takes locks. One client a process is enough; threads may share it.

    ``endpoints`` are URLs of etcd's members, a list or text with commas. ``owner`` names the program in the records;
    by default it is that of the running one. ``timeout`` is how many seconds a try may take, and one request before it
    is sent again, to the next endpoint. ``ca``, ``cert`` and ``key`` are files.

    What this process holds is released when it exits, and when it ends by SIGTERM, SIGINT or SIGHUP, if the application
    has no handler for that; ``release_at_exit=False`` switches that off.
    """

    def __init__(self, endpoints: Union[str, Sequence[str]], owner: str = "", *, prefix: str = "/mutexes/",
                 user: str = "", password: str = "", ca: str = "", cert: str = "", key: str = "",
                 timeout: float = 5.0, release_at_exit: bool = True) -> None:
        self._core = make_core(BlockingIO(), endpoints, owner, prefix, user, password, ca, cert, key, timeout,
                               release_at_exit)

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

        ``on_lost(error)``, with the LostError, and ``on_asked(request)`` are called from another thread.
        """
        settings = settle(name, (semaphore, weight, shared, exclusive), wait, alert_after, unlock_after, margin,
                          heartbeat, purpose, attributes)
        return Lock(self._core, settings, on_lost, on_asked)

    def lock_all(self, *locks: Lock) -> Locks:
        """Return several locks to take together, all or none: ``with client.lock_all(client.lock("a"), …) as both:``.

        They are taken in one transaction, or else in the order of their names. The shortest ``wait`` is that of all.
        """
        return Locks(self._core, locks)

    def campaign(self, name: str, *, life: float = 60.0, address: str = "", check: Optional[Callable[[], bool]] = None,
                 wait: Optional[float] = None, purpose: str = "", attributes: Optional[Mapping[str, Attribute]] = None,
                 on_lost: Optional[Callable[[LostError], None]] = None) -> Lock:
        """Return the lock of a leader: whoever holds it leads. It waits, then is kept alive until it is released.

        ``life``: how long the leadership outlasts the last sign of life. ``address``: where others reach this process,
        see :meth:`leader`. ``check``: while it does not return True, no sign of life is given.
        """
        settings = settle(name, PLAIN, wait, life, life, None, None, purpose, leads(address, attributes))
        return Lock(self._core, replace(settings, leads=True, check=check), on_lost, None)

    def leader(self, name: str) -> Optional[Record]:
        """Return who leads, None if nobody does: ``attributes`` have the ``address``."""
        return run(holder(self._core, name))


class Lock(Handle, ContextDecorator):
    """One lock of a :class:`Client`. It can be taken again after it was released, by one thread at a time."""

    def __init__(self, core: Core, settings: Settings, on_lost: Optional[Callable[[LostError], None]],
                 on_asked: Optional[Callable[[Request], None]]) -> None:
        super().__init__(core, settings)
        self._on_lost = on_lost or (lambda error: None)
        self._on_asked = on_asked or (lambda request: None)
        self._stop = core.io.flag()
        self._taking = threading.Lock()
        self._waits_on: Optional[Watch] = None

    def acquire(self) -> Lock:
        """Take the lock. A HeldError says who has it; it is a WaitTimeoutError after a wait."""
        if not self._taking.acquire(blocking=False):
            raise RefusedError(f'another thread is taking lock "{record.visible(self.name)}" with this object: '
                               "give each thread its own")
        try:
            self.check_idle()
            self.begin(run(acquire(self._core, self.settings, process.backtrace(), self._stop, self._waits)))
        except (KeyboardInterrupt, SystemExit):
            self._core.linger(LINGER)
            raise
        finally:
            self._stop = self._core.io.flag()
            self._taking.release()
        return self

    def begin(self, attempt: Attempt) -> None:
        self._hold = Hold(attempt, self._on_lost, self._on_asked)
        self._hold.begin()

    def once_per(self, every: float, work: Callable[[Lock], object], *, offset: float = 0.0) -> bool:
        """Run work under the lock once in each period of so many seconds over all replicas; report whether this did.

        Periods are multiples of ``every`` since 1970 in UTC, later by ``offset``. False: the period is taken. A
        HeldError: somebody holds the lock, and the period is not used up. Otherwise it is when the work begins.
        """
        if not run(take_period(self._core, self, process.backtrace(), self._stop, every, offset)):
            return False
        with ExitStack() as stack:
            stack.push(self)
            work(self)
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
        watch = self._waits_on
        if watch is not None:
            watch.interrupt()

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
        return Lock(self._core, self.settings, self._on_lost, self._on_asked)

    def _waits(self, watch: Optional[Watch]) -> None:
        self._waits_on = watch


class Locks:
    """Several locks, all or none, for ``with``, or for ``acquire`` and ``release``. Each has a token of its own."""

    def __init__(self, core: Core, locks: Sequence[Lock]) -> None:
        self._core = core
        self._group = Group(core, locks)
        self._waits_on: Optional[Watch] = None
        self._stop = core.io.flag()
        self.locks = list(locks)

    def acquire(self) -> Locks:
        """Take all of them, or none. The errors are those of :meth:`Lock.acquire`, of the one that was not taken."""
        try:
            run(self._group.acquire(process.backtrace(), self._stop, self._waits, self.cancel))
        finally:
            self._stop = self._core.io.flag()
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
        watch = self._waits_on
        if watch is not None:
            watch.interrupt()

    def __enter__(self) -> Locks:
        return self.acquire()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        with ExitStack() as stack:
            for lock in self.locks:
                stack.callback(lock.__exit__, kind, error, trace)

    def _waits(self, watch: Optional[Watch]) -> None:
        self._waits_on = watch
