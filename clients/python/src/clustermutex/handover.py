"""Holds that outlive the process that took them: reserved by one process, adopted by another."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

from .attempt import Attempt, Call, holder
from .errors import LostError, RefusedError
from .record import Record, visible
from .session import Session
from .settings import Settings, durations
from .transactions import Transactions
from .transport import clock


class Reservation(NamedTuple):
    """A hold without a process. Pass the name and the uuid to the process that is to adopt it."""

    name: str  # of the record, such as pool#2
    uuid: str
    token: int


def reserving(settings: Settings) -> Settings:
    """Return the options of a hold that outlives this process. Raises RefusedError without a purpose."""
    if not settings.purpose:
        raise RefusedError("a reservation needs a reason: no process can explain what the lock is held for")
    return replace(settings, detached=True, attributes={"reserved": True, **settings.attributes})


async def find(session: Session, settings: Settings, uuid: str, call: Call) -> Attempt:
    """Return the hold with this uuid, detached from the process that took it. Raises LostError if it is over."""
    attempt = Attempt(session, settings, call)
    attempt.uuid, attempt.txn = uuid, Transactions(session.prefix, settings.name, uuid)
    found = await holder(session, settings.name)
    token = found.token if found is not None else 0
    answer = await session.gateway.send("detach", attempt.txn.detach(token), call.until)
    verdict = attempt.txn.verdict("detach", answer, token)
    if found is None or verdict.word == "lost":
        raise LostError(settings.name, verdict.reason, verdict.by, verdict.why)
    _extend_as(attempt, found)
    attempt.token = token
    attempt.debt.begin()
    return attempt


def _extend_as(attempt: Attempt, found: Record) -> None:
    """Have the hold extended by as much as its last writer did."""
    last = found.alive_at or found.locked_at
    if last is None or found.alert_at is None or found.auto_unlock_at is None:
        raise RefusedError(f'the record of lock "{visible(found.lock)}" does not say for how long it is held')
    unlock = found.auto_unlock_at - last
    try:
        alert, unlock = durations(min(max(found.alert_at - last, 0.001), unlock), unlock, None)
    except ValueError as error:
        raise RefusedError(str(error)) from None
    attempt.settings = replace(attempt.settings, alert_after=alert, auto_unlock_after=unlock)
    attempt.base = (clock() - max(time.time() - last, 0), last)
