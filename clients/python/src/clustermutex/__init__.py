"""Distributed locks on etcd that show who holds what, and why. See :class:`Client`."""

from .client import Client, Lock, Locks
from .errors import (CancelledError, HeldError, LostError, MutexError, RefusedError, UnavailableError, WaitTimeoutError)
from .handover import Reservation
from .hold import Request
from .record import Record
from .version import __version__

__all__ = ["CancelledError", "Client", "HeldError", "Lock", "Locks", "LostError", "MutexError", "Record",
           "RefusedError", "Request", "Reservation", "UnavailableError", "WaitTimeoutError", "__version__"]
