"""The transactions of semaphores and read-write locks: each share has a record of its own."""

from __future__ import annotations

from itertools import groupby
from typing import Mapping, Sequence

from .kinds import Claim, Holders, Need, share_of
from .record import Key, Record, escape, name_of, read, read_delay
from .transactions import (Answer, Body, Transactions, Verdict, Watched, absent, b64, compare, get, keys, put, trouble,
                           txn)

Range = tuple[str, str]


class Shares(Transactions):
    """The transactions of one attempt to get a share of a lock, or all of it. :meth:`of` returns those of the hold."""

    def __init__(self, prefix: str, lock: str, uuid: str, need: Need) -> None:
        super().__init__(prefix, lock, uuid)
        self.need = need
        self.prefix = prefix
        self.all = (f"{prefix}{escape(lock)}#1", f"{prefix}{escape(lock)}#:")
        self.delays = (f"{self.delay}#1", f"{self.delay}#:")

    def of(self, share: int) -> Transactions:
        one = Transactions(self.prefix, f"{self.lock}#{share}" if share else self.lock, self.uuid)
        one.queue, one.queue_end, one.tail, one.ticket = self.queue, self.queue_end, self.tail, self.ticket
        return one

    def claim(self, holders: Holders, skip: int = 0) -> Claim:
        known = holders if holders.room(self.need) else Holders()  # if full, claim as if the lock became free
        return known.claim(self.need, skip)

    def acquire(self, fields: Mapping[str, str], claim: Claim = Claim()) -> Body:
        return txn(self._free(claim) + [absent(self.tail)], self.of(claim.share)._put(fields),
                   self._who() + [get(self.tail)])

    def turn(self, position: int, fields: Mapping[str, str], claim: Claim = Claim()) -> Body:
        return txn(self._free(claim) + [compare(self.ticket, "CREATE", str(position))],
                   self.of(claim.share)._put(fields) + self._leave(), self._who() + [get(self.ticket)])

    def cancel(self, lease: str, queued: bool) -> Body:
        body = self.withdraw(queued)
        body["success"].insert(0, put(self.cancelled, self.lock, lease))
        return body

    def withdraw(self, queued: bool) -> Body:
        """Leave the queue, and find out whether this attempt has a record, which is withdrawn separately."""
        return txn([], self._who() + (self._leave() if queued else []), [])

    def watched(self, key: str) -> list[Watched]:
        first = [self.all, (self.delay, self.delays[1])] if key == self.held else []
        return super().watched(key) + [Watched(*of, deletions=True) for of in first]

    # -- parts

    def _free(self, claim: Claim) -> list[Body]:
        """Compare that the claim is still free, and that no share was added since they were counted."""
        record = self.of(claim.share)
        compares = [absent(record.held), absent(self.cancelled), absent(record.delay)]
        if claim.share:
            compares += [absent(self.held), absent(self.delay)]
        if self.need.counts:
            compares += [_none_since(claim.counted, self.all), _none_since(claim.counted, self.delays)]
        return compares

    def _who(self) -> list[Body]:
        return [self._record(), get(*self.all), get(self.delay, self.delays[1])]

    def _place(self) -> list[Body]:
        record, shares, delays = self._who()
        return [get(self.ticket), record, get(self.tail), delays, shares]

    # -- what the answers mean

    def verdict(self, step: str, answer: Answer, token: int = 0, position: int = 0, before: str = "") -> Verdict:
        if step not in ("cancel", "withdraw") or trouble(step, answer) is not None:
            return super().verdict(step, answer, token, position, before)
        reads = [keys(r["response_range"]) for r in answer.body["responses"] if "response_range" in r]
        mine = self.holders(reads).mine(self.uuid)
        return Verdict("cancelled" if step == "cancel" else "again", share=mine and mine[0])

    def holders(self, reads: Sequence[Sequence[Key]], revision: int = 0) -> Holders:
        record, shares, delays = reads[:3]
        found = {}
        for name, of in groupby(shares, lambda k: k.key[len(self.prefix):].partition("/")[0]):
            one = self._share(name, list(of))
            if one is not None:
                found[share_of(self.lock, one.lock)] = one
        delayed = {k.key[len(self.delay):]: k.value for k in delays}
        own = delayed.pop("", None)
        ended = {share_of(self.lock, self.lock + end): value for end, value in delayed.items()}
        return Holders(revision, read(self.lock, self.base, record), found,
                       None if own is None else read_delay(self.lock, own),
                       {k: read_delay(f"{self.lock}#{k}", value) for k, value in ended.items() if k})

    def _share(self, segment: str, of: list[Key]) -> Record | None:
        """Read one share; None if it is not held, or is another lock with such a name."""
        try:
            name = name_of(segment)
        except ValueError:
            return None
        return read(name, f"{self.prefix}{segment}/", of) if share_of(self.lock, name) else None

    def _placed(self, reads: Sequence[Sequence[Key]], revision: int) -> Verdict:
        ticket, record, _, delays, shares = reads[:5]
        holders = self.holders([record, shares, delays], revision)
        mine = holders.mine(self.uuid)
        if mine is not None:
            return Verdict("held_by_earlier_send", token=mine[1], share=mine[0])
        if not ticket:
            return Verdict("lost")
        if len(reads) > 5 and reads[5]:
            return Verdict("wait", watch=reads[5][0].key, before=self._ticket(reads[5][0]).uuid)
        if holders.room(self.need):
            return Verdict("turn", before="", holders=holders)
        return Verdict("wait", watch=self.held, before="")

    def _took(self, reads: Sequence[Sequence[Key]], before: str) -> bool:
        return self.holders([reads[1], reads[4], reads[3]]).mine(before) is not None

    def _not_taken(self, step: str, reads: Sequence[Sequence[Key]], position: int, revision: int) -> Verdict:
        holders = self.holders(reads, revision)
        mine = holders.mine(self.uuid)
        if mine is not None:
            return Verdict("held_by_earlier_send", token=mine[1], share=mine[0])
        if step == "turn":
            own = bool(reads[3]) and reads[3][0].create_revision == position
            return Verdict("again" if own else "lost", holders=holders)
        alone = not reads[3] and holders.room(self.need)  # others came and went, or claimed the same
        return Verdict("again" if alone else "refused", holders=holders)


def _none_since(revision: int, of: Range) -> Body:
    """Compare that no key of a range was created after a revision."""
    return {**compare(of[0], "CREATE", str(revision + 1), "LESS"), "range_end": b64(of[1])}
