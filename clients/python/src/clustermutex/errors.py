"""The errors, one class for each way in which a caller may react."""

from __future__ import annotations

from typing import Any, Sequence

from .record import MAX_TEXT, Delay, Record, visible


class MutexError(Exception):
    """The base of all errors of this package."""


class RefusedError(MutexError):
    """Retrying will not help: bad input, a wrong password, missing permissions."""

    doubt = False  # an earlier send of the same request may have been applied, or may yet be


class UnavailableError(MutexError):
    """etcd did not answer in time. Whether the request was applied is not known."""

    doubt = False


class CancelledError(MutexError):
    """The wait for a lock was given up by :meth:`Lock.cancel`."""


class HeldError(MutexError):
    """The lock is held, or others wait for it. The message says who holds it, where, since when and what for.

    ``holder`` is the record of the holder. It is None if the lock is free but others are ahead in the queue, or if the
    lock ``delay`` of a hold that was ended is not over. ``waiting`` is how many wait. ``holders`` are all holders of a
    semaphore or a read-write lock, the oldest first.
    """

    def __init__(self, lock: str, holder: Record | None, waiting: int, message: str, delay: Delay | None = None,
                 holders: Sequence[Record] = ()) -> None:
        super().__init__(message)
        self.lock = lock
        self.holder = holder
        self.waiting = waiting
        self.delay = delay
        self.holders: list[Record] = list(holders) or [holder] * (holder is not None)  # type: ignore[list-item]

    def __reduce__(self) -> tuple[Any, ...]:  # process pools pickle exceptions
        return type(self), (self.lock, self.holder, self.waiting, str(self), self.delay, self.holders)


class WaitTimeoutError(HeldError):
    """The lock was not acquired within the time that the caller allowed."""


class LostError(MutexError):
    """The hold is over, or has to be treated as over: stop working, the next holder may already have started.

    ``reason`` is one word: ``deadline`` (its time is up by this machine's clock, and etcd confirmed no extension),
    ``forced`` (an operator ended it), ``auto_unlocked`` and ``abandoned`` (an unlocker ended it), ``deleted`` (its
    record was deleted by hand), ``replaced`` (there is another holder), ``released`` (at the end of this process).
    ``by`` and ``why`` say who ended it and why, with control characters escaped; None if that is not known.
    """

    def __init__(self, lock: str, reason: str, by: str | None = None, why: str | None = None) -> None:
        note = (f" by {visible(by)}" if by else "") + (f": {visible(why, 300)}" if why else "")
        super().__init__(f'lock "{visible(lock)}" was lost: {reason if by else REASONS.get(reason, reason)}{note}')
        self.lock = lock
        self.reason = reason
        self.by = None if by is None else visible(by, MAX_TEXT)
        self.why = None if why is None else visible(why, MAX_TEXT)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.lock, self.reason, self.by, self.why)


REASONS = {
    "deadline": "its time ran out",
    "forced": "an operator force-unlocked it",
    "auto_unlocked": "it was auto-unlocked after its time was up",
    "abandoned": "it was unlocked because its holder was considered dead",
    "deleted": "its record is gone, and whoever removed it left no note",
    "replaced": "it has another holder",
    "released": "it was released at the end of the process",
}
