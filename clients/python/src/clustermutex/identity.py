"""The process that holds a lock, so that a witness can prove its death, and the line of code that took the lock."""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from types import FrameType
from typing import Callable, Mapping, Union

from .record import whole

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
DEPTH = 30
INITIAL_TIME_NAMESPACE = 4026531834


def read_file(path: str) -> str:
    """Return the content of a small file, empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def read_link(path: str) -> str:
    """Return the target of a link, empty if it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def identity(environ: Mapping[str, str] = os.environ, file: Callable[[str], str] = read_file,
             link: Callable[[str], str] = read_link) -> dict[str, Union[str, int]]:
    """Return the members of the record that uniquely identify this process, without those that cannot be read."""
    found: dict[str, Union[str, int]] = {}
    for member, variable in (("pod_namespace", "POD_NAMESPACE"), ("pod_name", "POD_NAME"), ("pod_uid", "POD_UID"),
                             ("container", "CONTAINER_NAME")):
        if _is_name(environ.get(variable, "")):
            found[member] = environ[variable]
    if "pod_uid" not in found and "pod_name" not in found:
        found.clear()  # without these, the other names are not from Kubernetes
    boot = file("/proc/sys/kernel/random/boot_id").strip()
    if not _is_name(boot):
        return found  # process ids and start times mean nothing without it
    found["boot_id"] = boot
    namespace = _namespace(link("/proc/self/ns/pid"))
    if namespace:
        found["pid_namespace"] = namespace
    ticks = link("/proc/self/ns/time")
    after_name = file("/proc/self/stat").rpartition(")")[2].split()
    if namespace and (not ticks or _namespace(ticks) == INITIAL_TIME_NAMESPACE) and len(after_name) > 19:
        found["process_start"] = int(after_name[19])
    return found


@lru_cache(maxsize=1)
def of(pid: int) -> Mapping[str, Union[str, int]]:
    """Return the identity of this process, cached by pid so that a forked child reads its own."""
    return identity()


def backtrace(depth: int = DEPTH) -> str:
    """Return the call stack outside this package, newest frame first, as ``FILE:LINE in FUNCTION``."""
    frame: FrameType | None = sys._getframe(1)
    while frame and os.path.abspath(frame.f_code.co_filename).startswith(PACKAGE):
        frame = frame.f_back
    lines: list[str] = []
    while frame and len(lines) < depth:
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        lines.append(f"{os.path.abspath(frame.f_code.co_filename)}:{frame.f_lineno} in {name}")
        frame = frame.f_back
    return whole("\n".join(lines))


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9._-]{1,253}", text) is not None


def _namespace(link: str) -> int:
    match = re.fullmatch(r"[a-z_]+:\[([0-9]+)\]", link)
    return int(match.group(1)) if match else 0
