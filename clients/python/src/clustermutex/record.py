"""The record of a lock: names, times, writing one's own, and reading and describing another's."""

from __future__ import annotations

import json
import math
import re
import time
import unicodedata
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, NamedTuple, Union

MAX_NAME = 256
MAX_TEXT = 1024
MAX_BACKTRACE = 16 * 1024
MAX_ATTRIBUTES = 64
MAX_RECORD = 64 * 1024
MAX_NOTE = 2048
MAX_DELAY = 4096
LAST_SECOND = 9999999999.999

FIELD = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
TIME = re.compile(r"([0-9]{10})(?:\.([0-9]{1,9}))?", re.ASCII)
TEXTS = ("owner", "hostname", "purpose", "client", "backtrace")
DOCUMENT_TEXTS = ("lock", "uuid", "owner", "hostname", "by", "source", "reason", "why")
RESERVED = {"uuid", "alert_at", "auto_unlock_at", "alive", "asked", "extended", "acknowledged", "metadata", "pid",
            "locked_at", *TEXTS, "boot_id", "process_start", "pid_namespace", "supervisor_start", "cgroup_id",
            "pod_namespace", "pod_name", "pod_uid", "container", "detached", "lock_delay", "heartbeat_until"}

Attribute = Union[str, int, float, bool]


class Key(NamedTuple):
    """A key as etcd returned it."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: str


# ---- names

def segment(name: Union[str, bytes]) -> str:
    """Return the name as one segment of a key. Raises ValueError if the name is not valid."""
    try:
        raw = name.encode() if isinstance(name, str) else name
        text = raw.decode()
    except UnicodeError:
        raise ValueError("the lock's name is not UTF-8") from None
    if not 1 <= len(raw) <= MAX_NAME:
        raise ValueError(f"the lock's name has {len(raw)} bytes; it must have 1 to {MAX_NAME}")
    if any(unicodedata.category(c) == "Cc" for c in text):
        raise ValueError(f"the lock's name {visible(text)} contains a control character")
    return escape(text)


def escape(name: str) -> str:
    text = name.replace("%", "%25").replace("/", "%2F")
    return "%2E" + text[1:] if text.startswith(".") else text


def name_of(text: str) -> str:
    """Return the name that a segment encodes. Raises ValueError if it is not a segment."""
    name = re.sub("%25|%2F|^%2E", lambda m: {"%25": "%", "%2F": "/"}.get(m.group(), "."), text)
    if not text or escape(name) != text:
        raise ValueError(f"{visible(text)} is not a valid segment of a key")
    return name


# ---- times

def format_time(seconds: float) -> str:
    """Format seconds since 1970 so that etcd can compare them: ten digits, at most three decimals."""
    text = f"{min(seconds, LAST_SECOND):.3f}".rstrip("0").rstrip(".")
    if not TIME.fullmatch(text):
        raise ValueError(f"the clock of this machine says {text}, which a record cannot hold")
    return text


def parse_time(text: str) -> tuple[int, int]:
    """Return whole seconds and nanoseconds. Raises ValueError if the text is not a time."""
    match = TIME.fullmatch(text)
    if not match:
        raise ValueError(f"{visible(text)} is not a time: want ten digits, then at most nine decimals")
    return int(match.group(1)), int((match.group(2) or "").ljust(9, "0"))


def seconds_of(value: object) -> float | None:
    """Parse a time for display; None if it is not valid."""
    try:
        whole, nanoseconds = parse_time(format(value, ".3f") if isinstance(value, float) else str(value))
    except ValueError:
        return None
    return whole + nanoseconds / 1e9


# ---- writing

def check_text(what: str, value: object) -> None:
    """Raise ValueError for a value that no record may contain."""
    if not isinstance(value, str):
        raise ValueError(f"the {what} is {value!r}; it must be a str")
    try:
        size = len(value.encode())
    except UnicodeError:
        raise ValueError(f"the {what} cannot be encoded as UTF-8") from None
    if size > MAX_TEXT:
        raise ValueError(f"the {what} has {size} bytes; it must have at most {MAX_TEXT}")


def check_attributes(attributes: Mapping[str, Attribute]) -> None:
    """Raise ValueError for attributes that no record may contain."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise ValueError(f"there are {len(attributes)} attributes; at most {MAX_ATTRIBUTES} are allowed")
    for name, value in attributes.items():
        if not isinstance(name, str) or not FIELD.fullmatch(name):
            raise ValueError(f"attribute {name!r}: a name is a lowercase letter, then lowercase letters, digits and _")
        if name in RESERVED:
            raise ValueError(f'attribute "{name}": the name is reserved by the protocol')
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f'attribute "{name}" is {value}; it must be finite')
        if not isinstance(value, (str, int, float)):
            raise ValueError(f'attribute "{name}" is {value!r}; it must be a str, a number or a bool')
        if isinstance(value, str):
            check_text(f'attribute "{name}"', value)


def whole(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def to_json(members: Mapping[str, Any]) -> str:
    """Write JSON as the protocol wants it: no whitespace, UTF-8, no empty members."""
    given = {name: value for name, value in members.items() if value != ""}
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def to_metadata(members: Mapping[str, Any], others: int) -> str:
    """Write ``metadata`` beside ``others`` bytes of fields, with as much of the backtrace as the limits allow."""
    document = dict(members)
    lines = document.pop("backtrace", "").split("\n")
    room = MAX_RECORD - others - len("metadata") - len(to_json(document).encode()) - len(',"backtrace":""')
    if room < 0:
        raise ValueError(f"the record would have {MAX_RECORD - room} bytes; it must have at most {MAX_RECORD}: give it "
                         "fewer attributes")
    kept = len(lines)
    while kept and _size(lines[:kept]) > min(room, MAX_BACKTRACE) - (8 if kept < len(lines) else 0):
        kept -= 1
    document["backtrace"] = "\n".join(lines[:kept] + (["…"] if 0 < kept < len(lines) else []))
    return to_json(document)


def _size(lines: Iterable[str]) -> int:
    return len(json.dumps("\n".join(lines), ensure_ascii=False).encode()) - 2


# ---- reading

@dataclass(frozen=True)
class Record:
    """Who holds a lock, as far as its record could be read. Texts are as their writer wrote them: escape them.

    Times are in seconds since 1970, by the writer's clock; None if absent or unreadable.
    """

    lock: str
    uuid: str
    token: int
    alert_at: float | None = None
    auto_unlock_at: float | None = None
    alive_at: float | None = None
    progress: str = ""
    owner: str = ""
    hostname: str = ""
    pid: int = 0
    locked_at: float | None = None
    purpose: str = ""
    client: str = ""
    backtrace: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def describe(self, now: float | None = None) -> str:
        """Describe in one line who holds the lock, where, since when and what for. Texts are escaped and cut."""
        now = time.time() if now is None else now
        line = _whose(self.owner, self.hostname)
        if self.pid:
            line += f" (pid {self.pid})"
        if self.locked_at is not None:
            line += ", taken " + ago(self.locked_at, now)
        if self.purpose:
            line += f' for "{visible(self.purpose)}"'
        if self.progress and self.alive_at is not None:
            line += f', "{visible(self.progress)}" {ago(self.alive_at, now)}'
        if self.auto_unlock_at is None:
            return line + "; no readable auto-unlock time"
        past = self.auto_unlock_at <= now
        return f"{line}; auto-unlock {'was due ' if past else ''}{ago(self.auto_unlock_at, now)}"


@dataclass(frozen=True)
class Delay:
    """A lock delay: the lock must not be taken yet. Texts are as their writer wrote them; None means not known."""

    owner: str | None = None  # of the hold that was ended
    hostname: str | None = None
    until: float | None = None  # seconds since 1970, by the clock of whoever ended the hold
    permits: int = field(default=0, compare=False)  # how many it keeps of a semaphore; 0: not known, so all

    def describe(self, now: float | None = None) -> str:
        """Describe whose hold it follows, and when it ends, as far as known. Texts are escaped and cut."""
        if self == Delay():
            return "a lock delay of a hold that was ended"
        ends = "" if self.until is None else f", which ends {ago(self.until, time.time() if now is None else now)}"
        return f"a lock delay after the hold of {_whose(self.owner, self.hostname)}{ends}"


class Ending(NamedTuple):
    """How a hold was ended by another program or an operator. Texts are as their writer wrote them."""

    ended: str
    by: str | None
    why: str | None


def read_note(value: bytes, uuid: str, token: int) -> dict[str, Any]:
    """Read a request or an extension for this hold. It is empty if it is for another hold, or cannot be read."""
    note = _document(value, MAX_NOTE)
    return note if (note.get("uuid"), note.get("token")) == (uuid, token) else {}


def read_ending(value: bytes, token: int) -> Ending | None:
    """Read how the hold with this token ended; None if the note cannot be read."""
    note = _document(value)
    known = note.get("ended") is not None and note.get("token") == token
    return Ending(note["ended"], note.get("by"), note.get("why")) if known else None


def read_delay(lock: str, value: bytes) -> Delay:
    """Read a lock delay. One that cannot be read, or names another lock, still counts as a delay."""
    note = _document(value, MAX_DELAY)
    if note.get("lock") != lock:
        return Delay()
    at = seconds_of(note.get("at"))
    return Delay(note.get("owner"), note.get("hostname"), None if at is None else at + (note.get("seconds") or 0),
                 max(note.get("permits") or 1, 1))


def _document(value: bytes, most: int = MAX_RECORD) -> dict[str, Any]:
    """Read a document of the protocol; it is empty if a member that it knows is malformed."""
    note = _members(value, most)
    return note if all(member is None or _is_valid(name, member) for name, member in note.items()) else {}


def _members(value: bytes, most: int = MAX_RECORD) -> dict[str, Any]:
    """Read a JSON object; it is empty if it is too large or cannot be read. Invalid UTF-8 is replaced."""
    if len(value) > most:
        return {}
    try:
        read = json.loads(value.decode(errors="replace"), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return {}
    members = read if isinstance(read, dict) else {}
    return {name: whole(member) if isinstance(member, str) else member for name, member in members.items()}


def _is_valid(name: str, value: object) -> bool:
    """Report whether a member has the form that its name has in all documents."""
    if name in ("token", "seconds", "permits"):
        return type(value) is int and abs(value) < 1 << 53
    if name in ("at", "auto_unlock_at"):
        return seconds_of(value) is not None
    if name == "ended":
        return isinstance(value, str) and FIELD.fullmatch(value) is not None
    return name not in DOCUMENT_TEXTS or isinstance(value, str)


def read(lock: str, base: str, keys: Iterable[Key]) -> Record | None:
    """Read the record of a lock from the keys that begin with ``base``; None if it is not held. Never fails."""
    found = decode(lock, {k.key[len(base):]: k for k in keys if FIELD.fullmatch(k.key[len(base):])})
    return found if found.token else None


def decode(lock: str, fields: Mapping[str, Key]) -> Record:
    """Read a record from its fields. Without ``uuid`` the token is 0. Unreadable fields count as absent."""
    held = fields.get("uuid")
    token = held.create_revision if held is not None else 0
    texts = {name: k.value.decode(errors="replace") for name, k in fields.items() if k.mod_revision >= token}
    texts.pop("metadata", None)
    document = fields.get("metadata")
    written = document is not None and document.mod_revision >= token
    members = _members(document.value) if document is not None and written else {}
    alive, _, progress = texts.get("alive", "").partition(" ")
    members.update((name, text) for name, text in texts.items() if name not in ("uuid", "alive"))
    attributes = {name: value for name, value in members.items()
                  if name not in RESERVED and isinstance(value, (str, int, float))}
    return Record(
        lock=lock, uuid=texts.get("uuid", ""), token=token, alert_at=seconds_of(texts.get("alert_at")),
        auto_unlock_at=seconds_of(texts.get("auto_unlock_at")), alive_at=seconds_of(alive), progress=_cut(progress),
        pid=_whole(members.get("pid")), locked_at=seconds_of(members.get("locked_at")),
        attributes=dict(list(attributes.items())[:MAX_ATTRIBUTES]),
        **{name: _text(members.get(name), MAX_BACKTRACE if name == "backtrace" else MAX_TEXT) for name in TEXTS})


def _no_number(text: str) -> None:
    raise ValueError(f"JSON has no {text}")


def _text(value: object, most: int = MAX_TEXT) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _cut(str(value), most) if isinstance(value, (str, int, float)) else ""


def _cut(text: str, most: int = MAX_TEXT) -> str:
    return whole(text).encode()[:most].decode(errors="ignore")


def _whole(value: object) -> int:
    text = _text(value)
    return int(text) if re.fullmatch("[0-9]{1,18}", text, re.ASCII) else 0


# ---- display

def visible(text: str, most: int = 120) -> str:
    """Return untrusted text on one line, with control characters escaped, cut to ``most`` characters."""
    cut = text if len(text) <= most else text[:most - 1] + "…"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


def _whose(owner: str | None, hostname: str | None) -> str:
    return (visible(owner or "") or "an unknown owner") + (" on " + visible(hostname) if hostname else "")


def ago(at: float, now: float) -> str:
    """Return a time relative to ``now``: ``4 minutes ago``, ``in 11 minutes``."""
    away = abs(at - now)
    for unit, seconds in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count = int(away // seconds)
        if count >= (2 if seconds > 1 else 0):
            words = f"{count} {unit}{'' if count == 1 else 's'}"
            return f"in {words}" if at > now else f"{words} ago"
    return "now"
