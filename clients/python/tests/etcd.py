"""A real etcd for tests: the program test/etcdserver of this repository, which CLUSTERMUTEX_ETCDSERVER names."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT = 60.0  # seconds until a test gives up: generous, because machines are busy


def program() -> str:
    """Return the path of the server, and build it if necessary."""
    given = os.environ.get("CLUSTERMUTEX_ETCDSERVER")
    if given:
        return given
    built = os.path.join(tempfile.gettempdir(), f"etcdserver-{os.getuid()}")
    subprocess.run(["go", "build", "-o", built, "./test/etcdserver"], cwd=REPOSITORY, check=True)
    os.environ["CLUSTERMUTEX_ETCDSERVER"] = built
    return built


def eventually(what: str, check: Callable[[], Any]) -> Any:
    """Wait until the check returns something true, and return that."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        got = check()
        if got:
            return got
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come within {LIMIT:g} s")


class Etcd:
    """One etcd."""

    def __init__(self, *flags: str) -> None:
        self._dir = tempfile.TemporaryDirectory()
        self._flags = [*flags, "-data", self._dir.name]
        self.endpoint = ""
        self.start()

    def start(self) -> None:
        listen = ["-listen", self.endpoint.split("//")[1]] if self.endpoint else []
        self._process = subprocess.Popen([program(), *self._flags, *listen], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        assert self.endpoint, "etcd did not start"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def hang(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until all of its threads have stopped

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        self._dir.cleanup()

    # -- what other programs do

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self.endpoint + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            got: dict[str, Any] = json.load(answer)
            return got

    def put(self, key: str, value: str, lease: str = "0") -> int:
        answer = self.post("/v3/kv/put", {"key": b64(key), "value": b64(value), "lease": lease})
        return int(answer["header"]["revision"])

    def delete(self, prefix: str) -> None:
        self.post("/v3/kv/deleterange", {"key": b64(prefix), "range_end": b64(after(prefix))})

    def get(self, prefix: str) -> dict[str, str]:
        """Return keys and values below a prefix."""
        answer = self.post("/v3/kv/range", {"key": b64(prefix), "range_end": b64(after(prefix))})
        return {unb64(k["key"]): unb64(k.get("value", "")) for k in answer.get("kvs", [])}

    def fields(self, segment: str) -> dict[str, str]:
        """Return the record of a lock."""
        prefix = f"/mutexes/{segment}/"
        return {key[len(prefix):]: value for key, value in self.get(prefix).items()}

    def metadata(self, segment: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.fields(segment)["metadata"])
        return read

    def tickets(self, segment: str) -> list[str]:
        return [key for key in self.get(f"/mutexes/.queue/{segment}/") if not key.endswith(".tail")]

    def force_unlock(self, segment: str, token: int, why: str) -> None:
        """End a hold as an operator does."""
        uuid = self.fields(segment)["uuid"]
        ending = {"uuid": uuid, "token": token, "ended": "forced", "by": "ann", "why": why}
        self.post("/v3/kv/txn", {"success": [
            {"request_delete_range": {"key": b64(f"/mutexes/{segment}/"), "range_end": b64(f"/mutexes/{segment}0")}},
            {"request_put": {"key": b64(f"/mutexes/.history/{uuid}"), "value": b64(json.dumps(ending))}}]})


def after(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def unb64(text: str) -> str:
    return base64.b64decode(text).decode()


_shared: Etcd | None = None


def shared() -> Etcd:
    """Return the etcd that tests share unless they harm it."""
    global _shared
    if _shared is None:
        _shared = Etcd()
    return _shared


def stop_shared() -> None:
    global _shared
    if _shared is not None:
        _shared.stop()
        _shared = None
