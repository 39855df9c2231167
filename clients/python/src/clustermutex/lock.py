"""What the locks of both fronts have in common."""

from __future__ import annotations

import threading
from typing import Optional

from .attempt import Attempt, acquire
from .errors import RefusedError
from .hold import Hold, Request
from .identity import backtrace
from .record import visible
from .session import Session
from .settings import Settings
from .transport import Flag


class Handle:
    """A lock, and what there is to say of its latest hold."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self.settings = settings
        self._hold: Optional[Hold] = None
        self._taking = threading.Lock()

    async def take(self, stop: Flag) -> None:
        """Take the lock, one caller at a time."""
        if not self._taking.acquire(blocking=False):
            raise RefusedError(f'lock "{visible(self.name)}" is being taken with this object by another: '
                               "give each its own")
        try:
            self.check_idle()
            self.begin(await acquire(self._session, self.settings, backtrace(), stop))
        finally:
            self._taking.release()

    def begin(self, attempt: Attempt) -> None:
        """Hold the lock that this attempt took."""
        raise NotImplementedError

    def check_idle(self) -> None:
        """Refuse to take the lock twice."""
        if self._hold is not None and not self._hold.over.is_set():
            raise RefusedError(f'lock "{visible(self.name)}" is held by this object already')

    @property
    def hold(self) -> Hold:
        """The latest hold; a RefusedError says that there was none."""
        if self._hold is None:
            raise RefusedError(f'lock "{visible(self.name)}" is not held')
        return self._hold

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self.settings.name

    @property
    def share(self) -> int:
        """The number of the permit or reader; 0 for all other holds. Others see it as a lock: ``pool#2``."""
        return self._hold.attempt.share if self._hold is not None else 0

    @property
    def token(self) -> int:
        """The fencing token: it grows with every acquisition. 0 before the first."""
        return self._hold.token if self._hold is not None else 0

    @property
    def uuid(self) -> str:
        """What identifies this hold; empty before the first."""
        return self._hold.attempt.uuid if self._hold is not None else ""

    @property
    def lost(self) -> Optional[str]:
        """Why the hold was lost, one word as in :class:`LostError`; None while it stands or after its release."""
        error = self._hold.lost if self._hold is not None else None
        return None if error is None else error.reason

    @property
    def asked(self) -> Optional[Request]:
        """The latest request to finish early, None if nobody asked."""
        return self._hold.asked if self._hold is not None else None
