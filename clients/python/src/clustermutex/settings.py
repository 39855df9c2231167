"""The options of a lock, checked: bad input is reported in one sentence before anything is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Union

from .errors import RefusedError
from .kinds import Need, need
from .record import Attribute, check_attributes, check_text, segment, to_metadata

ALERT_AFTER = 300.0
HEARTBEAT_LIFE = 60.0
MAX_MARGIN = 30.0
MIN_UNLOCK_AFTER = 0.1
ROOM = 6 * 1024  # bytes of a record that do not come from the caller, without the backtrace
HEARTBEAT = 3600.0  # the maximum hold of ``heartbeat=True``
MAX_SECONDS = 10 * 365 * 86400.0


@dataclass(frozen=True)
class Settings:
    """The options of one lock. Durations are in seconds."""

    name: str
    wait: float | None
    alert_after: float
    auto_unlock_after: float
    margin: float | None
    heartbeat: float | None
    purpose: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    need: Need = Need()
    leads: bool = False
    check: Callable[[], Any] | None = None  # reports whether a leader can work
    detached: bool = False  # the hold outlives this process

    def margin_of(self, auto_unlock_after: float) -> float:
        """Return how long before an auto-unlock in ``auto_unlock_after`` seconds the hold counts as lost here."""
        return min(auto_unlock_after / 10, MAX_MARGIN) if self.margin is None else self.margin


def settle(name: str, kind: tuple[int | None, int, bool, bool], wait: float | None, alert_after: float | None,
           auto_unlock_after: float | None, margin: float | None, heartbeat: Union[None, bool, float],
           purpose: str, attributes: Mapping[str, Attribute] | None) -> Settings:
    """Check the options of a lock and fill in the defaults. ``kind`` is (semaphore, weight, shared, exclusive)."""
    try:
        if not isinstance(name, str):
            raise ValueError(f"the lock's name is {name!r}; it must be a str")
        segment(name)
        check_text("purpose", purpose)
        check_attributes(attributes or {})
        wanted = need(*kind)
        wanted.check(name, attributes or {})
        attributes = {**wanted.attributes, **(attributes or {})}
        to_metadata({"purpose": purpose, **attributes}, ROOM)
        if wait is not None:
            seconds_of("time to wait", wait, least=0)
        if isinstance(heartbeat, bool):
            heartbeat = HEARTBEAT if heartbeat else None
        alert, unlock = durations(alert_after, auto_unlock_after, heartbeat)
        if margin is not None and seconds_of("margin", margin) >= unlock:
            raise ValueError(f"the margin of {in_words(margin)} leaves nothing of the time until auto-unlock of "
                             f"{in_words(unlock)}")
    except ValueError as error:
        raise RefusedError(str(error)) from None
    return Settings(name, wait, alert, unlock, margin, heartbeat, purpose, attributes, wanted)


def leads(address: str, attributes: Mapping[str, Attribute] | None) -> Mapping[str, Attribute]:
    """Return the attributes of a leader."""
    return {**({"address": address} if address else {}), **(attributes or {})}


def durations(alert: float | None, unlock: float | None, heartbeat: float | None) -> "tuple[float, float]":
    """Return the times until alert and until auto-unlock. By default, the second is three times the first."""
    longest = MAX_SECONDS
    if heartbeat is not None:
        longest = seconds_of("longest hold of the heartbeat", heartbeat)
        alert = min(ALERT_AFTER, longest) if alert is None else alert
        unlock = min(HEARTBEAT_LIFE, longest) if unlock is None else unlock
    if unlock is None:
        unlock = 3 * (ALERT_AFTER if alert is None else seconds_of("time until alert", alert))
    if alert is None:
        alert = seconds_of("time until auto-unlock", unlock) / 3
    alert, unlock = seconds_of("time until alert", alert), seconds_of("time until auto-unlock", unlock)
    if unlock < MIN_UNLOCK_AFTER:
        raise ValueError(f"the time until auto-unlock is {in_words(unlock)}; it must be at least {MIN_UNLOCK_AFTER} s")
    if heartbeat is None and alert > unlock:
        raise ValueError(f"the time until alert of {in_words(alert)} is longer than the time until auto-unlock of "
                         f"{in_words(unlock)}")
    if heartbeat is not None and unlock > longest:
        raise ValueError(f"the heartbeat's longest hold of {in_words(longest)} is shorter than the time until "
                         f"auto-unlock of {in_words(unlock)}")
    if heartbeat is not None and alert > longest:
        raise ValueError(f"the time until alert of {in_words(alert)} is longer than the heartbeat's longest hold of "
                         f"{in_words(longest)}")
    return alert, unlock


def seconds_of(what: str, value: Any, least: float = 1e-9) -> float:
    """Return a duration. Raises ValueError if it is not a number of seconds from ``least`` to ten years."""
    if not is_number(value):
        raise ValueError(f"the {what} is {value!r}; it must be a number of seconds")
    if value < least:
        raise ValueError(f"the {what} is {in_words(value)}; it must be positive")
    if value > MAX_SECONDS:
        raise ValueError(f"the {what} is {in_words(value)}; it must be at most ten years")
    return float(value)


def is_number(value: Any) -> bool:
    """Report whether the value is a finite number."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def in_words(seconds: float) -> str:
    """Format seconds, which may be an int that is too large for a float."""
    if abs(seconds) > 1e300:
        return "more than 1e+300 s" if seconds > 0 else "less than -1e+300 s"
    return f"{seconds:.15g} s"
