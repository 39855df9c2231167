"""Watches the records of many holds on one connection."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

from .gateway import Gateway
from .loops import GATHERED
from .transport import Watch

if TYPE_CHECKING:
    from .hold import Hold

MOST = 64  # holds per connection: each new one reopens it
SILENCE = 60.0  # after which a watch is considered dead
MAX_PAUSE = 2.0


class Lookout:
    """One connection for the watches of some holds. It reopens for each new hold without missing events."""

    def __init__(self, gateway: Gateway) -> None:
        self.holds: list[Hold] = []
        self.open: list[Hold] = []
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()
        self._pause = GATHERED
        self._opens = asyncio.ensure_future(self._open())
        self._reads: asyncio.Future[None] | None = None

    def room(self) -> bool:
        """Report whether it can take another hold. It ends with its last one."""
        return self._loop is asyncio.get_running_loop() and 0 < len(self.holds) < MOST

    def add(self, hold: Hold) -> None:
        self.holds.append(hold)
        self._more.set()

    def remove(self, hold: Hold) -> None:
        """Stop watching a hold. Removing the last one closes the connection."""
        self.holds.remove(hold)
        if not self.holds:
            self._opens.cancel()
            if self._reads is not None:
                self._reads.cancel()

    async def _open(self) -> None:
        while True:
            await self._more.wait()
            await asyncio.sleep(self._pause)
            self._more.clear()
            holds = list(self.holds)
            try:
                watch = await self._gateway.watch([hold.watched for hold in holds])
            except OSError:
                self._broken()
                continue
            self._follow(watch)
            self.open = holds

    def _follow(self, watch: Watch) -> None:
        if self._reads is not None:
            self._reads.cancel()
        self._reads = asyncio.ensure_future(self._read(watch))
        self._reads.add_done_callback(lambda _: watch.close())  # runs even if the task never started

    async def _read(self, watch: Watch) -> None:
        try:
            while True:
                events = await watch.events(SILENCE)
                if not events:
                    raise OSError("the watch is silent")
                self._pause = GATHERED
                for event in events:
                    key = base64.b64decode(event["kv"]["key"]).decode(errors="replace")
                    for hold in self.holds:
                        if key.startswith(hold.watched.key):
                            hold.notice(event)
        except Exception:  # the watch broke, or its messages are malformed
            self._broken()

    def _broken(self) -> None:
        """Reopen it a moment later. Until then, the holds have to read their records."""
        self._pause = min(2 * self._pause, MAX_PAUSE)
        self._more.set()
        for hold in self.holds:
            hold.notice(None)
