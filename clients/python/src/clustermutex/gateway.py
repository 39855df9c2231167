"""A client of etcd's JSON gateway: several endpoints, logins, requests repeated until answered."""

from __future__ import annotations

import json
import random
import ssl
from typing import Any, Sequence

from .errors import RefusedError, UnavailableError
from .record import visible
from .transactions import Answer, Body, Verdict, Watched, key_range, trouble
from .transport import IO, TIMEOUTS, Certificates, Connection, Endpoint, Flag, Pool, Response, Watch, clock

PATHS = {"grant": "/v3/lease/grant", "keepalive": "/v3/lease/keepalive", "revoke": "/v3/lease/revoke"}
# All other steps are transactions.
MAX_CAUSE = 200
WATCH_OPENS = 3.0  # seconds
FIRST_PAUSE = 0.05
MAX_PAUSE = 1.0
LEAST_SEND = 0.1  # seconds for a request, even if less is left of the call


def reason(error: Exception) -> str:
    """Return the text of an error of a connection."""
    text = str(error) or type(error).__name__
    return "etcd refuses the client certificate: it has expired" if "ALERT_CERTIFICATE_EXPIRED" in text else text


class Heard:
    """The latest failure of each endpoint, among the requests of one call."""

    def __init__(self) -> None:
        self._causes: dict[Endpoint, tuple[str, bool]] = {}

    def note(self, endpoint: Endpoint, answer: Answer, verdict: Verdict) -> None:
        """Keep the latest failure of an endpoint. Silence in a hurry says less than an earlier one."""
        if answer.hurried and endpoint in self._causes:
            return
        known = answer.error or verdict.detail.startswith("HTTP ")
        status = "" if known else f"HTTP {abs(answer.status)}: "
        self._causes[endpoint] = (visible(status + verdict.detail, MAX_CAUSE), answer.untrusted)

    def forget(self, endpoint: Endpoint) -> None:
        """Drop the failure of an endpoint that has answered."""
        self._causes.pop(endpoint, None)

    def untrusted(self, endpoints: Sequence[Endpoint]) -> bool:
        """Report whether no endpoint has a trusted certificate."""
        return len(self._causes) == len(endpoints) and self._distrust()

    def error(self, endpoints: Sequence[Endpoint]) -> RefusedError | UnavailableError:
        """Return the error to raise when the call gives up."""
        causes = [(e.url, *self._causes[e]) for e in endpoints if e in self._causes]
        if self._distrust():
            return RefusedError("; ".join(f"the certificate of {url} is not trusted: {why}" for url, why, _ in causes))
        said = (f"{url}: {'its certificate is not trusted: ' if distrusted else ''}{why}"
                for url, why, distrusted in causes)
        is_full = bool(causes) and all("space exceeded" in why for _, why, _ in causes)
        failed = "etcd is out of space and accepts no writes" if is_full else "etcd did not answer"
        return UnavailableError(f"{failed}: " + "; ".join(said))

    def _distrust(self) -> bool:
        return all(distrusted for _, distrusted in self._causes.values())


class Gateway:
    """Sends requests to the endpoints of one cluster."""

    def __init__(self, io: IO, endpoints: Sequence[Endpoint], certificates: Certificates | None, user: str,
                 password: str, timeout: float) -> None:
        self.io = io
        self.timeout = timeout
        self._endpoints = list(endpoints)
        self._next = 0
        self._pool = Pool()
        self._certificates = certificates
        self._user = user
        self._password = password
        self._token: str | None = None

    def over(self, io: IO) -> Gateway:
        """Return the same gateway over other connections."""
        twin = Gateway(io, self._endpoints, self._certificates, self._user, self._password, self.timeout)
        twin._next, twin._token = self._next, self._token
        return twin

    async def send(self, step: str, body: Body, until: float, stop: Flag | None = None,
                   heard: Heard | None = None) -> Answer:
        """Send the same bytes until :meth:`Transactions.verdict` can interpret the answer.

        At ``until``, a time of :func:`clock`, or when ``stop`` is set, raises UnavailableError with the failures in
        ``heard``. Raises RefusedError if etcd definitely refuses. Both have ``doubt``: a send may have been applied.
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
            if bad.word == "resend":
                self._fail_over(endpoint)
            if heard.untrusted(self._endpoints):
                raise self._failed(heard.error(self._endpoints), doubt)
            pause = min(MAX_PAUSE, FIRST_PAUSE * 2 ** min(attempt, 7)) * random.uniform(0.5, 1)
            attempt += 1
            if clock() + pause >= until or await stop.wait(pause):
                raise self._failed(heard.error(self._endpoints), doubt)

    async def watch(self, watched: Sequence[Watched], timeout: float = WATCH_OPENS) -> Watch:
        """Open a watch on keys and ranges, and wait until etcd confirms it.

        Raises OSError, for instance TimeoutError, if that fails. The next call uses another endpoint.
        """
        requests = []
        for key, end, deletions, start in watched:
            create = key_range(key, end)
            if deletions:
                create["filters"] = ["NOPUT"]
            if start:
                create["start_revision"] = str(start)
            requests.append(json.dumps({"create_request": create}))
        end_at = clock() + min(timeout, WATCH_OPENS)
        endpoint = self._endpoint()
        try:
            if await self._login(end_at - clock()) is not None:
                raise OSError("login failed")
            watch = Watch(await self._connect(endpoint, end_at - clock()))
            try:
                data = self._request(endpoint, "/v3/watch", "".join(requests).encode())
                await watch.open(data, len(requests), end_at)
                return watch
            except BaseException:
                watch.close()
                raise
        except (OSError, ValueError) as error:
            self._fail_over(endpoint)
            raise OSError(str(error)) from None

    # -- one request

    async def _login(self, timeout: float) -> Answer | None:
        """Get a token if one is needed. Return None on success, otherwise the answer that says why there is none."""
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
            return answer._replace(status=-(answer.status or 1))  # negative: the request itself was not sent
        return None

    async def _post(self, path: str, data: bytes, timeout: float) -> Answer:
        end = clock() + timeout
        endpoint = self._endpoint()
        response = Response()
        status = -1  # nothing was sent
        try:
            connection = self._pool.take(endpoint) or await self._connect(endpoint, timeout)
            status = 0
            try:
                await connection.send(self._request(endpoint, path, data), max(end - clock(), 0.001))
                while not response.over:
                    received = await connection.receive(max(end - clock(), 0.001))
                    response.feed(received) if received else response.end()
            finally:
                self._pool.give(endpoint, connection) if response.reusable else connection.close()
        except ssl.SSLCertVerificationError as error:
            return Answer(-1, error=error.verify_message, untrusted=True)
        except TIMEOUTS:
            return Answer(status, error=f"no answer in {timeout:.1f} s", hurried=timeout < self.timeout)
        except (OSError, ValueError) as error:
            return Answer(status, error=reason(error))
        try:
            body = json.loads(response.body)
        except (ValueError, RecursionError):
            body = None
        if path == PATHS["keepalive"] and isinstance(body, dict):  # the first message of a stream
            body = body.get("result") or body.get("error")
        return Answer(response.status, body)

    async def _connect(self, endpoint: Endpoint, timeout: float) -> Connection:
        tls = self._certificates.context() if endpoint.tls and self._certificates is not None else None
        return await self.io.connect(endpoint.host, endpoint.port, tls, timeout)

    def _request(self, endpoint: Endpoint, path: str, data: bytes) -> bytes:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        lines = [f"POST {endpoint.path}{path} HTTP/1.1", f"Host: {host}:{endpoint.port}",
                 "Content-Type: application/json", f"Content-Length: {len(data)}",
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
