"""The members of the cluster, and the latest failure of each."""

from __future__ import annotations

from typing import NamedTuple, Sequence, Union
from urllib.parse import urlsplit

from .errors import RefusedError, UnavailableError
from .record import visible
from .transactions import Answer, Verdict

MAX_CAUSE = 200


class Endpoint(NamedTuple):
    """One member of the cluster."""

    url: str
    host: str
    port: int
    tls: bool
    path: str


def parse_endpoint(url: str) -> Endpoint:
    """Parse ``http://host:port/path``, ``https://…`` or ``host:port``. Raises ValueError if it is none of these."""
    if "@" in url:
        raise ValueError("an endpoint must not contain a user or password: give them as user and password")
    try:
        parts = urlsplit(url if "://" in url else "http://" + url)
        port = parts.port or 2379
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f'endpoint "{visible(url)}": want http://HOST:PORT or https://HOST:PORT')
    full = f"{parts.scheme}://{parts.netloc}{parts.path}"
    return Endpoint(full, parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/"))


class Heard:
    """The latest failure of each endpoint, among the requests of one call."""

    def __init__(self) -> None:
        self._causes: dict[Endpoint, tuple[str, bool]] = {}

    def note(self, endpoint: Endpoint, answer: Answer, verdict: Verdict) -> None:
        """Keep the latest failure of an endpoint."""
        known = answer.error or verdict.detail.startswith("HTTP ")
        status = "" if known else f"HTTP {abs(answer.status)}: "
        self._causes[endpoint] = (visible(status + verdict.detail, MAX_CAUSE), answer.untrusted)

    def forget(self, endpoint: Endpoint) -> None:
        """Drop the failure of an endpoint that has answered."""
        self._causes.pop(endpoint, None)

    def untrusted(self, endpoints: Sequence[Endpoint]) -> bool:
        """Report whether no endpoint has a trusted certificate."""
        return len(self._causes) == len(endpoints) and self._distrust()

    def error(self, endpoints: Sequence[Endpoint]) -> Union[RefusedError, UnavailableError]:
        """Return the error to raise when the call gives up."""
        causes = [(e.url, *self._causes[e]) for e in endpoints if e in self._causes]
        if self._distrust():
            return RefusedError("; ".join(f"the certificate of {url} is not trusted: {why}" for url, why, _ in causes))
        said = (f"{url}: {'its certificate is not trusted: ' if distrusted else ''}{why}"
                for url, why, distrusted in causes)
        return UnavailableError("etcd did not answer: " + "; ".join(said))

    def _distrust(self) -> bool:
        return all(distrusted for _, distrusted in self._causes.values())
