"""What all locks of one client share: the connections to etcd, and the cleanup in the background."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from functools import partial
from typing import Sequence, Union

from . import exits, record
from .errors import MutexError, RefusedError, UnavailableError
from .gateway import Gateway
from .lookout import Lookout
from .loops import AsyncIO
from .settings import seconds_of
from .threads import BlockingIO
from .transport import Certificates, clock, parse_endpoint

PATIENCE = 15.0  # how long alive and release wait for etcd
TOMBSTONE_TTL = 3600 + 600  # each lease is used for new tombstones for ten minutes
CLEANUP_FOR = 3600.0

log = logging.getLogger("clustermutex")
log.addHandler(logging.NullHandler())


class Session:
    """What all locks of one client share."""

    def __init__(self, gateway: Gateway, loop: AsyncIO, prefix: str, owner: str, release_at_exit: bool) -> None:
        self.loop = loop
        self.prefix = prefix
        self.owner = owner
        self.release_at_exit = release_at_exit
        self._blocking = gateway
        self._in_loop = gateway.over(loop)
        self._tombstones: tuple[str, float] = ("", 0.0)  # the lease, and until when it is used
        self._debts: set[exits.Debt] = set()  # being settled in the background
        self._lookouts: list[Lookout] = []  # those with room

    @property
    def gateway(self) -> Gateway:
        """The gateway for the caller: a task of the event loop, or a thread that may block."""
        return self._in_loop if self.loop.here() else self._blocking

    def patience(self, wait: float | None) -> float:
        """Return the longest time that a call with this ``wait`` may take."""
        return float("inf") if wait is None else wait or self.gateway.timeout

    def lookout(self) -> Lookout:
        """Return a lookout with room for another hold."""
        self._lookouts = [one for one in self._lookouts if one.room()] or [Lookout(self.gateway)]
        return self._lookouts[0]

    async def grant(self, ttl: float, until: float) -> str:
        """Grant a new lease."""
        answer = await self.gateway.send("grant", {"TTL": str(int(ttl))}, until)
        if not answer.body or "ID" not in answer.body:
            raise UnavailableError("etcd granted no lease: it is out of space")
        return str(answer.body["ID"])

    async def tombstone_lease(self, until: float, fresh: bool) -> str:
        """Return a lease for tombstones that lives for at least another hour."""
        lease, end = self._tombstones
        if fresh or clock() > end:
            lease = await self.grant(TOMBSTONE_TTL, until)
            self._tombstones = (lease, clock() + TOMBSTONE_TTL - 3600)
        return lease

    def later(self, cleanup: exits.Work) -> None:
        """Run a cleanup in the background until it succeeds, for an hour at most."""
        debt = exits.Debt(cleanup, self.release_at_exit)
        debt.begin()
        self._debts.add(debt)
        self.loop.spawn(partial(self._settle, debt, clock() + CLEANUP_FOR))

    def linger(self, most: float) -> None:
        """Block until the background cleanup is done, before this process ends."""
        end = clock() + most
        while any(debt.pid == os.getpid() for debt in list(self._debts)) and clock() < end:
            time.sleep(0.01)

    async def _settle(self, debt: exits.Debt, end: float) -> None:
        try:
            while not await self._settled(debt, end):
                await asyncio.sleep(1)
        finally:
            self._debts.discard(debt)
        debt.end()

    async def _settled(self, debt: exits.Debt, end: float) -> bool:
        try:
            await debt.work(min(end, clock() + PATIENCE))
        except UnavailableError:
            return clock() >= end
        except MutexError as error:
            log.warning("a cleanup failed: %s", error)
        return True


class Opened:
    """What clients for threads and clients for asyncio have in common."""

    _loop: AsyncIO

    def __init__(self, endpoints: Union[str, Sequence[str]], owner: str = "", *, prefix: str = "/mutexes/",
                 user: str = "", password: str = "", ca: str = "", cert: str = "", key: str = "",
                 timeout: float = 5.0, release_at_exit: bool = True) -> None:
        """Check the settings. Raises RefusedError if they are not valid."""
        try:
            urls = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
            all_endpoints = [parse_endpoint(url.strip()) for url in urls]
            if not all_endpoints:
                raise ValueError("no endpoints were given")
            if not prefix.startswith("/") or not prefix.endswith("/") or prefix == "/":
                raise ValueError(f'the prefix is "{prefix}"; it must begin and end with a slash')
            seconds_of("timeout", timeout)
            owner = owner or os.path.basename(sys.argv[0]) or "python"
            record.check_text("owner", owner)
            secure = any(e.tls for e in all_endpoints)
            if (ca or cert) and not secure:
                raise ValueError("certificates are given, but no endpoint begins with https://")
            if bool(cert) != bool(key):
                raise ValueError("a certificate and its key go together")
            if password and not user:
                raise ValueError("a password is given, but no user")
            certificates = Certificates(ca, cert, key) if secure else None
        except (ValueError, OSError) as error:
            raise RefusedError(f"{ca or cert}: {error}" if isinstance(error, OSError) else str(error)) from None
        gateway = Gateway(BlockingIO(), all_endpoints, certificates, user, password, timeout)
        self._session = Session(gateway, self._loop, prefix, owner, release_at_exit)
        if release_at_exit:
            exits.install()  # after the gateway, because releasing needs connections
