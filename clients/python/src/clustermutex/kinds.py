"""Kinds of locks: a plain lock has one holder, a semaphore or a read-write lock may have several."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Mapping

from .record import MAX_NAME, Attribute, Delay, Record

SEMAPHORE, SHARED, EXCLUSIVE = "semaphore", "shared", "exclusive"  # values of the attribute ``kind``
MAX_LIMIT = 1_000_000
MAX_READERS = 99_999
SHARE = re.compile(r"(.+)#([1-9][0-9]{0,8})", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Need:
    """How a caller wants to hold a lock. Without a kind, it is a plain lock."""

    kind: str = ""
    limit: int = 0
    weight: int = 0

    @property
    def counts(self) -> bool:
        """Whether the lock can only be taken if the shares of others leave room."""
        return self.kind in (SEMAPHORE, EXCLUSIVE)

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes of the record that describe the kind."""
        if self.kind == SEMAPHORE:
            return {"kind": self.kind, "permits": self.weight, "limit": self.limit}
        return {"kind": self.kind} if self.kind else {}

    def check(self, name: str, attributes: Mapping[str, Attribute]) -> None:
        """Raise ValueError if the options are inconsistent or out of range."""
        if self.kind == SEMAPHORE:
            for what, number, most in (("limit of the semaphore", self.limit, MAX_LIMIT),
                                       ("weight", self.weight, self.limit)):
                if type(number) is not int or not 1 <= number <= most:
                    raise ValueError(f"the {what} is {number!r}; it must be a whole number from 1 to {most}")
        elif self.weight != 1:
            raise ValueError("only a semaphore has a weight")
        if not self.kind:
            return
        if SHARE.fullmatch(name):
            raise ValueError("the lock's name ends in # and a number, which is reserved for shares")
        room = MAX_NAME - len(f"#{self.limit if self.kind == SEMAPHORE else MAX_READERS}")
        if len(name.encode()) > room:
            raise ValueError(f"the lock's name has more than {room} bytes, which leaves no room for share numbers")
        for taken in ("kind", "permits", "limit"):
            if taken in attributes:
                raise ValueError(f'attribute "{taken}": the name is reserved by the protocol')


def need(semaphore: int | None, weight: int, shared: bool, exclusive: bool) -> Need:
    """Turn the options of a lock into a need. Raises ValueError if they contradict each other."""
    kinds = [kind for kind, wanted in ((SEMAPHORE, semaphore is not None), (SHARED, shared), (EXCLUSIVE, exclusive))
             if wanted]
    if len(kinds) > 1:
        raise ValueError(f"{kinds[0]} and {kinds[1]} contradict each other: a hold is of one kind")
    return Need(kinds[0] if kinds else "", semaphore or 0, weight)


def share_of(lock: str, name: str) -> int:
    """Return which share of the lock has this name, 0 if none."""
    match = SHARE.fullmatch(name)
    return int(match.group(2)) if match and match.group(1) == lock else 0


@dataclass(frozen=True)
class Claim:
    """Which record to write, and the revision at which the lock's shares were counted."""

    share: int = 0  # 0: the record of the lock itself
    counted: int = 0


@dataclass(frozen=True)
class Holders:
    """The holders of a lock at one revision, and the lock delays of ended holds."""

    revision: int = 0
    whole: Record | None = None  # the holder of the lock itself
    shares: Mapping[int, Record] = field(default_factory=dict)
    delay: Delay | None = None
    delays: Mapping[int, Delay] = field(default_factory=dict)  # of shares

    @property
    def all(self) -> list[Record]:
        """All holders, the oldest first."""
        return ([self.whole] if self.whole else []) + sorted(self.shares.values(), key=lambda r: r.token)

    def mine(self, uuid: str) -> tuple[int, int] | None:
        """Return the share and the token of the record with this uuid, if there is one."""
        if self.whole and self.whole.uuid == uuid:
            return 0, self.whole.token
        return next(((k, r.token) for k, r in self.shares.items() if r.uuid == uuid), None)

    def free(self, limit: int) -> int:
        """Return how many of ``limit`` permits are free."""
        if self.whole or self.delay:
            return 0
        taken = sum(permits(r, limit) for r in self.shares.values())
        return max(limit - taken - sum(d.permits or limit for d in self.delays.values()), 0)

    def room(self, wanted: Need) -> bool:
        """Report whether there is room for one more of this kind."""
        if self.whole or self.delay:
            return False
        if wanted.kind == SEMAPHORE:
            return wanted.weight <= self.free(wanted.limit)
        return wanted.kind == SHARED or not self.shares and not self.delays

    def claim(self, wanted: Need, skip: int = 0) -> Claim:
        """Return what to claim: the lowest free share number after skipping ``skip`` free ones."""
        if not wanted.kind or wanted.kind == EXCLUSIVE:
            return Claim(0, self.revision)
        free = (number for number in count(1) if number not in self.shares and number not in self.delays)
        return Claim(next(islice(free, skip, None)), self.revision)


def permits(share: Record, limit: int) -> int:
    """Return how many of ``limit`` permits a share has: one by default, all if its number cannot be read."""
    value = share.attributes.get("permits", 1)
    text = f"{value:.0f}" if isinstance(value, float) and value == int(value) else str(value)
    return (int(text) if re.fullmatch("[0-9]{1,9}", text, re.ASCII) else 0) or limit
