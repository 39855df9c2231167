"""Jobs that run once for each tick among all replicas: whoever writes the tick first has it."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Callable, NamedTuple, Sequence

from . import record
from .attempt import Attempt, Call, in_doubt
from .errors import HeldError, MutexError, RefusedError, UnavailableError
from .kinds import Holders
from .lock import Handle
from .record import Key
from .session import PATIENCE, Session, log
from .settings import in_words, is_number
from .transactions import Body, Verdict, keys
from .transport import clock

MIN_PERIOD, MAX_PERIOD = 1.0, 10 * 365 * 86400.0
TOLERANCE = 30.0  # how much clocks may differ before a call fails
PRESENCE_TTL = 15.0


def begins(now: float, every: float, offset: float) -> float:
    """Return when the current period began. Raises RefusedError if the period or the offset is out of range."""
    for what, value, least, most in (("period", every, MIN_PERIOD, MAX_PERIOD), ("offset", offset, 0.0, every)):
        if not is_number(value):
            raise RefusedError(f"the {what} is {value!r}; it must be a number of seconds")
        if not least <= value <= most:
            raise RefusedError(f"the {what} is {in_words(value)}; it must be {least:g} to {most:g} seconds")
    if offset == every:
        raise RefusedError("the offset must be shorter than the period")
    milliseconds = round(now * 1000)
    return (milliseconds - (milliseconds - round(offset * 1000)) % round(every * 1000)) / 1000


class Ticks(NamedTuple):
    """How a call gets its tick: from the schedule of the caller, or from the clock."""

    word: str  # the attribute of the record
    at: Callable[[float], float]  # the tick at this time of the machine's clock
    note: str = ""


def periods(every: float, offset: float) -> Ticks:
    """Return the ticks at which periods begin. Raises RefusedError if the arguments are out of range."""
    begins(0, every, offset)
    return Ticks("period", lambda now: begins(now, every, offset), f", every {in_words(every)}")


def scheduled(tick: datetime | float) -> Ticks:
    """Return a tick of a schedule, cut to milliseconds. Raises RefusedError unless it is a time with its zone."""
    seconds = tick.timestamp() if isinstance(tick, datetime) and tick.tzinfo else tick
    if isinstance(seconds, datetime) or not is_number(seconds) or not 0 <= seconds <= record.LAST_SECOND:
        raise RefusedError(f"the tick is {tick!r}; it must be a datetime with a time zone, or seconds since 1970")
    cut = round(seconds * 1e6) // 1000 / 1000

    def at(now: float) -> float:
        if cut > now + TOLERANCE:
            raise RefusedError(f"the tick of {_instant(cut)} has not come: this machine's clock says {_instant(now)}")
        return cut

    return Ticks("tick", at)


async def take_tick(session: Session, lock: Handle, call: Call, ticks: Ticks) -> bool:
    """Take the tick and the lock in one transaction. Return False if the tick, or a later one, is taken.

    Raises LostError if the answer came after the hold; then the tick is given back.
    """
    stop = call.stop
    settings = lock.settings
    lock.check_idle()
    if settings.need.kind:
        raise RefusedError("a job runs under a plain lock, not under a semaphore or a read-write lock")
    holders = Holders()
    while True:
        now = time.time()
        tick = ticks.at(now)
        attributes: dict[str, Any] = {ticks.word: _instant(tick), **settings.attributes}
        attempt = Attempt(session, replace(settings, attributes=attributes), call)
        answer = await session.gateway.send("read_period", attempt.txn.read_period(), call.until, stop)
        last, unlockers = (keys(r["response_range"]) for r in answer.body["responses"])
        if not _due(settings.name, attempt.txn.period, tick, now, last, unlockers):
            return False
        seen = last[0].mod_revision if last else 0
        words = f"{record.format_time(tick)} taken {_instant(now)} by {record.visible(session.owner)}"
        taken = f"{words} on {record.visible(socket.gethostname())}{ticks.note}"
        claim = attempt.txn.claim(holders)
        if await _take(attempt, seen, attempt.txn.acquire_once(attempt.fields(), seen, taken, claim)):
            attempt.period = last[0].value.decode(errors="replace") if last else ""
            lock.begin(attempt)
            if (late := lock.hold.lost) is not None:
                await give_tick_back(attempt)
                await lock.hold.give_up(clock() + PATIENCE)
                raise late
            return True
        holders = attempt.holders
        await stop.wait(0.05)
        if stop.is_set() or clock() >= call.until:
            raise attempt.over()


async def give_tick_back(attempt: Attempt) -> None:
    """Let the next call run the job after this one failed. No other call can take the tick while the lock is held."""
    try:
        body = attempt.txn.restore_period(attempt.token, attempt.period)
        await attempt.session.gateway.send("restore_period", body, clock() + PATIENCE)
    except MutexError as error:
        log.warning("the tick was not given back: %s", error)


async def _take(attempt: Attempt, seen: int, body: Body) -> bool:
    """Take the tick and the lock. Return False to try again. Raises HeldError if the lock is held."""
    async with in_doubt([attempt]):
        verdict = await _outcome(attempt, seen, body)
        attempt.token = verdict.token
        attempt.holders = verdict.holders or Holders()
        attempt.doubt = False
    if verdict.word == "refused" and verdict.holders:
        raise await attempt.refusal(HeldError, verdict.holders, [])
    return bool(attempt.token)


async def _outcome(attempt: Attempt, seen: int, body: Body) -> Verdict:
    """Send the transaction that takes both. Settle it if no answer comes: a late commit would rewrite the tick."""
    session, call = attempt.session, attempt.call
    try:
        answer = await session.gateway.send("acquire_once", body, call.until, call.stop)
        if not answer.unanswered:
            return attempt.txn.verdict("acquire_once", answer, position=seen)
    except (RefusedError, UnavailableError) as error:
        attempt.doubt = error.doubt
        if not error.doubt:
            raise
    lease = await session.tombstone_lease(clock() + PATIENCE, fresh=False)
    answer = await session.gateway.send("settle", attempt.txn.settle(lease), clock() + PATIENCE)
    return attempt.txn.verdict("settle", answer)


def _due(name: str, key: str, tick: float, now: float, last: Sequence[Key], unlockers: list[Key]) -> bool:
    """Report whether the tick is still to be taken. Raises RefusedError if a clock is wrong."""
    if last:
        text = last[0].value.decode(errors="replace")
        taken = record.seconds_of(text.partition(" ")[0])
        if taken is None:
            raise RefusedError(f"the key {key} cannot be read: {record.visible(text)}")
        if taken > now + TOLERANCE and tick <= taken:
            raise RefusedError(f'once "{record.visible(name)}": the run of {_instant(taken)} is ahead of this '
                               f"machine's clock, and it was {record.visible(text.partition(' ')[2])}; no earlier "
                               f"one runs unless its key {key} is deleted")
        if tick <= taken:
            return False
    clocks = [at for at in map(_clock_of, unlockers) if at]
    if clocks and tick > max(clocks) + PRESENCE_TTL + TOLERANCE:
        raise RefusedError(f'once "{record.visible(name)}": by the clock of an unlocker it is {_instant(max(clocks))}, '
                           f"so the run of {_instant(tick)} is not due; this machine's clock says {_instant(now)}")
    return True


def _clock_of(unlocker: Key) -> float:
    """Return the clock in an unlocker's presence; 0 if it cannot be read or the presence has no lease."""
    try:
        said = json.loads(unlocker.value) if unlocker.lease not in ("", "0") else {}
    except ValueError:
        said = {}
    return record.seconds_of(said.get("now")) or 0.0 if isinstance(said, dict) else 0.0


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
