"""A hold from beginning to end: alive, heartbeat, the ways to lose it, release.

Threads and asyncio share the methods that wait; only their :class:`IO` differs.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Awaitable, Callable, Mapping, TypeVar

from . import record
from .attempt import Attempt
from .errors import LostError, MutexError, RefusedError, UnavailableError
from .lookout import Lookout
from .loops import AsyncFlag, within
from .record import Key
from .session import PATIENCE, log
from .settings import durations, in_words
from .transactions import Body, Verdict, Watched, b64, keys
from .transport import Flag, clock

WATCH_AFTER = 0.1  # most holds are shorter, and a watch costs more than they do
RECHECK = 10.0  # how often a holder reads its record without an event
WHY_TIMEOUT = 1.0  # how long a holder that has lost the lock tries to read why
TICK = 2.0  # how soon a machine that slept is noticed


@dataclass(frozen=True)
class Request:
    """A request that the holder finish early. Control characters in its texts are escaped."""

    by: str
    reason: str
    source: str = ""
    at: float | None = None  # seconds since 1970, by the writer's clock


OnLost = Callable[[LostError], None]
OnAsked = Callable[[Request], None]
T = TypeVar("T")


class Hold:
    """One hold of a lock."""

    def __init__(self, attempt: Attempt, on_lost: OnLost | None, on_asked: OnAsked | None) -> None:
        self.attempt = attempt
        self.settings = attempt.settings
        self.txn = attempt.txn.of(attempt.share)
        self.token = attempt.token
        self.over = AsyncFlag()
        self.stops: Flag | None = None  # ends the owner's wait for another lock if this one is lost
        self.asked: Request | None = None
        self._pid = os.getpid()
        self._on_lost = on_lost
        self._on_asked = on_asked
        self._once = threading.Lock()  # guards the end and the deadline
        self._error: LostError | None = None
        self._released = False
        self.lookout: Lookout | None = None
        self._news: asyncio.Event  # created in the loop that awaits it
        self._events: list[dict[str, Any]] = []
        self._seen = attempt.token  # the revision up to which changes to the record are known
        self._extensions = {b64(self.txn.base + name) for name in ("alive", "alert_at", "auto_unlock_at")}
        self._asked_at = 0  # the revision of the latest request
        self._since = attempt.base
        self._margin = self.settings.margin_of(self.settings.auto_unlock_after)
        self._interval = (self.settings.auto_unlock_after - self._margin) / 3  # of a heartbeat
        self._deadline = attempt.base[0] + self.settings.auto_unlock_after - self._margin
        self._recorded = attempt.base[1] + self.settings.auto_unlock_after  # the latest known auto_unlock_at
        self._alert_target = attempt.base[1] + self.settings.alert_after
        self._alert_granted = 0.0
        self._progress = ""
        self._reported = 0  # the latest known mod revision of ``alive``
        attempt.release = self.give_back  # when the hold is complete: a signal may end the process at any time

    def begin(self) -> None:
        """Start the background work of the hold."""
        self.attempt.session.loop.spawn(self._live)

    async def _live(self) -> None:
        if self.over.is_set():
            return
        third = self.settings.auto_unlock_after / 3
        signs = (third, self._lead) if self.settings.leads else (self._interval, self._beat)
        tasks = [asyncio.ensure_future(work) for work in (self._guard(), self._observe(), self._every(*signs))]
        try:
            await self.over.wait()
        finally:
            for task in tasks:
                task.cancel()

    # -- loss

    @property
    def lost(self) -> LostError | None:
        """Why the hold was lost, or None."""
        self.check_process()
        if self._error is None and not self._released and clock() >= self._deadline:
            longest = self.settings.heartbeat or math.inf
            over = clock() >= self._since[0] + longest - self._margin - 0.01  # it is rounded
            why = f"its maximum hold of {in_words(longest)} is over" if over else "etcd confirmed no extension"
            self.lose(LostError(self.settings.name, "deadline", why=why))
        return self._error

    def mine(self) -> bool:
        """Report whether this is the process that took the lock, not a forked child."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        """Raise RefusedError in a forked child of the process that holds the lock."""
        if not self.mine():
            raise RefusedError(f'lock "{record.visible(self.settings.name)}" belongs to process {self._pid}, not to '
                               f"{os.getpid()}, which was forked from it")

    def lose(self, error: LostError) -> None:
        """End the hold. Only the first reason counts."""
        with self._once:
            if self._error is not None or self._released:
                return
            self._error = error
        self.over.set()
        if self.stops is not None:
            self.stops.set()
        self.attempt.debt.end()
        if self.attempt.doubt and error.reason != "deadline":  # after a deadline the release takes care of it
            self.attempt.session.later(self.attempt.cancel)
        self._tell(self._on_lost, error)

    def _tell(self, callback: Callable[[T], object] | None, what: T) -> None:
        if callback is not None:
            self.attempt.session.loop.aside(partial(_call, callback, what))

    async def _guard(self) -> None:
        """Declare the lock lost when its deadline has passed."""
        while self.lost is None:
            await asyncio.sleep(min(max(self._deadline - clock(), 0), TICK))

    async def _observe(self) -> None:
        """Follow changes to the record until the hold is over."""
        await asyncio.sleep(WATCH_AFTER)
        self._news = asyncio.Event()
        self.lookout = self.attempt.session.lookout()
        self.lookout.add(self)
        try:
            while True:
                with suppress(TimeoutError):
                    await within(self._news.wait(), RECHECK)
                self._news.clear()
                events, self._events = self._events, []
                try:
                    await self._look(WHY_TIMEOUT if events else RECHECK, events)
                except Exception as error:  # the next look may succeed
                    if not isinstance(error, UnavailableError):
                        log.exception("the watch on a held lock failed")
                    await asyncio.sleep(TICK)
        finally:
            self.lookout.remove(self)

    @property
    def watched(self) -> Watched:
        """What the lookout watches for this hold."""
        return Watched(self.txn.base, self.txn.end, start=self._seen + 1)

    def notice(self, event: dict[str, Any] | None) -> None:
        """Read the record, unless the event is an extension, which only this holder writes."""
        if event is not None:
            self._seen = max(self._seen, int(event["kv"].get("mod_revision", 0)))
            if event.get("type") != "DELETE" and event["kv"]["key"] in self._extensions:
                return
            self._events.append(event)
        self._news.set()

    def _gone(self, events: list[dict[str, Any]]) -> bool:
        """Report whether an event deletes this hold's ``uuid`` key."""
        return any(event.get("type") == "DELETE" and k.key == self.txn.held and k.mod_revision > self.token
                   for event in events for k in keys({"kvs": [event.get("kv", {})]}))

    async def _look(self, timeout: float, events: list[dict[str, Any]]) -> None:
        """Read the record, and act on what others did to it."""
        try:
            await self._judge(await self._ask("verify", self.txn.verify(self.token), clock() + timeout))
        except UnavailableError:
            if not self._gone(events):
                raise
            self.lose(LostError(self.settings.name, "deleted"))

    async def _judge(self, verdict: Verdict) -> None:
        if verdict.word == "lost":
            self.lose(self._why(verdict))
        elif verdict.record:
            self._seen = max(self._seen, verdict.revision)
            self._learn(verdict.record)

    def _why(self, verdict: Verdict) -> LostError:
        return LostError(self.settings.name, verdict.reason, verdict.by, verdict.why)

    # -- what others write

    def _learn(self, fields: Mapping[str, Key]) -> None:
        """Read extensions by operators and requests to finish."""
        moved = record.seconds_of(_text(fields.get("auto_unlock_at")))
        extended = self._note(fields.get("extended"))
        if moved is not None:
            self._postpone(moved, extended.get("seconds"))
        if extended:
            self._alert_granted = record.seconds_of(_text(fields.get("alert_at"))) or 0.0
        asked = fields.get("asked")
        note = self._note(asked)
        if asked is None or not note or asked.mod_revision <= self._asked_at:
            return
        self._asked_at = asked.mod_revision
        by, reason, source = (record.visible(note.get(name) or "", record.MAX_TEXT)
                              for name in ("by", "reason", "source"))
        self.asked = Request(by, reason, source, record.seconds_of(note.get("at")))
        self._tell(self._on_asked, self.asked)

    def _note(self, key: Key | None) -> dict[str, Any]:
        if key is None or key.mod_revision < self.token:  # it belongs to an earlier hold
            return {}
        return record.read_note(key.value, self.attempt.uuid, self.token)

    def _postpone(self, auto_unlock_at: float, given: float | None) -> None:
        """Move the local deadline by as much as an operator moved the record's."""
        with self._once:
            more = auto_unlock_at - self._recorded
            if more < 0.001:
                return
            if given is not None and 0 < given < more:  # the operator's clock may be ahead
                more = min(more, clock() + given - self._margin - self._deadline)
            self._recorded = auto_unlock_at
            self._deadline += max(more, 0)

    # -- extending

    async def alive(self, progress: str = "", alert_after: float | None = None,
                    auto_unlock_after: float | None = None, patience: float = PATIENCE) -> None:
        """Report progress. Both deadlines count from now."""
        s = self.settings
        try:
            record.check_text("progress", progress)
            alert, unlock = s.alert_after, s.auto_unlock_after
            if alert_after is not None or auto_unlock_after is not None:
                alert, unlock = durations(alert_after, auto_unlock_after, s.heartbeat)
        except ValueError as error:
            raise RefusedError(str(error)) from None
        self._progress = progress.replace("\n", " ")
        self._alert_target = self._now() + alert
        await self._extend(unlock, min(patience, PATIENCE))

    async def _every(self, seconds: float, extend: Callable[[], Awaitable[None]]) -> None:
        """Extend at intervals, sooner after a failure."""
        pause = seconds
        while True:
            await asyncio.sleep(pause)
            pause = seconds
            try:
                await extend()
            except Exception as error:  # the next one may succeed
                pause = min(seconds, TICK)
                if not self.over.is_set() and not isinstance(error, UnavailableError):
                    log.warning("no sign of life: %s", error)

    async def _beat(self) -> None:
        """Extend until the heartbeat's maximum hold, and while the caller waits for other locks."""
        s = self.settings
        left = s.auto_unlock_after if self.stops is not None else self._since[0] + (s.heartbeat or 0) - clock()
        if left > self._margin:
            await self._extend(min(s.auto_unlock_after, left), self._interval, beat=True)

    async def _lead(self) -> None:
        """Give a sign of life if the leader's check passes."""
        check = self.settings.check
        fit = check is None or self.attempt.session.loop.aside(check)
        if isinstance(fit, Future):
            fit = asyncio.wrap_future(fit)
        if fit is True or inspect.isawaitable(fit) and await fit:
            await self.alive(self._progress)

    def waits_for(self, name: str) -> None:
        """Have the next extension report which lock the holder waits for."""
        if self.lost is not None:
            raise self.lost
        self._progress = f'waits for lock "{record.visible(name)}"'

    async def _extend(self, auto_unlock_after: float, patience: float = PATIENCE, beat: bool = False) -> None:
        if self.lost is not None:
            raise self.lost
        if self._released:
            raise RefusedError(f'lock "{record.visible(self.settings.name)}" was released')
        began, now = clock(), self._now()
        unlock_at = now + auto_unlock_after
        alert_at = max(min(self._alert_target, unlock_at), self._alert_granted)
        fields = {"alert_at": record.format_time(alert_at), "auto_unlock_at": record.format_time(unlock_at),
                  "alive": f"{record.format_time(now)} {self._progress}".rstrip()}
        verdict = await self._ask("alive", self.txn.alive(self.token, fields, self._reported if beat else None),
                                  min(began + patience, max(self._deadline, began + 0.1)))
        await self._judge(verdict)
        if self.lost is not None:
            raise self.lost
        if verdict.word == "again":
            self._adopt(verdict.record)
            raise UnavailableError("another process extends the hold")
        with self._once:
            self._reported = max(self._reported, verdict.revision)
            self._margin = self.settings.margin_of(auto_unlock_after)
            self._deadline = max(self._deadline, began + auto_unlock_after - self._margin)
            self._recorded = max(self._recorded, unlock_at)

    def _adopt(self, fields: Mapping[str, Key]) -> None:
        """Adopt the progress and the alert time that another process wrote for this hold."""
        alive = fields.get("alive")
        self._reported = alive.mod_revision if alive is not None else 0
        self._progress = _text(alive).partition(" ")[2]
        self._alert_target = record.seconds_of(_text(fields.get("alert_at"))) or self._alert_target

    def _now(self) -> float:
        """Return the wall clock for deadlines. If it is set back, deadlines still advance with elapsed time."""
        return max(time.time(), self._since[1] + clock() - self._since[0])

    # -- releasing

    async def release(self, until: float = math.inf) -> None:
        """Release the lock, in the background after ``until``. Raises LostError if it was already lost.

        A forked child leaves it to its parent.
        """
        if not self.mine():
            return
        with self._once:
            if self._released:
                return
            self._released = True
        self.over.set()
        if self._error is not None and self._error.reason != "deadline":
            raise self._error
        try:
            verdict = await self._release(min(clock() + PATIENCE, until))
        except RefusedError:
            raise
        except BaseException:  # no answer, an interrupt, or a cancelled task
            self.attempt.session.later(self._release_later)
            raise
        finally:
            self.attempt.debt.end()
        if self.attempt.doubt:
            self.attempt.session.later(self.attempt.cancel)
        if verdict.word == "lost":
            raise self._why(verdict)
        if verdict.detail and self._error is not None:
            raise self._error  # another holder may have had the lock since

    async def _release(self, until: float) -> Verdict:
        word = ""
        while self.attempt.doubt and word in ("", "lease"):
            try:
                lease = await self.attempt.session.tombstone_lease(until, fresh=word == "lease")
            except UnavailableError:
                if clock() >= until:
                    raise
                break  # etcd has no space for it
            verdict = await self._ask("release_in_doubt", self.txn.release_in_doubt(self.token, lease), until)
            word = verdict.word
            if word in ("released", "lost"):
                self.attempt.doubt = False
                return verdict
        return await self._ask("release", self.txn.release(self.token, self.attempt.queued), until)

    def leave(self) -> None:
        """End here, and leave the hold to the process that adopts it."""
        with self._once:
            self._released = True
        self.over.set()
        self.attempt.debt.end()

    async def give_up(self, until: float) -> None:
        """Release, ignoring errors."""
        with suppress(MutexError):
            await self.release(until)

    async def give_back(self, until: float) -> None:
        """Release for a caller that cannot, as at the end of the process. No callback reports a loss."""
        with self._once:
            self._error = self._error or LostError(self.settings.name, "released")
            self._released = True
        self.over.set()
        await self._release_later(until)

    async def _release_later(self, until: float) -> None:
        if clock() < self._deadline + self._margin:
            await self._release(until)
        if self.attempt.doubt:
            await self.attempt.cancel(until)

    async def _ask(self, step: str, body: Body, until: float) -> Verdict:
        answer = await self.attempt.session.gateway.send(step, body, until)
        return self.txn.verdict(step, answer, self.token)


def _text(key: Key | None) -> str:
    return "" if key is None else key.value.decode(errors="replace")


def _call(callback: Callable[[T], object], what: T) -> None:
    try:
        callback(what)
    except Exception:
        log.exception("a callback failed")
