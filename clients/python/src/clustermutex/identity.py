"""The process that holds a lock, so that a witness can prove its death, and the line of code that took the lock."""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from itertools import dropwhile, islice
from pathlib import Path
from traceback import walk_stack
from typing import Callable, Mapping

from .record import whole

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
DEPTH = 30
UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
INITIAL_TIME_NAMESPACE = 4026531834
POD = {"pod_namespace": "POD_NAMESPACE", "pod_name": "POD_NAME", "pod_uid": "POD_UID", "container": "CONTAINER_NAME"}


def content(path: str) -> str:
    """Return the content of a small file or the target of a link, empty if it cannot be read."""
    try:
        return os.readlink(path) if os.path.islink(path) else Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def identity(environ: Mapping[str, str] = os.environ, read: Callable[[str], str] = content) -> dict[str, str | int]:
    """Return the members of the record that uniquely identify this process, without those that cannot be read."""
    found: dict[str, str | int] = {member: environ[variable] for member, variable in POD.items()
                                   if _is_name(environ.get(variable, ""))}
    if "pod_uid" not in found and "pod_name" not in found:
        found.clear()  # without these, the other names are not from Kubernetes
    boot = read("/proc/sys/kernel/random/boot_id").strip()
    if not _is_name(boot):
        return found  # process ids and start times mean nothing without it
    found["boot_id"] = boot
    namespace = _namespace(read("/proc/self/ns/pid"))
    if namespace:
        found["pid_namespace"] = namespace
    ticks = read("/proc/self/ns/time")
    after_name = read("/proc/self/stat").rpartition(")")[2].split()
    if namespace and (not ticks or _namespace(ticks) == INITIAL_TIME_NAMESPACE) and len(after_name) > 19:
        found["process_start"] = int(after_name[19])
    return found


@lru_cache(maxsize=1)
def of(pid: int) -> Mapping[str, str | int]:
    """Return the identity of this process, cached by pid so that a forked child reads its own."""
    return identity()


def under() -> dict[str, str]:
    """Return the uuids of the holds under which this process runs, as ``mutexctl run`` passes them, for a ticket."""
    words = f'{os.environ.get("MUTEX_UNDER", "")} {os.environ.get("MUTEX_UUID", "")}'.split()
    uuids = list(dict.fromkeys(word for word in words if re.fullmatch(UUID, word)))[:16]
    return {"under": " ".join(uuids)} if uuids else {}


def backtrace() -> str:
    """Return the call stack outside this package, newest frame first, as ``FILE:LINE in FUNCTION``."""
    frames = walk_stack(sys._getframe(1))
    stack = ((os.path.abspath(frame.f_code.co_filename), line, frame.f_code) for frame, line in frames)
    outside = dropwhile(lambda one: one[0].startswith(PACKAGE), stack)
    return whole("\n".join(f"{path}:{line} in {getattr(code, 'co_qualname', code.co_name)}"
                           for path, line, code in islice(outside, DEPTH)))


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9._-]{1,253}", text) is not None


def _namespace(link: str) -> int:
    match = re.fullmatch(r"[a-z_]+:\[([0-9]+)\]", link)
    return int(match.group(1)) if match else 0
