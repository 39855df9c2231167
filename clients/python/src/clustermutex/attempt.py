"""One attempt to get a lock, under one uuid: try, join the queue, wait, take the lock; or undo all of it."""

from __future__ import annotations

import os
import random
import socket
import time
import uuid
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, AsyncIterator, Callable, Sequence

from . import exits, identity, record
from .errors import CancelledError, HeldError, MutexError, RefusedError, UnavailableError, WaitTimeoutError
from .gateway import Heard
from .kinds import SEMAPHORE, SHARED, Claim, Holders
from .record import Key
from .settings import Settings, in_words
from .session import PATIENCE, Session
from .shares import Shares
from .transactions import Body, Transactions, Verdict, keys
from .transport import Flag, Watch, clock
from .version import CLIENT

TICKET_TTL = 10.0
RECHECK = 10.0  # how often a waiter looks without an event
AFTERWARDS = 0.3  # how long a call may take after its wait, to leave the queue and to read who holds the lock
MAX_LEAVES = 5
MAX_RIVALS = 3  # immediate retries if others claim shares at the same time


class Again(Exception):
    """This attempt failed; start again under another uuid."""


@dataclass(eq=False)
class Call:
    """One call for a lock, with all of its attempts."""

    trace: str  # the caller's backtrace
    stop: Flag  # gives the call up
    until: float
    began: float = field(default_factory=time.time)
    heard: Heard = field(default_factory=Heard)
    refusal: HeldError | None = None
    silence: str = "etcd did not answer in time"
    attempts: list[Attempt] = field(default_factory=list)

    def undo(self) -> None:
        """Give back in the background whatever it took: its caller got an exception instead."""
        for attempt in self.attempts:
            attempt.undo()


async def acquire(session: Session, settings: Settings, call: Call) -> Attempt:
    """Get the lock, waiting as long as the call allows."""
    pause = 0.02
    if session.release_at_exit:
        exits.install()
    while True:
        attempt = Attempt(session, settings, call)
        attempt.debt.begin()
        try:
            await attempt.check_process()
            if call.stop.is_set():
                raise attempt.over()
            await attempt.run()
            await attempt.check_process()
            return attempt
        except Again:
            await attempt.settle(call.until)
        except BaseException as error:
            attempt.doubt |= not isinstance(error, MutexError)  # an interrupt may come between an answer and its note
            if attempt.dirty:
                session.later(attempt.give_up)
            raise
        finally:
            if not attempt.token:
                attempt.debt.end()
                call.attempts.remove(attempt)
        pause = min(2 * pause, 2.0)
        await call.stop.wait(min(pause, max(call.until - clock(), 0)))


@asynccontextmanager
async def in_doubt(attempts: Sequence[Attempt]) -> AsyncIterator[None]:
    """Wrap a request that may take the locks: however it ends, attempts without a token are given up."""
    for attempt in attempts:
        attempt.debt.begin()
    await attempts[0].check_process()
    for attempt in attempts:
        attempt.doubt = True
    try:
        yield
        await attempts[0].check_process()
    except BaseException as error:
        for attempt in attempts:
            attempt.doubt |= not isinstance(error, MutexError)  # an interrupt may come between an answer and its note
        raise
    finally:
        for attempt in attempts:
            if not attempt.token:
                attempt.debt.end()
                if attempt.doubt:
                    attempt.session.later(attempt.give_up)


async def survey(session: Session, txn: Transactions, until: float) -> tuple[Holders, list[Key]]:
    """Read who holds a lock, and the tickets."""
    answer = await session.gateway.send("survey", txn.survey(), until)
    reads = [keys(r["response_range"]) for r in answer.body["responses"]]
    return txn.holders(reads), reads[-1]


async def holder(session: Session, name: str) -> record.Record | None:
    """Read who holds a plain lock."""
    holders, _ = await survey(session, Transactions(session.prefix, name, ""), clock() + session.gateway.timeout)
    return holders.whole


class Attempt:
    """One attempt and its known state. It holds the lock once it has a token."""

    def __init__(self, session: Session, settings: Settings, call: Call) -> None:
        self.session = session
        self.settings = settings
        self.call = call
        self.uuid = str(uuid.uuid4())
        self.txn: Transactions = (Shares(session.prefix, settings.name, self.uuid, settings.need) if settings.need.kind
                                  else Transactions(session.prefix, settings.name, self.uuid))
        self.token = 0
        self.share = 0  # the share that it took; 0: the lock itself
        self.holders = Holders()  # as last read
        self.base = (0.0, 0.0)  # when the record's times were computed, by clock() and since 1970
        self.doubt = False  # a request that may take the lock got no answer
        self.queued = False  # a ticket was put, or may have been
        self.lease = ""  # of the ticket
        self.position = 0
        self.before: str | None = None  # the ticket ahead; empty: this attempt is first; None: not known
        self.period = ""  # the previous value of a job's period key
        self.debt = exits.Debt(self.give_back, session.release_at_exit, lambda: bool(self.token))
        self.release: exits.Work | None = None  # of the hold that it became
        call.attempts.append(self)
        self._renewed = 0.0

    @property
    def dirty(self) -> bool:
        """Whether anything of this attempt may be in etcd, or may still get there."""
        return self.doubt or self.queued or bool(self.lease)

    async def run(self) -> None:
        """Get the lock. Raises Again to start over under another uuid."""
        try:
            verdict = await self._take("try", self.txn.try_)
            rivals = 0
            while verdict.word == "again" and not self.doubt and (rivals < MAX_RIVALS or self.settings.wait == 0):
                rivals += 1
                stopped = rivals > MAX_RIVALS and await self.call.stop.wait(random.uniform(0.01, 0.1))
                if stopped or clock() >= self.call.until:
                    break
                verdict = await self._take("try", self.txn.try_, min(rivals, 6))
            if not self.token:
                await self._refused(verdict)
                await self._join()
                await self._wait()
        except UnavailableError as error:
            self.call.silence = str(error)
            raise (self.over() if clock() >= self.call.until or self.call.stop.is_set() else Again()) from None
        if self.late():
            self.token, self.doubt = 0, True
            raise Again
        if self.lease:  # without its lease, no late join can put the ticket again
            self.session.later(self._revoke)

    def late(self) -> bool:
        """Report whether half of the hold's time is over: the machine slept, or the answer took that long."""
        return clock() - self.base[0] > self.settings.auto_unlock_after / 2

    # -- trying

    async def _take(self, step: str, body: Callable[[dict[str, str], Claim], Body], rivals: int = 0) -> Verdict:
        """Send a transaction that takes the lock, with deadlines from now. Resend for at most a third of them."""
        spread = rivals > 1 and self.settings.need.kind == SHARED  # readers need only a number of their own
        claim = self.txn.claim(self.holders, random.randrange(2 ** rivals) if spread else 0)
        fields = self.fields()
        limit = min(self.call.until, self.base[0] + self.settings.auto_unlock_after / 3)
        verdict = await self._ask(step, body(fields, claim), limit)
        self.holders = verdict.holders or Holders()
        self._got(verdict, claim.share)
        return verdict

    def _got(self, verdict: Verdict, share: int = 0) -> None:
        """Record the token, and the share that was taken."""
        self.token = verdict.token
        self.share = share if verdict.share is None else verdict.share

    async def _refused(self, verdict: Verdict) -> None:
        """Raise HeldError, or return if the call is to wait."""
        self.call.refusal = self.held(WaitTimeoutError, self.holders, [])
        if self.settings.wait == 0:
            tickets: list[Key] = []
            with suppress(MutexError):
                _, tickets = await survey(self.session, self.txn, max(self.call.until, clock() + AFTERWARDS))
            raise await self.refusal(HeldError, self.holders, tickets)
        if self.doubt:
            raise Again  # a late commit could add a second share beside the one from the queue, or have older times

    async def refusal(self, kind: Any, holders: Holders, tickets: list[Key]) -> HeldError:
        """Return the error that says who holds the lock and, if its time is over, whether nothing removes it."""
        stays = False
        if any(h.auto_unlock_at is not None and h.auto_unlock_at < time.time() for h in holders.all):
            with suppress(MutexError):
                answer = await self.session.gateway.send("read_period", self.txn.read_period(), clock() + AFTERWARDS)
                stays = not any(key.lease for key in keys(answer.body["responses"][1]["response_range"]))
        return self.held(kind, holders, tickets, stays)

    def held(self, kind: Any, holders: Holders, tickets: list[Key], stays: bool = False) -> HeldError:
        name, need = self.settings.name, self.settings.need
        holder = next(iter(holders.all), None)
        own = [self.txn.ticket] + [self.txn.queue + other.uuid for other in holders.all]
        waiting = sum(k.key not in own for k in tickets)
        delay = holders.delay or next(iter(holders.delays.values()), None)
        delayed = None if holders.room(need) else delay
        line = f'nobody holds lock "{record.visible(name)}", but others are ahead'
        if holder:
            line = f'lock "{record.visible(name)}" is held by {holder.describe()}'
        elif delayed:
            line = f'nobody holds lock "{record.visible(name)}", but there is {delayed.describe()}'
        if len(holders.all) > 1:
            line += f", and by {len(holders.all) - 1} more"
        if stays:
            line += "; no unlocker is running, so nothing removes it"
        if need.kind == SEMAPHORE:
            line += f"; {holders.free(need.limit)} of {need.limit} permits are free, {need.weight} wanted"
        if waiting:
            line += f"; {waiting} waiting"
        if kind is WaitTimeoutError and self.settings.wait is not None:
            line = f"waited {in_words(self.settings.wait)}: {line}"
        error: HeldError = kind(name, holder, waiting, line, delayed, holders.all)
        return error

    # -- waiting

    async def _join(self) -> None:
        self.lease = await self.session.grant(TICKET_TTL, min(self.call.until, clock() + PATIENCE))
        self._renewed = clock()
        self.queued = True
        verdict = await self._ask("join", self.txn.join(self._ticket(), self.lease), self.call.until)
        if not verdict.position:
            raise Again
        self.position, self.before = verdict.position, verdict.before

    async def _wait(self) -> None:
        """Wait to be first in the queue, then take the lock."""
        watch: Watch | None = None
        watched = ""
        try:
            while not self.token:
                verdict = await self._look()
                self._got(verdict)
                self.holders = verdict.holders or self.holders
                if verdict.restore is not None:
                    await self._try_once("restore_tail", self.txn.restore_tail(verdict.restore), self.call.until)
                if verdict.word == "turn":
                    verdict = await self._take("turn", partial(self.txn.turn, self.position))
                    if verdict.word in ("again", "wait") and verdict.doubt:  # late, it has older times
                        raise Again
                if verdict.word == "lost":
                    raise Again
                if verdict.word == "wait" and watch is not None and watched == verdict.watch:
                    if not await self._silence(watch):
                        watched = ""
                elif verdict.word == "wait":
                    if watch is not None:
                        watch.close()
                    watch, watched = await self._open(verdict.watch), verdict.watch
        finally:
            self.call.stop.cuts = None
            if watch is not None:
                watch.close()

    async def _look(self) -> Verdict:
        """Read this attempt's place in the queue. Scan the queue only if the ticket ahead is not known."""
        verdict = Verdict("scan")
        while verdict.word == "scan":
            await self._check()
            step, body = "scan", self.txn.scan(self.position)
            if self.before is not None:
                step, body = "look", self.txn.look(self.before)
            try:
                verdict = await self._ask(step, body, min(self.call.until, clock() + RECHECK / 3))
                self.before = verdict.before
            except UnavailableError:
                await self._renew()
        return verdict

    async def _open(self, key: str) -> Watch | None:
        """Open the watch on the key ahead. The caller then looks again."""
        try:
            watch = await self.session.gateway.watch(self.txn.watched(key), max(self.call.until - clock(), 0))
        except OSError:
            await self._renew()
            await self.call.stop.wait(min(0.2, max(self.call.until - clock(), 0)))
            return None
        self.call.stop.cuts = watch.interrupt
        return watch

    async def _silence(self, watch: Watch) -> bool:
        """Wait for an event, or until it is time to look again. Return False if the watch broke."""
        end = clock() + RECHECK
        while clock() < end:
            await self._check()
            try:
                if await watch.events(max(min(TICKET_TTL / 3, end - clock(), self.call.until - clock()), 0)):
                    return True
            except OSError:
                return False
            await self._renew()
        return True

    async def _check(self) -> None:
        """Raise the error that ends the wait, if it is over."""
        if self.call.stop.is_set() or clock() >= self.call.until:
            raise await self._gave_up()

    async def _gave_up(self) -> MutexError:
        """Leave the queue, and return the error that says why."""
        with suppress(MutexError):
            until = clock() + AFTERWARDS
            await self.give_up(until)
            if not self.call.stop.is_set():
                return await self.refusal(WaitTimeoutError, *await survey(self.session, self.txn, until))
        return self.over()

    def over(self) -> MutexError:
        """Return the error for an attempt that ends without an answer from etcd."""
        if self.call.stop.is_set():
            return CancelledError(f'the wait for lock "{record.visible(self.settings.name)}" was given up')
        if self.call.refusal is not None and self.settings.wait:
            return self.call.refusal
        return UnavailableError(f'lock "{record.visible(self.settings.name)}": {self.call.silence}')

    async def _renew(self) -> None:
        """Keep the lease of the ticket alive."""
        if clock() - self._renewed < TICKET_TTL / 3:
            return
        self._renewed = clock()
        await self._try_once("keepalive", {"ID": self.lease}, self.call.until)

    # -- giving up

    async def settle(self, until: float) -> None:
        """Undo what may be in etcd before the next attempt; in the background if etcd does not answer."""
        try:
            if self.dirty:
                await self.give_up(min(until, clock() + PATIENCE))
        except BaseException as error:
            self.session.later(self.give_up)
            if not isinstance(error, UnavailableError):
                raise
        await self.check_process()
        if self.call.stop.is_set() or clock() >= until:
            raise self.over()

    async def check_process(self) -> None:
        """In a process that is ending, start nothing and report nothing."""
        if exits.ending():
            await self.call.stop.wait(exits.LIMIT)
            raise CancelledError(f'lock "{record.visible(self.settings.name)}" was not taken: this process is ending')

    def undo(self) -> None:
        """Give back in the background whatever it has and nobody else gives back."""
        if self.debt.open:
            self.session.later(self.give_back)
            self.debt.end()

    async def give_back(self, until: float) -> None:
        """Undo everything, in whatever state it is: a held lock is released."""
        if self.release is not None:
            await self.release(until)
            return
        self.doubt = True
        await self.give_up(until)

    async def give_up(self, until: float) -> None:
        """Ensure that this attempt has nothing in etcd and gets nothing later."""
        if self.queued:
            await self._leave(until)
        if self.doubt:
            await self.cancel(until)
        self.queued = False
        if self.lease:
            await self._revoke(until)

    async def cancel(self, until: float) -> None:
        """Write the tombstone, so that no late request takes the lock."""
        word = ""
        try:
            while word != "cancelled":
                lease = await self.session.tombstone_lease(until, fresh=word == "lease")
                word = await self._end("cancel", self.txn.cancel(lease, self.queued), until)
                if word == "withdraw":
                    raise UnavailableError("etcd is out of space for a tombstone")
        except UnavailableError:
            with suppress(MutexError):
                await self._end("withdraw", self.txn.withdraw(self.queued), self._soon(until))
            raise
        self.doubt = False

    async def _end(self, step: str, body: Body, until: float) -> str:
        """Send a cancel or withdraw, and withdraw the record of a share that it finds."""
        verdict = await self._ask(step, body, until)
        if verdict.share is not None:
            await self.session.gateway.send("withdraw", self.txn.of(verdict.share).withdraw(False), until)
        return verdict.word

    async def _leave(self, until: float) -> None:
        for _ in range(MAX_LEAVES):
            verdict = await self._ask("leave", self.txn.leave(), until)
            if verdict.word == "as_tail":
                verdict = await self._ask("leave_as_tail", self.txn.leave_as_tail(verdict.older), until)
            if verdict.word == "left":
                return
            if verdict.word == "withdraw":
                break
        await self._ask("withdraw", self.txn.withdraw(True), until)

    async def _revoke(self, until: float) -> None:
        lease, self.lease = self.lease, ""
        await self._try_once("revoke", {"ID": lease}, until)

    # -- sending

    async def _ask(self, step: str, body: Body, until: float) -> Verdict:
        """Send a transaction until it is answered. Sets ``doubt``, of the verdict too, if it may be done later."""
        takes = step in ("try", "turn", "join")
        before = self.doubt
        self.doubt = before or takes  # also if this is interrupted
        try:
            stop = self.call.stop if takes or step in ("look", "scan") else None
            answer = await self.session.gateway.send(step, body, until, stop, self.call.heard)
        except (UnavailableError, RefusedError) as error:
            self.doubt = before or takes and error.doubt
            raise
        verdict = self.txn.verdict(step, answer, self.token, self.position, self.before or "")
        late = answer.unanswered or verdict.doubt
        self.doubt = before or takes and late
        return replace(verdict, doubt=late)

    async def _try_once(self, step: str, body: Body, until: float) -> None:
        """Send a request that may fail: it is repeated later, or what it removes expires."""
        with suppress(MutexError):
            await self.session.gateway.send(step, body, self._soon(until))

    def _soon(self, until: float) -> float:
        return min(until, clock() + self.session.gateway.timeout)

    # -- documents

    def fields(self) -> dict[str, str]:
        """Return the fields of the record, with deadlines from now."""
        s = self.settings
        self.base = (clock(), time.time())
        at = self.base[1]
        members: dict[str, Any] = {**self._who(), **identity.of(os.getpid()), **s.attributes, "client": CLIENT,
                                   "locked_at": record.format_time(at), "backtrace": self.call.trace,
                                   **({"detached": True} if s.detached else {})}
        if s.heartbeat is not None:
            members["heartbeat_until"] = record.format_time(at + s.heartbeat)
        fields = {"uuid": self.uuid, "alert_at": record.format_time(at + min(s.alert_after, s.auto_unlock_after)),
                  "auto_unlock_at": record.format_time(at + s.auto_unlock_after)}
        fields["metadata"] = record.to_metadata(members, sum(map(len, fields)) + sum(map(len, fields.values())))
        return fields

    def _ticket(self) -> str:
        ticket = {"uuid": self.uuid, **self._who(), "since": record.format_time(self.call.began), **identity.under()}
        if self.settings.wait is not None:
            ticket["timeout_at"] = record.format_time(time.time() + max(self.call.until - clock(), 0))
        return record.to_json(ticket)

    def _who(self) -> dict[str, Any]:
        return {"owner": self.session.owner, "hostname": socket.gethostname(), "pid": os.getpid(),
                "purpose": self.settings.purpose}
