"""The members of the cluster, and what each of them said last where that was no answer."""

from __future__ import annotations

from typing import Dict, NamedTuple, Sequence, Tuple, Union
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
    """Read ``http://host:port/path``, ``https://…`` or ``host:port``; a ValueError says what is wrong."""
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
    """What each endpoint said last to the sends of one call, where that was no answer."""

    def __init__(self) -> None:
        self._causes: Dict[Endpoint, Tuple[str, bool]] = {}

    def note(self, endpoint: Endpoint, answer: Answer, verdict: Verdict) -> None:
        """Keep the latest cause of an endpoint."""
        known = answer.error or verdict.detail.startswith("HTTP ")
        status = "" if known else f"HTTP {abs(answer.status)}: "
        self._causes[endpoint] = (visible(status + verdict.detail, MAX_CAUSE), answer.untrusted)

    def forget(self, endpoint: Endpoint) -> None:
        """Take note of an answer."""
        self._causes.pop(endpoint, None)

    def untrusted(self, endpoints: Sequence[Endpoint]) -> bool:
        """Report whether none of the endpoints has a certificate that is trusted."""
        return len(self._causes) == len(endpoints) and self._distrust()

    def error(self, endpoints: Sequence[Endpoint]) -> Union[RefusedError, UnavailableError]:
        """Return what a caller is told in the end."""
        causes = [(e.url, *self._causes[e]) for e in endpoints if e in self._causes]
        if self._distrust():
            return RefusedError("; ".join(f"the certificate of {url} is not trusted: {why}" for url, why, _ in causes))
        said = (f"{url}: {'its certificate is not trusted: ' if distrusted else ''}{why}"
                for url, why, distrusted in causes)
        return UnavailableError("etcd did not answer: " + "; ".join(said))

    def _distrust(self) -> bool:
        return all(distrusted for _, distrusted in self._causes.values())
