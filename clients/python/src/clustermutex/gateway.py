"""etcd's JSON gateway: HTTP over whatever connection it is given, several endpoints, logins, sends until answered.

Nothing here knows threads or asyncio: both give it an :class:`IO`.
"""

from __future__ import annotations

import json
import random
import ssl
import time
from typing import Any, Callable, Coroutine, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple, TypeVar, Union
from urllib.parse import urlsplit

from .errors import RefusedError, UnavailableError
from .record import visible
from .transactions import Answer, Body, Verdict, b64, trouble

PATHS = {"grant": "/v3/lease/grant", "keepalive": "/v3/lease/keepalive", "revoke": "/v3/lease/revoke"}
# All other steps are transactions.
WATCH_OPENS = 3.0  # seconds
FIRST_PAUSE = 0.05
MAX_PAUSE = 1.0
LEAST_SEND = 0.1  # seconds, however little is left of a call
TOO_MANY_REQUESTS = 429
MAX_CAUSE = 200
MAX_BODY = 64 << 20

T = TypeVar("T")


class Connection(Protocol):
    """A connection to one endpoint. A time limit that passes is a TimeoutError, all else that fails an OSError."""

    async def send(self, data: bytes, timeout: float) -> None: ...

    async def receive(self, timeout: float) -> bytes: ...  # empty at the end

    def interrupt(self) -> None: ...  # from any thread: whoever is in receive gets the end

    def close(self) -> None: ...  # by its owner only: another connection may get its number at once


class Flag(Protocol):
    """An event that happens once."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    async def wait(self, timeout: float) -> bool: ...


class IO(Protocol):
    """What the protocol needs from the world: the blocking one of threads, or that of asyncio."""

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext], timeout: float) -> Connection: ...

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None: ...

    def flag(self) -> Flag: ...


def clock() -> float:
    """Return seconds of a clock that nobody sets, and that does not stand still while the machine sleeps."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the protocol to its end over an IO that blocks the thread: it never yields then."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("the work waits for another kind of IO")


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


class Response:
    """Reads one HTTP response from bytes as they come."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.over = False
        self._raw = b""
        self._chunked = False
        self._length: Optional[int] = None

    def feed(self, data: bytes) -> None:
        """Take what was received; a ValueError says that it is no HTTP."""
        self._raw += data
        if len(self._raw) + len(self.body) > MAX_BODY:
            raise ValueError("the answer is too large")
        if not self.status and not self._head():
            return
        if not self._chunked:
            self.body += self._raw
            self._raw = b""
            self.over = self._length is not None and len(self.body) >= self._length
        while self._chunked and not self.over and self._chunk():
            pass

    def end(self) -> None:
        """Take the end of the connection; a ValueError says that the answer was cut off."""
        if not self.status or self._chunked or self._length is not None:
            raise ValueError("the answer was cut off")
        self.over = True

    def lines(self) -> List[bytes]:
        """Return the lines that are complete, each once."""
        *whole, self.body = self.body.split(b"\n")
        return whole

    def _head(self) -> bool:
        head, found, rest = self._raw.partition(b"\r\n\r\n")
        if not found:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        if not first.startswith("HTTP/1.") or len(first.split(" ")) < 2:
            raise ValueError("the answer is no HTTP")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.status = int(first.split(" ")[1])
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._length = int(headers["content-length"]) if "content-length" in headers else None
        self._raw = rest
        return True

    def _chunk(self) -> bool:
        line, found, rest = self._raw.partition(b"\r\n")
        if not found:
            return False
        size = int(line.partition(b";")[0], 16)
        if len(rest) < size + 2:
            return False
        self.over = size == 0
        self.body += rest[:size]
        self._raw = rest[size + 2:]
        return True


class Watch:
    """An open watch on some keys."""

    def __init__(self, connection: Connection, response: Response, early: List[Dict[str, Any]]) -> None:
        self._connection = connection
        self._response = response
        self._early = early

    async def events(self, timeout: float) -> List[Dict[str, Any]]:
        """Return the next events, none after that many seconds of silence. An OSError says that the watch broke."""
        end = clock() + timeout
        while not self._early:
            left = end - clock()
            if left <= 0:
                return []
            try:
                self._early = watch_results(await _more(self._connection, self._response, left))
            except TimeoutError:
                return []
        events = [e for result in self._early for e in result.get("events", [])]
        self._early = []
        return events

    def interrupt(self) -> None:
        """End the watch, from any thread: its owner gets an OSError."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection. Only whoever reads the events may."""
        self._connection.close()


class Gateway:
    """Sends requests to the endpoints of one cluster."""

    def __init__(self, io: IO, endpoints: Sequence[Endpoint], tls: Optional[ssl.SSLContext], user: str, password: str,
                 timeout: float) -> None:
        self.io = io
        self.timeout = timeout
        self._endpoints = list(endpoints)
        self._next = 0
        self._tls = tls
        self._user = user
        self._password = password
        self._token: Optional[str] = None

    def over(self, io: IO) -> Gateway:
        """Return the same gateway over other connections."""
        twin = Gateway(io, self._endpoints, self._tls, self._user, self._password, self.timeout)
        twin._next, twin._token = self._next, self._token
        return twin

    async def send(self, step: str, body: Body, until: float, stop: Optional[Flag] = None,
                   heard: Optional[Heard] = None) -> Answer:
        """Send the same bytes until there is an answer that :meth:`Transactions.verdict` can judge.

        At the instant ``until`` of :func:`clock`, and when ``stop`` is set, an UnavailableError says what was
        ``heard`` of each endpoint. A RefusedError is a no for certain. Both have ``doubt``: a send may have been done.
        """
        data = json.dumps(body).encode()
        doubt = False
        attempt = logins = 0
        stop = stop or self.io.flag()
        heard = heard or Heard()
        while True:
            limit = min(self.timeout, max((until - clock()) / 3, LEAST_SEND))
            endpoint = self._endpoint()
            answer = await self._login(limit) or await self._post(PATHS.get(step, "/v3/kv/txn"), data, limit)
            bad = trouble(step, answer)
            if bad is None or bad.word not in ("report", "login", "resend"):
                heard.forget(endpoint)
                return answer._replace(unanswered=doubt)
            doubt = doubt or bad.doubt and answer.status >= 0
            logins += bad.word == "login"
            if bad.word == "login":
                self._token = None
            if bad.word == "report" or logins > 1 or logins and not self._user:
                raise self._failed(RefusedError(f"etcd refuses: {visible(bad.detail, MAX_CAUSE)}"), doubt)
            heard.note(endpoint, answer, bad)
            if bad.word == "resend" and abs(answer.status) != TOO_MANY_REQUESTS:
                self._fail_over(endpoint)
            if heard.untrusted(self._endpoints):
                raise self._failed(heard.error(self._endpoints), doubt)
            pause = min(MAX_PAUSE, FIRST_PAUSE * 2 ** min(attempt, 7)) * random.uniform(0.5, 1)
            attempt += 1
            if clock() + pause >= until or await stop.wait(pause):
                raise self._failed(heard.error(self._endpoints), doubt)

    async def watch(self, watched: Sequence[Tuple[str, str, bool]], timeout: float = WATCH_OPENS) -> Watch:
        """Open a watch on keys and ranges (key, end, only deletions), and wait until etcd confirms it.

        A TimeoutError or another OSError says that this did not work; try again, which takes another endpoint.
        """
        requests = []
        for key, end, deletions in watched:
            create: Body = {"key": b64(key)}
            if end:
                create["range_end"] = b64(end)
            if deletions:
                create["filters"] = ["NOPUT"]
            requests.append(json.dumps({"create_request": create}))
        end_at = clock() + min(timeout, WATCH_OPENS)
        endpoint = self._endpoint()
        try:
            connection = await self._connect(endpoint, end_at - clock())
            try:
                head = self._request(endpoint, "/v3/watch", "".join(requests).encode())
                await connection.send(head, max(end_at - clock(), 0.001))
                response = Response()
                results: List[Dict[str, Any]] = []
                while sum(bool(r.get("created")) for r in results) < len(requests):
                    results += watch_results(await _more(connection, response, end_at - clock()))
                return Watch(connection, response, [r for r in results if r.get("events")])
            except BaseException:
                connection.close()
                raise
        except (OSError, ValueError) as error:
            self._fail_over(endpoint)
            raise OSError(str(error)) from None

    # -- one request

    async def _login(self, timeout: float) -> Optional[Answer]:
        """Get a token where one is needed; an answer says why there is none."""
        if not self._user or self._token is not None:
            return None
        data = json.dumps({"name": self._user, "password": self._password}).encode()
        answer = await self._post("/v3/auth/authenticate", data, timeout)
        bad = trouble("authenticate", answer)
        if bad is None:
            self._token = str(answer.body.get("token", ""))
        elif "authentication is not enabled" in bad.detail:
            self._token = ""
        else:
            return answer._replace(status=-(answer.status or 1))  # negative: nothing was sent of the request itself
        return None

    async def _post(self, path: str, data: bytes, timeout: float) -> Answer:
        end = clock() + timeout
        endpoint = self._endpoint()
        sent = False
        try:
            connection = await self._connect(endpoint, timeout)
            try:
                sent = True
                await connection.send(self._request(endpoint, path, data), max(end - clock(), 0.001))
                response = Response()
                while not response.over:
                    received = await connection.receive(max(end - clock(), 0.001))
                    response.feed(received) if received else response.end()
            finally:
                connection.close()
        except ssl.SSLCertVerificationError as error:
            return Answer(-1, error=error.verify_message, untrusted=True)
        except TimeoutError:
            return Answer(0 if sent else -1, error=f"no answer in {timeout:.1f} s")
        except (OSError, ValueError) as error:
            return Answer(0 if sent else -1, error=str(error) or type(error).__name__)
        try:
            body = json.loads(response.body)
        except (ValueError, RecursionError):
            body = None
        if path == PATHS["keepalive"] and isinstance(body, dict):  # the first of a stream
            body = body.get("result") or body.get("error")
        return Answer(response.status, body)

    async def _connect(self, endpoint: Endpoint, timeout: float) -> Connection:
        tls = self._tls if endpoint.tls else None
        return await self.io.connect(endpoint.host, endpoint.port, tls, timeout)

    def _request(self, endpoint: Endpoint, path: str, data: bytes) -> bytes:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        lines = [f"POST {endpoint.path}{path} HTTP/1.1", f"Host: {host}:{endpoint.port}",
                 "Content-Type: application/json", f"Content-Length: {len(data)}", "Connection: close",
                 "Grpc-Metadata-hasleader: true"]
        if self._token:
            lines.append("Authorization: " + self._token.replace("\r", "").replace("\n", ""))
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + data

    def _endpoint(self) -> Endpoint:
        return self._endpoints[self._next % len(self._endpoints)]

    def _fail_over(self, failed: Endpoint) -> None:
        if self._endpoint() == failed:
            self._next = (self._next + 1) % len(self._endpoints)

    @staticmethod
    def _failed(error: Any, doubt: bool) -> Any:
        error.doubt = doubt
        return error


async def _more(connection: Connection, response: Response, timeout: float) -> List[bytes]:
    """Return the next complete lines of a stream."""
    received = await connection.receive(max(timeout, 0.001))
    if not received:
        raise OSError("the watch ended")
    try:
        response.feed(received)
    except ValueError as error:
        raise OSError(str(error)) from None
    if response.over or response.status != 200 and response.status:
        raise OSError(f"the watch ended with HTTP status {response.status}")
    return response.lines()


def watch_results(lines: List[bytes]) -> List[Dict[str, Any]]:
    """Read the lines of a watch; an OSError says that it is over."""
    results: List[Dict[str, Any]] = []
    for line in lines:
        try:
            result = json.loads(line).get("result")
        except (ValueError, AttributeError, RecursionError):
            result = None
        if not isinstance(result, dict) or result.get("canceled"):
            raise OSError(f"etcd ended the watch: {line[:200]!r}")
        results.append(result)
    return results
