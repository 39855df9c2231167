"""What locks for threads and locks for asyncio have in common."""

from __future__ import annotations

import threading

from .attempt import Attempt, Call, acquire
from .errors import RefusedError
from .hold import Hold, Request
from .identity import backtrace
from .record import visible
from .session import Session
from .settings import Settings
from .transport import Flag, clock


class Handle:
    """A lock, and its latest hold."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self.settings = settings
        self._hold: Hold | None = None
        self._taking = threading.Lock()

    async def take(self, stop: Flag) -> None:
        """Take the lock, one caller at a time."""
        if not self._taking.acquire(blocking=False):
            raise RefusedError(f'lock "{visible(self.name)}" is being taken with this object by another caller: '
                               "give each its own")
        try:
            self.check_idle()
            call = Call(backtrace(), stop, clock() + self._session.patience(self.settings.wait))
            self.begin(await acquire(self._session, self.settings, call))
        finally:
            self._taking.release()

    def begin(self, attempt: Attempt) -> None:
        """Begin the hold of the lock that this attempt took."""
        raise NotImplementedError

    def check_idle(self) -> None:
        """Raise RefusedError if the lock is already held by this object."""
        if self._hold is not None and not self._hold.over.is_set():
            raise RefusedError(f'lock "{visible(self.name)}" is already held by this object')

    @property
    def hold(self) -> Hold:
        """The latest hold. Raises RefusedError if there was none."""
        if self._hold is None:
            raise RefusedError(f'lock "{visible(self.name)}" is not held')
        return self._hold

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self.settings.name

    @property
    def share(self) -> int:
        """The number of the semaphore or reader share, which others see as ``pool#2``; 0 for other kinds."""
        return self._hold.attempt.share if self._hold is not None else 0

    @property
    def token(self) -> int:
        """The fencing token, which grows with every acquisition; 0 before the first."""
        return self._hold.token if self._hold is not None else 0

    @property
    def uuid(self) -> str:
        """The identifier of the latest hold; empty before the first."""
        return self._hold.attempt.uuid if self._hold is not None else ""

    @property
    def lost(self) -> str | None:
        """Why the hold was lost, one word as in :class:`LostError`; None while it lasts and after its release."""
        error = self._hold.lost if self._hold is not None else None
        return None if error is None else error.reason

    @property
    def asked(self) -> Request | None:
        """The latest request to finish early, or None."""
        return self._hold.asked if self._hold is not None else None
