"""The test vectors of the protocol, which all clients share."""

import base64
import json
import os
import re
import sys
import unittest
from pathlib import Path
from typing import Any, Dict, List

from clustermutex import record
from tests.etcd import REPOSITORY

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))
import driver  # noqa: E402

PROTOCOL = Path(os.environ.get("CLUSTERMUTEX_PROTOCOL", REPOSITORY / "docs" / "protocol"))


def cases(file: str, member: str) -> List[Dict[str, Any]]:
    read: List[Dict[str, Any]] = json.loads((PROTOCOL / file).read_text(encoding="utf-8"))[member]
    assert read, f"{file} has no {member}"
    return read


def plain(text: Any) -> Any:
    """Return text with one U+FFFD where the vectors have one, and a time to the millisecond."""
    cut = re.sub(r"^([0-9]{10}\.[0-9]{3})[0-9]+$", r"\1", text) if isinstance(text, str) else text
    return re.sub("\ufffd+", "\ufffd", cut) if isinstance(cut, str) else cut


class Vectors(unittest.TestCase):
    def test_fields(self) -> None:
        fields = json.loads((PROTOCOL / "vectors.json").read_text(encoding="utf-8"))["fields"]
        self.assertEqual(record.RESERVED, {"metadata", *fields["keys"], *fields["keys_of_others"], *fields["members"]})

    def test_names(self) -> None:
        for case in cases("vectors.json", "names"):
            with self.subTest(case["about"]):
                self.assertEqual(record.segment(case["name"]), case["segment"])
                self.assertEqual(record.name_of(case["segment"]), case["name"])

    def test_refused_names(self) -> None:
        for case in cases("vectors.json", "refused_names"):
            name = case["name"] if "name" in case else base64.b64decode(case["name_base64"])
            with self.subTest(case["about"]), self.assertRaises(ValueError):
                record.segment(name)

    def test_refused_segments(self) -> None:
        for case in cases("vectors.json", "refused_segments"):
            with self.subTest(case["about"]), self.assertRaises(ValueError):
                record.name_of(case["segment"])

    def test_times(self) -> None:
        for case in cases("vectors.json", "times"):
            with self.subTest(case["about"]):
                self.assertEqual(record.parse_time(case["text"]), (case["seconds"], case["nanoseconds"]))

    def test_refused_times(self) -> None:
        for case in cases("vectors.json", "refused_times"):
            with self.subTest(case["about"]), self.assertRaises(ValueError):
                record.parse_time(case["text"])

    def test_records(self) -> None:
        for case in cases("vectors.json", "records"):
            with self.subTest(case["about"]):
                got = driver.do_decode(case)
                self.assertEqual(got["malformed"], case["malformed"])
                for name in ("uuid", "owner", "hostname", "purpose", "alert_at", "auto_unlock_at"):
                    raw = case["decoded"].get(name + "_base64")
                    wanted = base64.b64decode(raw).decode(errors="replace") if raw else case["decoded"].get(name)
                    self.assertEqual(plain(got["decoded"].get(name)), plain(wanted), name)

    def test_requests_and_extensions(self) -> None:
        for case in cases("vectors.json", "requests") + cases("vectors.json", "extensions"):
            with self.subTest(case["about"]):
                got = record.read_note(driver.bytes_of(case), case["uuid"], case["token"])
                wanted = case.get("decoded", {})
                for name in wanted:
                    self.assertEqual(got.get(name) or "", wanted[name] or "", name)
                self.assertEqual(bool(got), bool(wanted))

    def test_endings(self) -> None:
        for case in cases("vectors.json", "endings"):
            with self.subTest(case["about"]):
                got = record.read_ending(driver.bytes_of(case), 7)
                wanted = case.get("decoded")
                self.assertEqual(got and got._asdict(), wanted and {n: wanted[n] for n in ("ended", "by", "why")})

    def test_delays(self) -> None:
        for case in cases("vectors.json", "delays"):
            with self.subTest(case["about"]):
                lock = record.name_of(case["key"].split("/")[-1])
                got = record.read_delay(lock, driver.bytes_of(case))
                wanted = case.get("decoded", {})
                self.assertEqual((got.owner, got.hostname), (wanted.get("owner"), wanted.get("hostname")))
                self.assertEqual(got.until is not None, wanted.get("at") is not None)

    def test_transactions(self) -> None:
        for case in cases("transactions.json", "transactions") + cases("kinds.json", "transactions"):
            with self.subTest(case["step"], about=case["about"]):
                self.assertEqual(driver.do_transaction(case)["body"], case["body"])

    def test_verdicts(self) -> None:
        for case in cases("transactions.json", "verdicts") + cases("kinds.json", "verdicts"):
            with self.subTest(case["step"], about=case["about"]):
                got = driver.do_verdict(case)
                if got["holder"] is not None:
                    got["holder"] = got["holder"]["uuid"]
                wanted = {name: value for name, value in case.items()
                          if name not in ("about", "step", "input", "answer")}
                self.assertEqual({name: got.get(name) for name in wanted}, wanted)
