"""The transactions of the lock protocol as data: what to send, and what the answers mean. Nothing is sent here.

The bodies are those of etcd's JSON gateway: keys and values in base64, 64-bit numbers as text, defaults left out.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Mapping, NamedTuple, Sequence

from .kinds import SEMAPHORE, SHARED, Claim, Holders, Need, share_of
from .record import Key, Record, escape, name_of, read, read_delay, read_ending

Body = dict[str, Any]


class Answer(NamedTuple):
    """The answer to a request. The status is 0 if none came; the body is None if it is not JSON."""

    status: int
    body: Any = None
    error: str = ""  # why no answer came
    unanswered: bool = False  # an earlier send of the same request may have been applied
    untrusted: bool = False  # the error is about the server's certificate
    hurried: bool = False  # it had less than the usual time


class Ticket(NamedTuple):
    """A ticket of the queue that the tail is to name."""

    uuid: str
    create_revision: int
    lease: str


class Watched(NamedTuple):
    """A key or range to watch, from now or from a revision."""

    key: str
    end: str = ""
    deletions: bool = False  # only these
    start: int = 0


@dataclass(frozen=True)
class Verdict:
    """What an answer means. The word is as in the protocol's test vectors; other members belong to certain words."""

    word: str
    token: int = 0
    position: int = 0
    revision: int = 0  # still_held: of what was written
    reason: str = ""  # lost: one word
    by: str | None = None  # lost: who ended it, and why
    why: str | None = None
    detail: str = ""  # released, report, resend, login: a sentence
    doubt: bool = False  # this request may have been applied, or may yet be
    watch: str = ""  # wait: the key whose deletion to wait for
    before: str | None = None  # join, look, scan: the ticket ahead; empty: mine is first; None: not known
    restore: Ticket | None = None  # scan: there is no tail, and a new one is to name this ticket
    older: Ticket | None = None  # as_tail: the ticket before mine
    record: Mapping[str, Key] = field(default_factory=dict)  # the fields of the record, if they were read
    share: int | None = None  # held by an earlier send, cancelled: the share that is mine; 0: the lock itself
    holders: Holders | None = None  # refused, again, turn: who holds the lock


class Transactions:
    """The transactions of one attempt to get one lock, and of the hold that it becomes."""

    def __init__(self, prefix: str, lock: str, uuid: str, need: Need = Need()) -> None:
        self.prefix = prefix
        self.lock = lock
        self.uuid = uuid
        self.need = need
        name = escape(lock)
        self.base = f"{prefix}{name}/"
        self.end = f"{prefix}{name}0"
        self.shares = (f"{prefix}{name}#1", f"{prefix}{name}#:")
        self.queue = f"{prefix}.queue/{name}/"
        self.queue_end = f"{prefix}.queue/{name}0"
        self.tail = self.queue + ".tail"
        self.ticket = self.queue + uuid
        self.held = self.base + "uuid"
        self.cancelled = f"{prefix}.cancelled/{uuid}"
        self.history = f"{prefix}.history/{uuid}"
        self.delay = f"{prefix}.delays/{name}"
        self.period = f"{prefix}.periods/{name}"
        self.unlockers = f"{prefix}.unlockers/"
        self.statements = [f"{prefix}.{kind}/{uuid}" for kind in ("deaths", "suspicions")]

    def of(self, share: int) -> Transactions:
        """Return the transactions of the hold, which may be of a share."""
        return self

    def claim(self, holders: Holders, skip: int = 0) -> Claim:
        """Return what to claim given these holders."""
        return Claim(counted=0 if holders.shares else holders.revision)

    def watched(self, key: str) -> list[Watched]:
        """Return what to watch in order to see this key deleted."""
        return [Watched(key, deletions=True), Watched(self.ticket, deletions=True)]

    # -- getting the lock

    def acquire(self, fields: Mapping[str, str], claim: Claim = Claim()) -> Body:
        """Take the lock if it is free, has no queue and no lock delay."""
        return txn(self._free(claim) + [absent(self.tail)], self.of(claim.share)._put(fields),
                   self._who() + [get(self.tail)])

    def try_(self, fields: Mapping[str, str], claim: Claim = Claim()) -> Body:
        """Take the lock unless this attempt has joined the queue: a late send must not overtake its own ticket."""
        body = self.acquire(fields, claim)
        body["compare"].append(absent(self.ticket))
        return body

    def join(self, ticket: str, lease: str) -> Body:
        return txn([absent(self.ticket), absent(self.cancelled)],
                   [put(self.ticket, ticket, lease), put(self.tail, self.uuid, lease, prev_kv=True)],
                   [get(self.ticket)])

    def look(self, before: str) -> Body:
        """Read what a waiter waits for: the ticket ahead or, for the first, the lock."""
        return txn([], self._place() + ([get(self.queue + before)] if before else []), [])

    def scan(self, position: int) -> Body:
        """Find the ticket before mine. etcd scans every ticket since its last compaction for this."""
        newest = {"limit": "1", "sort_order": "DESCEND", "sort_target": "CREATE"}
        older = self._tickets(**newest, max_create_revision=str(position - 1))
        return txn([], self._place() + [older, self._tickets(**newest)], [])

    def turn(self, position: int, fields: Mapping[str, str], claim: Claim = Claim()) -> Body:
        """Take the lock as the first of the queue."""
        return txn(self._free(claim) + [compare(self.ticket, "CREATE", str(position))],
                   self.of(claim.share)._put(fields) + self._leave(), self._who() + [get(self.ticket)])

    def survey(self) -> Body:
        """Read who holds the lock, its lock delays, and the names of the tickets."""
        return txn([], self._who() + [self._tickets(keys_only=True)], [])

    # -- once per period

    def read_period(self) -> Body:
        """Read which period was taken last, and the unlockers' clocks."""
        return txn([], [get(self.period), get(self.unlockers, self.unlockers[:-1] + "0", limit="100")], [])

    def acquire_once(self, fields: Mapping[str, str], seen: int, taken: str, claim: Claim = Claim()) -> Body:
        """Take the lock and the period, if the period key has not changed since it was read."""
        body = self.acquire(fields, claim)
        body["compare"].append(compare(self.period, "MOD", str(seen)))
        body["success"].append(put(self.period, taken))
        body["failure"].append(get(self.period))
        return body

    def restore_period(self, token: int, before: str) -> Body:
        """Restore the period key to its value before this hold, unless it has changed since."""
        return txn(self._mine(token) + [compare(self.period, "MOD", str(token))],
                   [put(self.period, before) if before else delete(self.period)], [])

    def settle(self, lease: str) -> Body:
        """Find out whether an unanswered request took the lock, and keep a late one from taking it."""
        return txn([], [put(self.cancelled, self.lock, lease)] + self._why(), [])

    # -- holding it

    def alive(self, token: int, fields: Mapping[str, str], seen: int | None = None) -> Body:
        """Write ``alive``, and the deadlines unless they are at least as late already.

        A heartbeat compares the mod revision of the ``alive`` it has seen, so that it overwrites no newer progress.
        """
        beat = [] if seen is None else [compare(self.base + "alive", "MOD", str(seen))]
        deadlines = txn([compare(self.base + "auto_unlock_at", "VALUE", fields["auto_unlock_at"], "LESS")],
                        self._put({name: fields[name] for name in ("alert_at", "auto_unlock_at")}), [])
        return txn(self._mine(token) + beat, [{"request_txn": deadlines}] + self._put({"alive": fields["alive"]}),
                   self._why())

    def verify(self, token: int) -> Body:
        """Read the record while it is mine, otherwise why it no longer is."""
        return txn(self._mine(token), [self._record()], self._why())

    def detach(self, token: int) -> Body:
        """Record that the end of the process that took the lock proves nothing about the hold."""
        done = [put(self.base + "detached", "true"), *map(delete, self.statements)]
        return txn(self._mine(token), done, self._why())

    def release(self, token: int, queued: bool) -> Body:
        leave = self._leave() if queued else []
        return txn(self._mine(token), [delete(self.base, self.end)] + leave, self._why() + leave)

    def release_in_doubt(self, token: int, lease: str) -> Body:
        """Release, and keep an unanswered acquire from taking the lock later."""
        body = self.release(token, queued=True)
        for branch in (body["success"], body["failure"]):
            branch.insert(0, put(self.cancelled, self.lock, lease))
        return body

    # -- giving up

    def cancel(self, lease: str, queued: bool) -> Body:
        """Ensure that no request of this attempt can take the lock later."""
        body = self.withdraw(queued)
        for branch in ("success", "failure"):
            body[branch] = [put(self.cancelled, self.lock, lease)] + body.get(branch, [])
        return body

    def withdraw(self, queued: bool) -> Body:
        """Cancel without a tombstone, for an etcd that is out of space."""
        leave = self._leave() if queued else []
        return txn([compare(self.held, "VALUE", self.uuid)], [delete(self.base, self.end)] + leave, leave)

    def leave(self) -> Body:
        """Leave the queue unless this is its tail; for the tail, read which ticket is before it."""
        return txn([compare(self.tail, "VALUE", self.uuid)],
                   [self._tickets(limit="2", sort_order="DESCEND", sort_target="CREATE")], [delete(self.ticket)])

    def leave_as_tail(self, older: Ticket | None) -> Body:
        mine = [compare(self.tail, "VALUE", self.uuid)]
        if older is None:
            return txn(mine, [delete(self.ticket), delete(self.tail)], [])
        return txn(mine + [self._as_read(older)], [delete(self.ticket), put(self.tail, older.uuid, older.lease)], [])

    def restore_tail(self, older: Ticket) -> Body:
        return txn([absent(self.tail), self._as_read(older)], [put(self.tail, older.uuid, older.lease)], [])

    # -- parts

    def _free(self, claim: Claim) -> list[Body]:
        """Compare that the claim is still free, and that no share was added since they were counted."""
        return [absent(self.held), absent(self.cancelled), absent(self.delay), none_since(claim.counted, self.shares)]

    def _put(self, fields: Mapping[str, str]) -> list[Body]:
        return [put(self.base + name, value) for name, value in fields.items()]

    def _place(self) -> list[Body]:
        return [get(self.ticket), get(self.held), get(self.tail), get(self.delay)]

    def _who(self) -> list[Body]:
        """Read who holds the lock, and its lock delays: see :meth:`holders`."""
        return [self._record(), get(*self.shares), get(self.delay)]

    def _record(self) -> Body:
        return get(self.base, self.end)

    def _why(self) -> list[Body]:
        return [self._record(), get(self.history)]

    def _mine(self, token: int) -> list[Body]:
        return [compare(self.held, "VALUE", self.uuid), compare(self.held, "CREATE", str(token))]

    def _leave(self) -> list[Body]:
        tail = txn([compare(self.tail, "VALUE", self.uuid)], [delete(self.tail)], [])
        return [delete(self.ticket), {"request_txn": tail}]

    def _tickets(self, **options: Any) -> Body:
        return get(self.queue + "/", self.queue_end, **options)

    def _as_read(self, ticket: Ticket) -> Body:
        return compare(self.queue + ticket.uuid, "CREATE", str(ticket.create_revision))

    # -- what the answers mean

    def verdict(self, step: str, answer: Answer, token: int = 0, position: int = 0, before: str = "") -> Verdict:
        """Return what the answer to the transaction of this step means."""
        bad = trouble(step, answer)
        if bad is not None:
            return bad
        done = bool(answer.body.get("succeeded"))
        revision = int(answer.body["header"].get("revision", 0))
        reads = [keys(r["response_range"]) for r in answer.body.get("responses", []) if "response_range" in r]
        if done and step in ("acquire", "try", "turn", "acquire_once"):
            return Verdict("held", token=revision)
        if step in ("acquire", "try", "turn"):
            return self._not_taken(step, reads, position, revision)
        if step == "acquire_once":
            return self._not_once(reads, position, revision)
        if step == "settle":
            verdict = self._not_taken("settle", [reads[0], [], [], []], 0, 0)
            return verdict if verdict.token else Verdict("again")
        if step == "join":
            return self._newest(answer.body["responses"], revision) if done else self._joined(reads[0])
        if step == "look":
            return self._looked(reads, before, revision)
        if step == "scan":
            return self._scanned(reads, revision)
        if step in ("alive", "verify", "detach") and done:
            return Verdict("still_held", revision=revision, record=self._fields(reads[0]) if reads else {})
        if step in ("release", "release_in_doubt") and done:
            return Verdict("released")
        if step in ("alive", "verify", "detach", "release", "release_in_doubt"):
            return self._lost(step, reads, token, answer.unanswered)
        if step == "leave" and not done:
            return Verdict("left")
        if step == "leave":
            return self._left(reads[0])
        if step == "leave_as_tail" and done:
            return Verdict("left")
        return Verdict("cancelled" if step == "cancel" else "again")

    def holders(self, reads: Sequence[Sequence[Key]], revision: int = 0) -> Holders:
        """Read who holds the lock."""
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
        """Read one share; None if it is not held, or is another lock with such a name.

        The other kinds need the numbers that plain locks with such names have, too.
        """
        try:
            name = name_of(segment)
        except ValueError:
            return None
        one = read(name, f"{self.prefix}{segment}/", of) if share_of(self.lock, name) else None
        is_share = self.need.kind or one and one.attributes.get("kind") in (SEMAPHORE, SHARED)
        return one if is_share else None

    def _not_taken(self, step: str, reads: Sequence[Sequence[Key]], position: int, revision: int) -> Verdict:
        holders = self.holders(reads, revision)
        mine = holders.mine(self.uuid)
        if mine is not None:
            return Verdict("held_by_earlier_send", token=mine[1], share=mine[0])
        if step == "turn":
            own = bool(reads[3]) and reads[3][0].create_revision == position
            if own and holders.shares and not self.need.kind and not holders.whole:
                return Verdict("wait", watch=f"{self.prefix}{escape(holders.all[0].lock)}/uuid", holders=holders)
            return Verdict("again" if own else "lost", holders=holders)
        alone = not reads[3] and holders.room(self.need)  # others came and went, or claimed the same
        return Verdict("again" if alone else "refused", holders=holders)

    def _not_once(self, reads: Sequence[Sequence[Key]], seen: int, revision: int) -> Verdict:
        verdict = self._not_taken("acquire", reads, 0, revision)
        taken = reads[4][0].mod_revision if reads[4] else 0
        return replace(verdict, word="again") if verdict.word == "refused" and taken != seen else verdict

    @staticmethod
    def _newest(responses: Sequence[Mapping[str, Any]], position: int) -> Verdict:
        tail = responses[1]["response_put"].get("prev_kv")
        before = keys({"kvs": [tail]})[0].value.decode(errors="replace") if tail else ""
        return Verdict("joined", position=position, before=before or None)  # an empty tail says nothing

    @staticmethod
    def _joined(own: Sequence[Key]) -> Verdict:
        return Verdict("joined_by_earlier_send", position=own[0].create_revision) if own else Verdict("lost")

    def _looked(self, reads: Sequence[Sequence[Key]], before: str, revision: int) -> Verdict:
        verdict = self._placed(reads, revision)
        lost_sight = before and verdict.before == "" and not self._took(reads, before)
        return Verdict("scan") if lost_sight or verdict.word == "wait" and not reads[2] else verdict

    def _took(self, reads: Sequence[Sequence[Key]], before: str) -> bool:
        """Report whether the ticket before mine has taken the lock, so that no ticket is ahead of mine."""
        return bool(reads[1]) and reads[1][0].value == before.encode()

    def _scanned(self, reads: Sequence[Sequence[Key]], revision: int) -> Verdict:
        tail, newest = reads[2], reads[-1]
        verdict = self._placed(reads, revision)
        if verdict.word == "wait" and newest and not tail:
            return replace(verdict, restore=self._ticket(newest[0]))
        return verdict

    def _placed(self, reads: Sequence[Sequence[Key]], revision: int) -> Verdict:
        """Return what to wait for, if only the ticket that was read last may be ahead."""
        ticket, held, _, delay = reads[:4]
        ahead = reads[4] if len(reads) > 4 else []
        if held and held[0].value == self.uuid.encode():
            return Verdict("held_by_earlier_send", token=held[0].create_revision)
        if not ticket:
            return Verdict("lost")
        if ahead:
            return Verdict("wait", watch=ahead[0].key, before=self._ticket(ahead[0]).uuid)
        if held or delay:
            return Verdict("wait", watch=self.held if held else self.delay, before="")
        return Verdict("turn", before="")

    def _lost(self, step: str, reads: Sequence[Sequence[Key]], token: int, unanswered: bool) -> Verdict:
        record, history = self._fields(reads[0]), reads[1]
        ending = read_ending(history[0].value, token) if history else None
        if ending is None and unanswered and step.startswith("release"):
            return Verdict("released", detail="by the request that got no answer")
        holder = record.get("uuid")
        if step == "alive" and holder and holder.create_revision == token and holder.value == self.uuid.encode():
            return Verdict("again", record=record)  # another process with this uuid has reported progress
        if ending is not None:
            return Verdict("lost", reason=ending.ended, by=ending.by, why=ending.why)
        return Verdict("lost", reason="replaced" if holder else "deleted")

    def _fields(self, read: Sequence[Key]) -> dict[str, Key]:
        return {key.key[len(self.base):]: key for key in read}

    def _left(self, newest: Sequence[Key]) -> Verdict:
        others = [self._ticket(k) for k in newest if k.key != self.ticket]
        return Verdict("as_tail", older=others[0] if others else None)

    def _ticket(self, key: Key) -> Ticket:
        return Ticket(key.key[len(self.queue):], key.create_revision, key.lease)


def trouble(step: str, answer: Answer) -> Verdict | None:
    """Return what an error answer means; None if the answer is a result."""
    body = answer.body if isinstance(answer.body, dict) else {}
    if answer.status == 200 and isinstance(body.get("header"), dict):
        return None
    code = body.get("code", body.get("grpc_code"))  # etcd 3.5 calls it grpc_code in streams
    message = body.get("message")
    if type(code) is not int or not isinstance(message, str):
        foreign = f"HTTP {abs(answer.status)}, which is not an answer from etcd"
        if abs(answer.status) == 404:
            foreign += " (is its JSON gateway switched off?)"
        return Verdict("resend", doubt=True, detail=answer.error or foreign)
    if code == 16 or code == 3 and ("user name is empty" in message or "revision of auth store is old" in message):
        return Verdict("login", detail=message)
    if code == 5 and "lease not found" in message:
        return Verdict("again" if step in ("leave_as_tail", "restore_tail") else "lease", detail=message)
    if code == 8 and "too many requests" in message:
        return Verdict("resend", detail=message)
    if code == 9 and ("not supported for learner" in message or "not capable" in message):
        return Verdict("resend", detail=message)
    if code in (3, 5, 7, 9):
        return Verdict("report", detail=message)
    if code == 8 and "space exceeded" in message:
        word = {"restore_tail": "again"}.get(step, "resend")
        if step in ("cancel", "release_in_doubt", "leave_as_tail", "grant"):
            word = "withdraw"
        return Verdict(word, doubt=True, detail=message)
    return Verdict("resend", doubt=True, detail=message)


# ---- several locks

def together(bodies: Sequence[Body]) -> Body:
    """Merge transactions that take one lock each into one that takes all or none."""
    return {part: [op for body in bodies for op in body[part]] for part in ("compare", "success", "failure")}


def verdicts(of: Sequence[Transactions], answer: Answer) -> list[Verdict]:
    """Return what the answer to :func:`together` means for each of the locks."""
    revision = int(answer.body["header"].get("revision", 0))
    if answer.body.get("succeeded"):
        return [Verdict("held", token=revision) for _ in of]
    reads = [keys(r["response_range"]) for r in answer.body["responses"]]
    return [one._not_taken("acquire", reads[4 * i:4 * i + 4], 0, revision) for i, one in enumerate(of)]


# ---- the gateway's JSON

def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def txn(compares: list[Body], success: list[Body], failure: list[Body]) -> Body:
    parts = {"compare": compares, "success": success, "failure": failure}
    return {name: list(part) for name, part in parts.items() if part}


def compare(key: str, target: str, value: str, result: str = "EQUAL") -> Body:
    member = {"CREATE": "create_revision", "MOD": "mod_revision", "VALUE": "value"}[target]
    return {"key": b64(key), "target": target, "result": result, member: b64(value) if target == "VALUE" else value}


def absent(key: str) -> Body:
    return compare(key, "CREATE", "0")


def none_since(revision: int, of: tuple[str, str]) -> Body:
    """Compare that no key of a range was created after a revision."""
    return {**compare(of[0], "CREATE", str(revision + 1), "LESS"), "range_end": b64(of[1])}


def put(key: str, value: str, lease: str = "", prev_kv: bool = False) -> Body:
    op = {"key": b64(key), "value": b64(value), "lease": lease, "prev_kv": prev_kv}
    return {"request_put": {name: member for name, member in op.items() if member}}


def get(key: str, end: str = "", **options: Any) -> Body:
    return {"request_range": key_range(key, end, **options)}


def delete(key: str, end: str = "") -> Body:
    return {"request_delete_range": key_range(key, end)}


def key_range(key: str, end: str = "", **options: Any) -> Body:
    return {"key": b64(key), **({"range_end": b64(end)} if end else {}), **options}


def keys(read: Mapping[str, Any]) -> list[Key]:
    """Read the keys in the answer to a range request, or in an event."""
    return [Key(base64.b64decode(k["key"]).decode(errors="replace"), base64.b64decode(k.get("value", "")),
                int(k.get("create_revision", 0)), int(k.get("mod_revision", 0)), str(k.get("lease", "")))
            for k in read.get("kvs", [])]
