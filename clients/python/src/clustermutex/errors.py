"""What can go wrong, one class for each thing that a caller does about it."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from .record import MAX_TEXT, Delay, Record, visible


class MutexError(Exception):
    """The base of all errors of this package."""


class RefusedError(MutexError):
    """Trying again will not help: bad input, a wrong password, missing rights."""

    doubt = False  # an earlier send of the same request may have been done, or may yet be


class UnavailableError(MutexError):
    """etcd did not answer in time. Whether the request was done is not known."""

    doubt = False


class CancelledError(MutexError):
    """The wait for a lock was given up by :meth:`Lock.cancel`, or by the work that was to begin."""


class HeldError(MutexError):
    """Another holds the lock, or others wait for it. The text says who, where, since when and what for.

    ``holder`` is the record of the holder, None if nobody holds the lock: then others are ahead in the queue, or the
    lock delay of a hold that was ended is not over: ``delay``. ``waiting`` is how many wait. Of a semaphore or a
    read-write lock, ``holders`` are all holders, the oldest first.
    """

    def __init__(self, lock: str, holder: Optional[Record], waiting: int, message: str, delay: Optional[Delay] = None,
                 holders: Sequence[Record] = ()) -> None:
        super().__init__(message)
        self.lock = lock
        self.holder = holder
        self.waiting = waiting
        self.delay = delay
        self.holders: List[Record] = list(holders) or [holder] * (holder is not None)  # type: ignore[list-item]

    def __reduce__(self) -> Tuple[Any, ...]:  # so that process pools can pass it on
        return type(self), (self.lock, self.holder, self.waiting, str(self), self.delay, self.holders)


class WaitTimeoutError(HeldError):
    """The wait for the lock took as long as the caller allowed."""


class LostError(MutexError):
    """The hold is over, or must be taken for it: stop working, the next holder may be at work.

    ``reason`` is one word: ``deadline`` (its time is up by this machine's clock; etcd did not confirm more), ``forced``
    (an operator ended it), ``auto_unlocked`` and ``abandoned`` (an unlocker did), ``deleted`` (by hand, without a
    note), ``replaced`` (another holds the lock). ``by`` and ``why`` are what whoever ended it wrote, made visible; None
    if that is not known.
    """

    def __init__(self, lock: str, reason: str, by: Optional[str] = None, why: Optional[str] = None) -> None:
        note = (f" by {visible(by)}" if by else "") + (f": {visible(why, 300)}" if why else "")
        super().__init__(f'lock "{visible(lock)}" was lost: {reason + note if note else REASONS.get(reason, reason)}')
        self.lock = lock
        self.reason = reason
        self.by = None if by is None else visible(by, MAX_TEXT)
        self.why = None if why is None else visible(why, MAX_TEXT)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.lock, self.reason, self.by, self.why)


REASONS = {
    "deadline": "its time ran out before etcd confirmed an extension",
    "forced": "an operator force-unlocked it",
    "auto_unlocked": "it was auto-unlocked after its time was up",
    "abandoned": "it was unlocked because its holder was taken for dead",
    "deleted": "its record is gone, and whoever removed it left no note",
    "replaced": "another holds it",
}
