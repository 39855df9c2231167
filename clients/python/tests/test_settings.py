"""Bad input is reported in one sentence before anything is sent; defaults are those of the Go client."""

import json
import pickle
import unittest
from typing import Any

import clustermutex
from clustermutex import identity, record
from clustermutex.settings import settle
from tests.etcd import REPOSITORY

NOWHERE = "http://127.0.0.1:1"


def times(**given: Any) -> tuple[float, float, float]:
    wanted: dict[str, Any] = {"name": "a", "wait": None, "alert_after": None, "auto_unlock_after": None, "margin": None,
                              "heartbeat": None, "purpose": "", "attributes": None}
    s = settle(kind=(None, 1, False, False), **{**wanted, **given})
    return s.alert_after, s.auto_unlock_after, s.margin_of(s.auto_unlock_after)


class BadInput(unittest.TestCase):
    def test_a_lock(self) -> None:
        client = clustermutex.Client(NOWHERE)
        name: dict[str, Any] = {"name": "a"}
        bad: list[tuple[dict[str, Any], str]] = [
            ({"name": ""}, "the lock's name has 0 bytes"),
            ({"name": "a\nb"}, r"the lock's name a\\nb contains a control character"),
            ({"name": "\ud800"}, "the lock's name is not UTF-8"),
            ({"name": 7}, "the lock's name is 7; it must be a str"),
            ({"wait": -1}, "the time to wait is -1 s"),
            ({"wait": "1"}, "the time to wait is '1'; it must be a number of seconds"),
            ({"wait": float("nan")}, "the time to wait is nan"),
            ({"alert_after": 0}, "the time until alert is 0 s; it must be positive"),
            ({"auto_unlock_after": 0.05}, "the time until auto-unlock is 0.05 s; it must be at least 0.1 s"),
            ({"auto_unlock_after": 1e12}, "it must be at most ten years"),
            ({"auto_unlock_after": 10**400}, r"the time until auto-unlock is more than 1e\+300 s; it must be at "),
            ({"wait": 10**5000}, r"the time to wait is more than 1e\+300 s; it must be at most ten years"),
            ({"wait": -10**400}, r"the time to wait is less than -1e\+300 s; it must be positive"),
            ({"alert_after": 2592000, "auto_unlock_after": 5}, "the time until alert of 2592000 s is longer "),
            ({"auto_unlock_after": 5, "margin": 5}, "the margin of 5 s leaves nothing"),
            ({"heartbeat": 10, "auto_unlock_after": 20}, "the heartbeat's longest hold of 10 s is shorter than the "),
            ({"heartbeat": "on"}, "the longest hold of the heartbeat is 'on'; it must be a number"),
            ({"purpose": "x" * 1025}, "the purpose has 1025 bytes; it must have at most 1024"),
            ({"purpose": None}, "the purpose is None; it must be a str"),
            ({"attributes": {"Team": "a"}}, "attribute 'Team': a name is a lowercase letter"),
            ({"attributes": {"pid": 1}}, 'attribute "pid": the name is reserved by the protocol'),
            ({"attributes": {"a": float("inf")}}, 'attribute "a" is inf; it must be finite'),
            ({"attributes": {"a": [1]}}, r'attribute "a" is \[1\]; it must be a str, a number or a bool'),
            ({"attributes": {f"a{i}": 1 for i in range(65)}}, "there are 65 attributes; at most 64 are allowed"),
            ({"attributes": {f"a{i}": "x" * 1024 for i in range(64)}}, "the record would have .* fewer attributes"),
        ]
        for arguments, sentence in bad:
            with self.subTest(arguments), self.assertRaisesRegex(clustermutex.RefusedError, sentence):
                client.lock(**dict(name, **arguments))

    def test_a_client(self) -> None:
        endpoints: dict[str, Any] = {"endpoints": NOWHERE}
        bad: list[tuple[dict[str, Any], str]] = [
            ({"endpoints": []}, "no endpoints were given"),
            ({"endpoints": "etcd://a"}, 'endpoint "etcd://a": want http://HOST:PORT or https://HOST:PORT'),
            ({"endpoints": "a:b"}, 'endpoint "a:b": want http://HOST:PORT or https://HOST:PORT'),
            ({"endpoints": "http://ann:sesame@a"}, "^an endpoint must not contain a user or password: give them as "
                                                   "user and password$"),
            ({"prefix": "/mutexes"}, 'the prefix is "/mutexes"; it must begin and end with a slash'),
            ({"timeout": 0}, "the timeout is 0 s; it must be positive"),
            ({"timeout": 10**400}, r"the timeout is more than 1e\+300 s; it must be at most ten years"),
            ({"owner": "x" * 2000}, "the owner has 2000 bytes"),
            ({"ca": "ca.crt"}, "certificates are given, but no endpoint begins with https://"),
            ({"endpoints": "https://a", "cert": "a"}, "a certificate and its key go together"),
            ({"endpoints": "https://a", "ca": "/nowhere"}, "/nowhere: .*No such file"),
            ({"password": "x"}, "a password is given, but no user"),
        ]
        for arguments, sentence in bad:
            with self.subTest(arguments), self.assertRaisesRegex(clustermutex.RefusedError, sentence):
                clustermutex.Client(**dict(endpoints, **arguments))

    def test_a_period(self) -> None:
        lock = clustermutex.Client(NOWHERE).lock("a")
        for every in (0.5, 10**5000):
            with self.assertRaisesRegex(clustermutex.RefusedError, "the period is .* s; it must be 1 to 3.1536e"):
                lock.once_per(every, lambda lock: None)

    def test_a_lock_that_is_not_held(self) -> None:
        lock = clustermutex.Client(NOWHERE).lock("a")
        with self.assertRaisesRegex(clustermutex.RefusedError, 'lock "a" is not held'):
            lock.alive()
        with self.assertRaisesRegex(clustermutex.RefusedError, 'lock "a" is not held'):
            lock.release()


class Defaults(unittest.TestCase):
    def test_times(self) -> None:
        all_cases: list[tuple[dict[str, Any], tuple[float, float, float]]] = [
            ({}, (300, 900, 30)),
            ({"alert_after": 60}, (60, 180, 18)),
            ({"auto_unlock_after": 60}, (20, 60, 6)),
            ({"heartbeat": 3600}, (300, 60, 6)),
            ({"heartbeat": 30}, (30, 30, 3)),
            ({"heartbeat": True}, (300, 60, 6)),
            ({"heartbeat": False}, (300, 900, 30)),
            ({"auto_unlock_after": 60, "margin": 1}, (20, 60, 1)),
        ]
        for given, wanted in all_cases:
            with self.subTest(given):
                self.assertEqual(times(**given), wanted)


class Writing(unittest.TestCase):
    def test_the_fields_are_those_of_the_protocol(self) -> None:
        vectors = json.loads((REPOSITORY / "docs" / "protocol" / "vectors.json").read_text(encoding="utf-8"))
        fields = vectors["fields"]
        self.assertEqual(record.RESERVED, {"metadata", *fields["keys"], *fields["keys_of_others"], *fields["members"]})

    def test_times_have_ten_digits(self) -> None:
        self.assertEqual(record.format_time(1553682600.25), "1553682600.25")
        self.assertEqual(record.format_time(1553682600.0004), "1553682600")
        with self.assertRaisesRegex(ValueError, "the clock of this machine says 86400"):
            record.format_time(86400)

    def test_a_long_backtrace_is_cut_at_the_end_of_a_line(self) -> None:
        line = "/srv/a.py:1 in f\\g"
        written = record.to_metadata({"owner": "a", "backtrace": "\n".join([line] * 2000)}, 100)
        trace = json.loads(written)["backtrace"].split("\n")
        self.assertEqual(trace[-1], "…")
        self.assertEqual(set(trace[:-1]), {line})
        self.assertLessEqual(len("\n".join(trace).encode()), record.MAX_BACKTRACE)
        self.assertGreater(len("\n".join(trace).encode()), record.MAX_BACKTRACE - 2000)

    def test_a_backtrace_makes_room_for_attributes(self) -> None:
        attributes = {f"a{i}": "x" * 1000 for i in range(60)}
        written = record.to_metadata({**attributes, "backtrace": "\n".join(["/srv/a.py:1 in f"] * 2000)}, 100)
        self.assertLessEqual(len(written.encode()) + 100, record.MAX_RECORD)
        self.assertEqual(len(json.loads(written)), 61)


class Showing(unittest.TestCase):
    def test_who_holds_a_lock(self) -> None:
        holder = record.Record("a", "u", 7, owner="bill\x1b[31ming", hostname="host-3", pid=17, locked_at=1000.0,
                               purpose="nightly\ninvoices", auto_unlock_at=2000.0)
        self.assertEqual(holder.describe(1240.0), r"bill\x1b[31ming on host-3 (pid 17), taken 4 minutes ago for "
                                                  r'"nightly\ninvoices"; auto-unlock in 12 minutes')
        self.assertIn("auto-unlock was due 2 days ago", holder.describe(2000 + 2 * 86400.0))
        self.assertEqual(record.Record("a", "u", 7).describe(0), "an unknown owner; no readable auto-unlock time")

    def test_a_lock_delay_in_words(self) -> None:
        note = b'{"lock":"a","owner":"bill\\u001b[31ming","hostname":"host-3","at":"1553682590","seconds":30}'
        self.assertEqual(record.read_delay("a", note).describe(1553682600.0), "a lock delay after the hold of "
                         r"bill\x1b[31ming on host-3, which ends in 20 seconds")
        self.assertEqual(record.read_delay("a", b"soon").describe(0), "a lock delay of a hold that was ended")

    def test_untrusted_text_is_harmless(self) -> None:
        self.assertEqual(record.visible("a\u202eb\x00"), r"a\u202eb\x00")
        self.assertEqual(len(record.visible("x" * 500)), 120)


class Errors(unittest.TestCase):
    def test_errors_can_be_pickled(self) -> None:
        holder = record.Record("a", "u", 7, attributes={"team": "core"})
        errors: list[clustermutex.MutexError] = [
            clustermutex.HeldError("a", holder, 2, "held"), clustermutex.WaitTimeoutError("a", None, 0, "waited"),
            clustermutex.LostError("a", "forced", "ann", "it hangs"), clustermutex.RefusedError("no")]
        for error in errors:
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), str(copy), vars(copy)), (type(error), str(error), vars(error)))


class Process(unittest.TestCase):
    STAT = "4711 (a) S 1) " + " ".join(str(n) for n in range(3, 53))

    def test_a_machine(self) -> None:
        files = {"/proc/sys/kernel/random/boot_id": "0b5d-7e\n", "/proc/self/stat": self.STAT,
                 "/proc/self/ns/pid": "pid:[4026531836]", "/proc/self/ns/time": "time:[4026531834]"}

        def read(path: str) -> str:
            return files.get(path, "")

        self.assertEqual(identity.identity({}, read),
                         {"boot_id": "0b5d-7e", "pid_namespace": 4026531836, "process_start": 22})
        files["/proc/self/ns/time"] = "time:[4026532000]"
        self.assertEqual(identity.identity({}, read), {"boot_id": "0b5d-7e", "pid_namespace": 4026531836})
        del files["/proc/sys/kernel/random/boot_id"]
        self.assertEqual(identity.identity({}, read), {})

    def test_a_pod(self) -> None:
        def nothing(path: str) -> str:
            return ""

        pod = {"POD_NAMESPACE": "shop", "POD_NAME": "shop-1", "POD_UID": "0b5d7e0a", "CONTAINER_NAME": "worker"}
        self.assertEqual(identity.identity(pod, nothing), {
            "pod_namespace": "shop", "pod_name": "shop-1", "pod_uid": "0b5d7e0a", "container": "worker"})
        self.assertEqual(identity.identity({"CONTAINER_NAME": "worker"}, nothing), {})
        self.assertEqual(identity.identity({**pod, "POD_NAME": "a\x1bb"}, nothing).get("pod_name"), None)

    def test_this_process(self) -> None:
        with open("/proc/self/stat", encoding="utf-8") as stat:
            start = int(stat.read().rpartition(")")[2].split()[19])
        self.assertEqual(identity.identity({})["process_start"], start)
