"""The driver of the conformance suite: JSON objects, one a line, on standard input and output. See docs/conformance.md.

With the argument ``asyncio`` it drives the asyncio front, otherwise that of threads.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

import clustermutex
from clustermutex import aio, kinds, record, shares, transactions
from clustermutex.version import CLIENT

Object = Dict[str, Any]
output = threading.Lock()


def say(message: Object) -> None:
    """Write one line."""
    with output:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def refusal(error: clustermutex.MutexError) -> Object:
    """Return the members of an answer that says what went wrong."""
    answer: Object = {"message": str(error)}
    if isinstance(error, clustermutex.HeldError):
        holder = error.holder
        answer["error"] = "timeout" if isinstance(error, clustermutex.WaitTimeoutError) else "held"
        answer["waiting"] = error.waiting
        answer["delayed"] = error.delay is not None
        answer["holder"] = holder and {"uuid": holder.uuid, "owner": holder.owner, "hostname": holder.hostname,
                                       "purpose": holder.purpose}
    elif isinstance(error, clustermutex.LostError):
        answer.update(error="lost", reason=error.reason)
    else:
        words = {clustermutex.CancelledError: "cancelled", clustermutex.UnavailableError: "unavailable"}
        answer["error"] = words.get(type(error), "refused")
    return answer


def opening(request: Object) -> Object:
    """Return the arguments of ``Client`` that a request has."""
    names = ("endpoints", "owner", "prefix", "user", "password", "ca", "cert", "key", "timeout")
    return {name: request[name] for name in names if name in request}


def options(request: Object) -> Object:
    """Return the arguments of ``Client.lock`` that a request has."""
    given = {name: request[name] for name in ("wait", "alert_after", "auto_unlock_after", "purpose", "attributes")
             if request.get(name) is not None}
    if request.get("heartbeat"):
        given["heartbeat"] = True
    if request.get("kind") == kinds.SEMAPHORE:
        given.update(semaphore=request["limit"], weight=request.get("weight", 1))
    elif request.get("kind"):
        given[request["kind"]] = True
    return given


def wanted(client: Any, request: Object, number: int) -> Any:
    """Return the lock that is to be taken."""
    if "life" in request:
        return client.campaign(request["name"], life=request["life"], address=request["address"], on_lost=lost(number))
    return client.lock(request["name"], **options(request), on_lost=lost(number), on_asked=asked(number))


def several(client: Any, request: Object, number: int) -> List[Any]:
    """Return the locks that are to be taken together."""
    own = request.get("own", {})
    return [wanted(client, {**request, **own.get(name, {}), "name": name}, number) for name in request["names"]]


def request_of(lock: Any) -> Optional[Object]:
    """Return who asked the holder of a lock to finish, and why."""
    return lock.asked and {"by": lock.asked.by, "reason": lock.asked.reason}


def extension(request: Object) -> Object:
    """Return the arguments of ``alive``."""
    return {name: request[name] for name in ("progress", "alert_after", "auto_unlock_after")
            if request.get(name) is not None}


def asked(number: int) -> Callable[[clustermutex.Request], None]:
    return lambda r: say({"event": "asked", "lock": number, "by": r.by, "reason": r.reason})


def lost(number: int) -> Callable[[clustermutex.LostError], None]:
    return lambda error: say({"event": "lost", "lock": number, "reason": error.reason})


class Unhandled(Exception):
    """The error that ends the program, or a job, when the suite asks for one."""


def end(request: Object) -> None:
    """End the program as asked: by its exit, or by an error."""
    if request["how"] == "exit":
        sys.exit(0)
    raise Unhandled


# ---- requests that need no etcd

def pure(request: Object) -> Optional[Object]:
    """Answer a request about names, times, records and transactions; None for all others."""
    steps: Dict[str, Callable[[Object], Object]] = {
        "segment": do_segment, "name": do_name, "time": do_time, "decode": do_decode, "document": do_document,
        "transaction": do_transaction, "verdict": do_verdict,
        "info": lambda r: {"client": CLIENT, "levels": ["basic", "queue", "kinds"],
                           "kinds": ["semaphore", "read-write", "together", "once", "back", "leader", "reserve"]},
    }
    do = steps.get(request["do"])
    if do is None:
        return None
    try:
        return do(request)
    except ValueError as error:
        return {"error": "refused", "message": str(error)}


def do_segment(r: Object) -> Object:
    return {"segment": record.segment(r["name"] if "name" in r else base64.b64decode(r["name_base64"]))}


def do_name(r: Object) -> Object:
    return {"name": record.name_of(r["segment"])}


def do_time(r: Object) -> Object:
    seconds, nanoseconds = record.parse_time(r["text"])
    return {"seconds": str(seconds), "nanoseconds": nanoseconds}


def bytes_of(o: Object) -> bytes:
    """Return the value of a field or document."""
    return base64.b64decode(o["value_base64"]) if "value_base64" in o else str(o["value"]).encode()


def do_document(r: Object) -> Object:
    value, token = bytes_of(r), r["token"]
    if r["kind"] in ("request", "extension"):
        note = record.read_note(value, r["uuid"], token)
        return {"decoded": {name: note.get(name) for name in ("by", "reason", "source", "seconds")} if note else None}
    if r["kind"] == "ending":
        ending = record.read_ending(value, token)
        return {"decoded": ending and ending._asdict()}
    if r["kind"] == "delay":
        delay = record.read_delay(r["lock"], value)
        return {"decoded": {"owner": delay.owner, "hostname": delay.hostname}}
    return {"error": "unsupported", "message": "this client reads no such document"}


def do_decode(r: Object) -> Object:
    values = ((f, bytes_of(f)) for f in r["fields"])
    got = record.decode(r["lock"], {f["name"]: record.Key(f["name"], value, 7, f.get("mod_revision", 7), "")
                                    for f, value in values})
    decoded: Object = {}
    for name in ("uuid", "owner", "hostname", "purpose"):
        text = getattr(got, name)
        if text:
            decoded[name] = text
    for name in ("alert_at", "auto_unlock_at", "locked_at"):
        at = getattr(got, name)
        if at is not None:
            decoded[name] = record.format_time(at)
    return {"decoded": decoded, "malformed": not got.uuid or got.alert_at is None or got.auto_unlock_at is None}


def ticket(o: Optional[Object]) -> Optional[transactions.Ticket]:
    return transactions.Ticket(o["ticket"], int(o["create_revision"]), o.get("lease", "")) if o else None


def transactions_of(r: Object) -> transactions.Transactions:
    i = r["input"]
    prefix = r.get("prefix", "/mutexes/")
    if "kind" not in i:
        return transactions.Transactions(prefix, i["lock"], i.get("uuid", ""))
    need = kinds.Need(i["kind"], i.get("limit", 0), i.get("weight", 0))
    return shares.Shares(prefix, i["lock"], i.get("uuid", ""), need)


def do_transaction(r: Object) -> Object:
    i = r["input"]
    if r["step"] == "acquire_all":
        each = [(transactions_of({"input": one}), one["fields"]) for one in i["locks"]]
        return {"body": transactions.together([one.acquire(fields) for one, fields in each])}
    t = transactions_of(r)
    arguments = {"acquire": ("fields", "claim"), "try": ("fields", "claim"), "join": ("ticket", "lease"),
                 "look": ("before",), "scan": ("position",), "turn": ("position", "fields", "claim"),
                 "alive": ("token", "fields", "seen"),
                 "release": ("token", "queued"), "release_in_doubt": ("token", "lease"), "cancel": ("lease", "queued"),
                 "read_period": (), "acquire_once": ("fields", "seen", "taken"), "settle": ("lease",),
                 "withdraw": ("queued",), "leave": (), "leave_as_tail": ("older",), "restore_tail": ("older",)}
    read: Dict[str, Callable[[Any], Any]] = {
        "token": int, "position": int, "older": ticket, "queued": bool,
        "seen": lambda value: None if value is None else int(value),
        "claim": lambda value: kinds.Claim(i.get("share", 0), int(i.get("counted", 0)))}
    step = r["step"]
    values = [read.get(name, lambda value: value)(i.get(name)) for name in arguments[step]]
    return {"body": getattr(t, "try_" if step == "try" else step)(*values)}


def do_verdict(r: Object) -> Object:
    i, a = r["input"], r["answer"]
    answer = transactions.Answer(a.get("status", 0), a.get("body"), unanswered=bool(i.get("unanswered")))
    if r["step"] == "acquire_all":
        each = [transactions_of({"input": one}) for one in i["locks"]]
        got = next((v for v in transactions.verdicts(each, answer) if v.holders and v.holders.all),
                   transactions.verdicts(each, answer)[0])
    else:
        position = i.get("seen" if r["step"] == "acquire_once" else "position", 0)
        got = transactions_of(r).verdict(r["step"], answer, int(i.get("token", 0)), int(position), i.get("before", ""))
    said: Object = {"verdict": got.word, "doubt": got.doubt}
    said.update({name: str(getattr(got, name)) for name in ("token", "position") if getattr(got, name)})
    said.update({name: getattr(got, name) for name in ("reason", "watch", "before") if getattr(got, name)})
    for name in ("restore", "older"):
        one = getattr(got, name)
        said[name] = one and {"ticket": one.uuid, "create_revision": str(one.create_revision), "lease": one.lease}
    holder = next(iter(got.holders.all), None) if got.holders else None
    said["holder"] = holder and {"uuid": holder.uuid}
    said["delayed"] = got.holders is not None and got.holders.delay is not None
    if got.share is not None:
        said["share"] = got.share
    return said


# ---- threads

class Driver:
    """Drives the client for threads: each request has a thread of its own."""

    def __init__(self) -> None:
        self.client: Optional[clustermutex.Client] = None
        self.locks: Dict[int, Any] = {}
        self.waits: Dict[int, Any] = {}
        self.numbers = itertools.count(1)

    def do(self, r: Object) -> Object:
        """Answer one request."""
        do = r["do"]
        if do == "open":
            self.client = clustermutex.Client(**opening(r))
            return {}
        if do == "acquire":
            return self.acquire(r)
        if do == "cancel":
            waits = self.waits.get(r["request"])
            if waits is not None:
                waits.cancel()
            return {}
        if do == "once":
            return self.once(r)
        if do == "reserve":
            assert self.client is not None
            return self.client.reserve(r["name"], r["purpose"], r["auto_unlock_after"], wait=0)._asdict()
        if do == "adopt":
            assert self.client is not None
            number = next(self.numbers)
            self.locks[number] = adopted = self.client.adopt(r["name"], r["uuid"])
            return {"lock": number, "uuid": adopted.uuid, "token": adopted.token}
        lock = self.locks[r["lock"]]
        if do == "alive":
            lock.alive(**extension(r))
        elif do == "release":
            lock.release()
        elif do == "check":
            return {"lost": lock.lost, "asked": request_of(lock)}
        else:
            raise clustermutex.RefusedError(f"unknown: {do}")
        return {}

    def acquire(self, r: Object) -> Object:
        assert self.client is not None
        number = next(self.numbers)
        lock = first = wanted(self.client, r, number)
        if "names" in r:
            locks = several(self.client, r, number)
            lock, first = self.client.lock_all(*locks), locks[0]
        self.waits[r["id"]] = self.locks[number] = lock
        try:
            lock.acquire()
        finally:
            del self.waits[r["id"]]
        return {"lock": number, "uuid": first.uuid, "token": first.token}

    def once(self, r: Object) -> Object:
        assert self.client is not None
        lock = self.client.lock(r["name"], **options(r))

        def work(_: object) -> None:
            time.sleep(r["hold"])
            if r.get("fails"):
                raise Unhandled

        try:
            if r.get("tick") is not None:
                ran = lock.once_at(r["tick"], work, retry_on_error=r.get("fails", False))
            else:
                ran = lock.once_per(r["every"], work, offset=r["offset"], retry_on_error=r.get("fails", False))
        except Unhandled:
            ran = True
        return {"ran": ran, "token": lock.token}

    def answer(self, r: Object) -> None:
        try:
            said = self.do(r)
        except clustermutex.MutexError as error:
            said = refusal(error)
        say({"id": r["id"], **said})

    def run(self) -> None:
        for line in sys.stdin:
            r = json.loads(line)
            said = pure(r)
            if said is not None:
                say({"id": r["id"], **said})
            elif r["do"] == "end":
                end(r)
            elif r["do"] in ("open", "cancel"):
                self.answer(r)
            else:
                threading.Thread(target=self.answer, args=(r,), daemon=True).start()


# ---- asyncio

class AsyncDriver:
    """Drives the client for asyncio: each request is a task."""

    def __init__(self) -> None:
        self.client: Optional[aio.Client] = None
        self.locks: Dict[int, Any] = {}
        self.tasks: Dict[int, "asyncio.Task[None]"] = {}
        self.numbers = itertools.count(1)

    async def do(self, r: Object) -> Object:
        """Answer one request."""
        do = r["do"]
        if do == "open":
            self.client = aio.Client(**opening(r))
            return {}
        if do == "acquire":
            assert self.client is not None
            number = next(self.numbers)
            lock = first = wanted(self.client, r, number)
            if "names" in r:
                locks = several(self.client, r, number)
                lock, first = self.client.lock_all(*locks), locks[0]
            self.locks[number] = lock
            await lock.acquire()
            return {"lock": number, "uuid": first.uuid, "token": first.token}
        if do == "once":
            return await self.once(r)
        if do == "reserve":
            assert self.client is not None
            return (await self.client.reserve(r["name"], r["purpose"], r["auto_unlock_after"], wait=0))._asdict()
        if do == "adopt":
            assert self.client is not None
            number = next(self.numbers)
            self.locks[number] = adopted = await self.client.adopt(r["name"], r["uuid"])
            return {"lock": number, "uuid": adopted.uuid, "token": adopted.token}
        if do == "cancel":
            task = self.tasks.get(r["request"])
            if task is not None:
                task.cancel()
            return {}
        lock = self.locks[r["lock"]]
        if do == "alive":
            await lock.alive(**extension(r))
        elif do == "release":
            await lock.release()
        elif do == "check":
            return {"lost": lock.lost, "asked": request_of(lock)}
        return {}

    async def once(self, r: Object) -> Object:
        assert self.client is not None
        lock = self.client.lock(r["name"], **options(r))

        async def work(_: object) -> None:
            await asyncio.sleep(r["hold"])
            if r.get("fails"):
                raise Unhandled

        try:
            if r.get("tick") is not None:
                ran = await lock.once_at(r["tick"], work, retry_on_error=r.get("fails", False))
            else:
                ran = await lock.once_per(r["every"], work, offset=r["offset"], retry_on_error=r.get("fails", False))
        except Unhandled:
            ran = True
        return {"ran": ran, "token": lock.token}

    async def answer(self, r: Object) -> None:
        try:
            said = await self.do(r)
        except clustermutex.MutexError as error:
            said = refusal(error)
        except asyncio.CancelledError:
            said = {"error": "cancelled", "message": "the task was cancelled"}
        say({"id": r["id"], **said})

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        lines: "asyncio.Queue[str]" = asyncio.Queue()

        def read() -> None:  # in a daemon thread
            for line in itertools.chain(sys.stdin, [""]):
                loop.call_soon_threadsafe(lines.put_nowait, line)

        threading.Thread(target=read, daemon=True).start()
        while True:
            line = await lines.get()
            if not line:
                return
            r = json.loads(line)
            said = pure(r)
            if said is not None:
                say({"id": r["id"], **said})
            elif r["do"] == "end":
                end(r)
            elif r["do"] in ("open", "cancel"):
                await self.answer(r)
            else:
                self.tasks[r["id"]] = loop.create_task(self.answer(r))


async def drive_asyncio() -> None:
    await AsyncDriver().run()
    os._exit(0)  # even if requests still wait


if __name__ == "__main__":
    if sys.argv[1:] == ["asyncio"]:
        asyncio.run(drive_asyncio())
    else:
        Driver().run()
    os._exit(0)  # even if requests still wait
