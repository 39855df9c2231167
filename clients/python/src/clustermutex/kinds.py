"""What is wanted of a lock, and who holds it: a plain lock has one holder, a semaphore or a read-write lock several."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Tuple

from .record import MAX_NAME, Attribute, Delay, Record

SEMAPHORE, SHARED, EXCLUSIVE = "semaphore", "shared", "exclusive"  # values of the attribute ``kind``
MAX_LIMIT = 1_000_000
MAX_READERS = 99_999
SHARE = re.compile(r"(.+)#([1-9][0-9]{0,8})", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Need:
    """What a caller wants of a lock. Without a kind it is a plain lock."""

    kind: str = ""
    limit: int = 0
    weight: int = 0

    @property
    def counts(self) -> bool:
        """Whether it depends on the shares of others."""
        return self.kind in (SEMAPHORE, EXCLUSIVE)

    @property
    def attributes(self) -> Dict[str, Attribute]:
        """What the record says of it."""
        if self.kind == SEMAPHORE:
            return {"kind": self.kind, "permits": self.weight, "limit": self.limit}
        return {"kind": self.kind} if self.kind else {}

    def check(self, name: str, attributes: Mapping[str, Attribute]) -> None:
        """Refuse what makes no sense, with a ValueError."""
        if self.kind == SEMAPHORE:
            for what, number, most in (("limit of the semaphore", self.limit, MAX_LIMIT),
                                       ("weight", self.weight, self.limit)):
                if type(number) is not int or not 1 <= number <= most:
                    raise ValueError(f"the {what} is {number!r}, it must be a whole number from 1 to {most}")
        elif self.weight != 1:
            raise ValueError("a weight is for a semaphore")
        if not self.kind:
            return
        if SHARE.fullmatch(name):
            raise ValueError("the lock's name ends in # and a number, as those of shares do")
        room = MAX_NAME - len(f"#{self.limit if self.kind == SEMAPHORE else MAX_READERS}")
        if len(name.encode()) > room:
            raise ValueError(f"the lock's name has more than {room} bytes: the numbers of its shares have no room")
        for taken in ("kind", "permits", "limit"):
            if taken in attributes:
                raise ValueError(f'attribute "{taken}": the name belongs to the protocol')


def need(semaphore: Optional[int], weight: int, shared: bool, exclusive: bool) -> Need:
    """Return what the options of a lock want; a ValueError says that they contradict each other."""
    kinds = [kind for kind, wanted in ((SEMAPHORE, semaphore is not None), (SHARED, shared), (EXCLUSIVE, exclusive))
             if wanted]
    if len(kinds) > 1:
        raise ValueError(f"{kinds[0]} and {kinds[1]} contradict each other: a hold is of one kind")
    return Need(kinds[0] if kinds else "", semaphore or 0, weight)


def share_of(lock: str, name: str) -> int:
    """Return the number of the share of this lock that has that name, 0 if it is none."""
    match = SHARE.fullmatch(name)
    return int(match.group(2)) if match and match.group(1) == lock else 0


@dataclass(frozen=True)
class Claim:
    """Which record is to be written, by which count: those of the lock's shares as they were at a revision."""

    share: int = 0  # 0: the record of the lock itself
    counted: int = 0


@dataclass(frozen=True)
class Holders:
    """Who holds a lock at one revision, and which delays of ended holds keep others back."""

    revision: int = 0
    whole: Optional[Record] = None  # the holder of the lock itself
    shares: Mapping[int, Record] = field(default_factory=dict)
    delay: Optional[Delay] = None
    delays: Mapping[int, Delay] = field(default_factory=dict)  # of shares

    @property
    def all(self) -> List[Record]:
        """All of them, the oldest first."""
        return ([self.whole] if self.whole else []) + sorted(self.shares.values(), key=lambda r: r.token)

    def mine(self, uuid: str) -> Optional[Tuple[int, int]]:
        """Return the share and the token of the record with this uuid, if there is one."""
        if self.whole and self.whole.uuid == uuid:
            return 0, self.whole.token
        return next(((k, r.token) for k, r in self.shares.items() if r.uuid == uuid), None)

    def free(self, limit: int) -> int:
        """Return how many of so many permits are left."""
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
        """Return what to claim: of the numbers that are free the lowest, but for so many."""
        if not wanted.kind or wanted.kind == EXCLUSIVE:
            return Claim(0, self.revision)
        number = 1
        while number in self.shares or number in self.delays or skip:
            skip -= skip > 0 and number not in self.shares and number not in self.delays
            number += 1
        return Claim(number, self.revision)


def permits(share: Record, limit: int) -> int:
    """Return how many of so many permits a share has: one if it does not say, all if that cannot be read."""
    value = share.attributes.get("permits", 1)
    text = f"{value:.0f}" if isinstance(value, float) and value == int(value) else str(value)
    return (int(text) if re.fullmatch("[0-9]{1,9}", text, re.ASCII) else 0) or limit
