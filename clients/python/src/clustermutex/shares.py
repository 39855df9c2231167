"""The transactions of semaphores and read-write locks: each share has a record of its own."""

from __future__ import annotations

from typing import Sequence

from .kinds import Claim, Holders, Need
from .record import Key
from .transactions import Answer, Body, Transactions, Verdict, Watched, absent, get, keys, none_since, put, trouble, txn


class Shares(Transactions):
    """The transactions of one attempt to get a share of a lock, or all of it. :meth:`of` returns those of the hold."""

    def __init__(self, prefix: str, lock: str, uuid: str, need: Need) -> None:
        super().__init__(prefix, lock, uuid, need)
        self.delays = (f"{self.delay}#1", f"{self.delay}#:")

    def of(self, share: int) -> Transactions:
        one = Transactions(self.prefix, f"{self.lock}#{share}" if share else self.lock, self.uuid)
        one.queue, one.queue_end, one.tail, one.ticket = self.queue, self.queue_end, self.tail, self.ticket
        return one

    def claim(self, holders: Holders, skip: int = 0) -> Claim:
        known = holders if holders.room(self.need) else Holders()  # if full, claim as if the lock became free
        return known.claim(self.need, skip)

    def cancel(self, lease: str, queued: bool) -> Body:
        body = self.withdraw(queued)
        body["success"].insert(0, put(self.cancelled, self.lock, lease))
        return body

    def withdraw(self, queued: bool) -> Body:
        """Leave the queue, and find out whether this attempt has a record, which is withdrawn separately."""
        return txn([], self._who() + (self._leave() if queued else []), [])

    def watched(self, key: str) -> list[Watched]:
        first = [self.shares, (self.delay, self.delays[1])] if key == self.held else []
        return super().watched(key) + [Watched(*of, deletions=True) for of in first]

    # -- parts

    def _free(self, claim: Claim) -> list[Body]:
        """Compare that the claim is still free, and that no share was added since they were counted."""
        record = self.of(claim.share)
        compares = [absent(record.held), absent(self.cancelled), absent(record.delay)]
        if claim.share:
            compares += [absent(self.held), absent(self.delay)]
        if self.need.counts:
            compares += [none_since(claim.counted, self.shares), none_since(claim.counted, self.delays)]
        return compares

    def _who(self) -> list[Body]:
        return [self._record(), get(*self.shares), get(self.delay, self.delays[1])]

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
