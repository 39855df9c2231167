"""The test vectors of the protocol, which all clients share."""

import base64
import json
import os
import sys
import unittest
from pathlib import Path
from typing import Any, Dict, List

from clustermutex import record
from clustermutex.hold import read_note
from tests.etcd import REPOSITORY

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))
import driver  # noqa: E402

PROTOCOL = Path(os.environ.get("CLUSTERMUTEX_PROTOCOL", REPOSITORY / "docs" / "protocol"))


def cases(file: str, member: str) -> List[Dict[str, Any]]:
    read: List[Dict[str, Any]] = json.loads((PROTOCOL / file).read_text(encoding="utf-8"))[member]
    assert read, f"{file} has no {member}"
    return read


class Vectors(unittest.TestCase):
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
                    self.assertEqual(got["decoded"].get(name), wanted, name)

    def test_requests_and_extensions(self) -> None:
        for case in cases("vectors.json", "requests") + cases("vectors.json", "extensions"):
            with self.subTest(case["about"]):
                got = read_note(case["value"].encode(), case["uuid"], case["token"])
                wanted = case.get("decoded", {})
                self.assertEqual({name: got.get(name) for name in wanted}, wanted)
                self.assertEqual(bool(got), bool(wanted))

    def test_transactions(self) -> None:
        for case in cases("transactions.json", "transactions"):
            with self.subTest(case["step"], about=case["about"]):
                self.assertEqual(driver.do_transaction(case)["body"], case["body"])

    def test_verdicts(self) -> None:
        for case in cases("transactions.json", "verdicts"):
            with self.subTest(case["step"], about=case["about"]):
                got = driver.do_verdict(case)
                if got["holder"] is not None:
                    got["holder"] = got["holder"]["uuid"]
                wanted = {name: value for name, value in case.items()
                          if name not in ("about", "step", "input", "answer")}
                self.assertEqual({name: got.get(name) for name in wanted}, wanted)
