"""Semaphores and read-write locks, on a real etcd."""

import os
import threading
import time
import unittest
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any, Union
from unittest import mock

import clustermutex
from clustermutex import HeldError, LostError, RefusedError, UnavailableError, WaitTimeoutError
from clustermutex.attempt import Attempt
from clustermutex.gateway import Gateway
from clustermutex.hold import Hold
from clustermutex.kinds import Claim, Holders, Need
from clustermutex.periods import begins
from clustermutex.record import Delay, Record
from clustermutex.transactions import Answer, Verdict
from tests.etcd import Etcd, eventually, shared, stop_shared


def tearDownModule() -> None:
    stop_shared()


class OnEtcd(unittest.TestCase):
    def setUp(self) -> None:
        self.etcd: Etcd = shared()
        self.client = clustermutex.Client(self.etcd.endpoint, "billing")
        self.name = self.id().rsplit(".", 1)[1]

    def taken(self, **options: Any) -> clustermutex.Lock:
        return self.client.lock(self.name, wait=0, **options).acquire()


class Semaphores(OnEtcd):
    def test_a_semaphore_has_a_limited_number_of_permits(self) -> None:
        held = [self.taken(semaphore=3) for _ in range(3)]
        self.assertEqual([lock.share for lock in held], [1, 2, 3])
        with self.assertRaises(HeldError) as raised:
            self.taken(semaphore=3)
        self.assertEqual([r.lock for r in raised.exception.holders], [f"{self.name}#{k}" for k in (1, 2, 3)])
        self.assertIn("0 of 3 permits are free, 1 wanted", str(raised.exception))
        held[1].release()
        self.assertEqual(self.taken(semaphore=3).share, 2, "the lowest number that is free")

    def test_a_permit_that_a_lost_send_took_is_given_back(self) -> None:
        send = Gateway.send

        async def loses(gateway: Gateway, step: str, *rest: Any) -> Answer:
            if step != "try":
                return await send(gateway, step, *rest)
            with suppress(UnavailableError):
                await send(gateway, step, *rest)
            error = UnavailableError("the answer is lost")
            error.doubt = True
            raise error

        with mock.patch.object(Gateway, "send", loses), self.assertRaisesRegex(UnavailableError, "is lost"):
            self.taken(semaphore=3)
        eventually("a free pool", lambda: not self.etcd.get(f"/mutexes/{self.name}#"))

    def test_an_interrupt_right_after_the_answer_gives_the_permit_back(self) -> None:
        with mock.patch.object(Attempt, "_got", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.taken(semaphore=3)
        eventually("a free pool", lambda: not self.etcd.get(f"/mutexes/{self.name}#"))

    def test_alive_does_not_count_as_a_share(self) -> None:
        self.taken(semaphore=2).alive("it creates a key")
        self.taken(semaphore=2)


class Needs(unittest.TestCase):
    def test_what_is_refused(self) -> None:
        client = clustermutex.Client("http://127.0.0.1:1", "billing")
        cases: list[Any] = [
            ({"semaphore": 0}, "limit of the semaphore is 0"), ({"semaphore": 2, "weight": 3}, "weight is 3"),
            ({"weight": 2}, "only a semaphore has a weight"), ({"shared": True, "exclusive": True}, "contradict"),
            ({"semaphore": True}, "whole number"), ({"shared": True, "attributes": {"kind": "mine"}}, "reserved"),
        ]
        for options, sentence in cases:
            with self.subTest(sentence), self.assertRaisesRegex(RefusedError, sentence):
                client.lock("pool", **options)
        with self.assertRaisesRegex(RefusedError, "ends in #"):
            client.lock("pool#2", shared=True)
        client.lock("pool#2")  # a plain lock may have any name

    def test_room(self) -> None:
        def share(k: int, **attributes: Any) -> Record:
            return Record(f"pool#{k}", f"u{k}", k, attributes=attributes)

        three = Need("semaphore", 3, 1)
        cases: list[Any] = [
            (Holders(), 3), (Holders(shares={1: share(1)}), 2), (Holders(shares={1: share(1, permits=2.0)}), 1),
            (Holders(shares={1: share(1, permits="2")}), 1), (Holders(shares={1: share(1, permits="many")}), 0),
            (Holders(whole=share(0)), 0), (Holders(delay=Delay()), 0),
            (Holders(delays={1: Delay(permits=2)}), 1), (Holders(delays={1: Delay()}), 0),
        ]
        for holders, free in cases:
            with self.subTest(holders):
                self.assertEqual(holders.free(3), free)
                self.assertEqual(holders.room(three), free > 0)
        reader = Holders(shares={1: share(1)}, delays={3: Delay()}, revision=7)
        self.assertTrue(reader.room(Need("shared")))
        self.assertFalse(reader.room(Need("exclusive")))
        self.assertEqual([reader.claim(Need("shared"), skip) for skip in (0, 1)], [Claim(2, 7), Claim(4, 7)])


class Several(OnEtcd):
    def names(self) -> list[str]:
        return [f"{self.name}/{letter}" for letter in "ab"]

    def both(self, **options: Any) -> clustermutex.Locks:
        return self.client.lock_all(*(self.client.lock(name, **options) for name in reversed(self.names())))

    def test_all_or_none(self) -> None:
        with self.both(wait=0) as both:
            self.assertEqual(len({lock.token for lock in both.locks}), 1, "one transaction")
            self.assertEqual(self.etcd.metadata(self.name + "%2Fa")["together_with"], self.names()[1])
            with self.assertRaises(HeldError) as raised:
                self.both(wait=0).acquire()
            self.assertEqual(raised.exception.lock, self.names()[0])
            both.alive("half")
        one = self.client.lock(self.names()[1], wait=0).acquire()
        with self.assertRaises(HeldError):
            self.both(wait=0).acquire()
        self.assertFalse(self.etcd.fields(self.name + "%2Fa"), "the free one was not taken")
        one.release()

    def test_waits_for_each(self) -> None:
        held = self.client.lock(self.names()[1], wait=0).acquire()
        both = self.both(auto_unlock_after=3)
        thread = threading.Thread(target=both.acquire)
        thread.start()
        eventually("the second ticket", lambda: self.etcd.tickets(self.name + "%2Fb"))
        eventually("why it does not work", lambda: "waits for" in self.etcd.fields(self.name + "%2Fa").get("alive", ""))
        held.release()
        thread.join(60)
        self.assertTrue(all(lock.token for lock in both.locks))
        both.release()
        self.assertFalse(self.etcd.get("/mutexes/" + self.name))

    def test_what_does_not_fit_into_one_transaction_is_taken_in_order(self) -> None:
        kinds: list[Any] = [{"semaphore": 2, "weight": 2}, {"shared": True}, {"exclusive": True}]
        for several in ([self.client.lock(f"{self.name}/{n}", **kind) for n, kind in enumerate(kinds)],
                        [self.client.lock(f"{self.name}/{n}") for n in range(25)]):
            with self.client.lock_all(*several) as all_of_them:
                self.assertEqual(len({lock.token for lock in all_of_them.locks}), len(several))
                with self.assertRaises(HeldError):
                    self.client.lock(f"{self.name}/0", semaphore=2, wait=0).acquire()
            self.assertFalse(self.etcd.get("/mutexes/" + self.name))

    def test_a_loss_of_one_is_a_loss(self) -> None:
        with self.assertRaises(LostError), self.both() as both:
            self.assertIsNone(both.lost)
            self.etcd.delete(f"/mutexes/{self.name}%2Fb/")
            self.assertEqual(eventually("the loss", lambda: both.lost), "deleted")

    def test_a_loss_ends_the_wait_for_the_others(self) -> None:
        held = self.client.lock(self.names()[1], wait=0).acquire()
        both = self.both()
        failed: list[Exception] = []

        def work() -> None:
            try:
                both.acquire()
            except clustermutex.MutexError as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        eventually("the second ticket", lambda: self.etcd.tickets(self.name + "%2Fb"))
        self.etcd.delete(f"/mutexes/{self.name}%2Fa/")
        thread.join(60)
        self.assertEqual([type(error) for error in failed], [clustermutex.LostError])
        held.release()
        eventually("nothing left", lambda: not self.etcd.tickets(self.name + "%2Fb"))

    def test_a_failure_or_an_interrupt_releases_the_locks_taken_so_far(self) -> None:
        names = [f"{self.name}/{letter}" for letter in "abc"]
        held = self.client.lock(names[2], wait=0).acquire()
        release, interrupts = Hold._release, [KeyboardInterrupt()]

        async def interrupted(hold: Hold, until: float) -> Verdict:
            if interrupts:
                raise interrupts.pop()
            return await release(hold, until)

        with mock.patch.object(Hold, "_release", interrupted), self.assertRaises(KeyboardInterrupt):
            self.client.lock_all(*(self.client.lock(name, wait=1) for name in names)).acquire()
        eventually("the release", lambda: not any(self.etcd.fields(f"{self.name}%2F{letter}") for letter in "ab"))
        with self.assertRaises(WaitTimeoutError):
            self.client.lock_all(*(self.client.lock(name, wait=1) for name in names)).acquire()
        self.assertFalse(self.etcd.fields(self.name + "%2Fa"))
        held.release()

    def test_what_is_refused(self) -> None:
        too_many = [self.client.lock(str(n), wait=0) for n in range(25)]
        cases: list[list[clustermutex.Lock]] = [
            [], [self.client.lock("a")] * 2, [self.client.lock("a", shared=True, wait=0)], too_many]
        for locks in cases:
            with self.subTest(len(locks)), self.assertRaises(RefusedError):
                self.client.lock_all(*locks)


class Periods(OnEtcd):
    def once(self, **options: Any) -> bool:
        return self.client.lock(self.name).once_per(86400, self.ran.append, **options)

    def setUp(self) -> None:
        super().setUp()
        self.ran: list[clustermutex.Lock] = []

    def test_once(self) -> None:
        self.assertEqual([self.once(), self.once()], [True, False])
        self.assertEqual(len(self.ran), 1)
        self.assertFalse(self.etcd.fields(self.name), "the lock is free again")
        value = self.etcd.get("/mutexes/.periods/" + self.name)["/mutexes/.periods/" + self.name]
        self.assertRegex(value, "^[0-9]{10} taken .*Z by billing on ")

    def test_once_for_a_tick(self) -> None:
        tick = datetime(2019, 3, 27, 3, tzinfo=timezone(timedelta(hours=1)))
        lock = self.client.lock(self.name)
        day = timedelta(1)
        cases: list[tuple[Union[datetime, float], bool]] = [
            (tick, True), (1553652000.0009, False), (tick - day, False), (tick + day, True)]
        for at, ran in cases:
            self.assertEqual(lock.once_at(at, self.ran.append), ran, at)
        with self.assertRaisesRegex(RefusedError, "the tick of 2100-01-01T.* has not come: this machine's clock says"):
            lock.once_at(4102444800, self.ran.append)
        odd: list[Union[datetime, float]] = [datetime(2019, 3, 27), -1, 1e11, True]
        for at in odd:
            with self.subTest(at), self.assertRaisesRegex(RefusedError, "it must be a datetime with a time zone"):
                lock.once_at(at, self.ran.append)

    def test_a_job_that_failed_gives_its_period_back(self) -> None:
        key = "/mutexes/.periods/" + self.name
        for before in ("", "1553644800 taken long ago"):
            if before:
                self.etcd.put(key, before)
            with self.assertRaises(ZeroDivisionError):
                self.client.lock(self.name).once_per(86400, lambda lock: 1 // 0, retry_on_error=True)
            self.assertEqual(self.etcd.get(key), {key: before} if before else {})
            self.assertFalse(self.etcd.fields(self.name), "the lock is free again")
        with self.assertRaises(ZeroDivisionError):
            self.client.lock(self.name).once_per(86400, lambda lock: self.etcd.put(key, "reset") // 0,
                                                 retry_on_error=True)
        self.assertEqual(self.etcd.get(key), {key: "reset"}, "somebody else changed it")
        self.etcd.put(key, before)
        with self.assertRaises(ZeroDivisionError):
            self.client.lock(self.name).once_per(86400, lambda lock: 1 // 0)
        self.assertFalse(self.once(), "used up")

    def test_a_forked_child_gives_no_period_back(self) -> None:
        parent = os.getpid()

        def work(_: clustermutex.Lock) -> None:
            if os.fork() == 0:
                raise SystemExit
            os.wait()

        with suppress(SystemExit):
            self.client.lock(self.name).once_per(86400, work, retry_on_error=True)
        if os.getpid() != parent:
            os._exit(0)
        self.assertFalse(self.once())

    def test_held(self) -> None:
        self.etcd.put("/mutexes/.periods/" + self.name, "1553644800 taken long ago")
        with self.client.lock(self.name):
            with self.assertRaises(HeldError):
                self.once()
        self.assertTrue(self.once(), "the period was not used up")

    def test_clocks(self) -> None:
        self.etcd.put("/mutexes/.periods/" + self.name, f"{int(time.time()) + 200000} taken by a clock that is ahead")
        said = "ahead of this machine's clock, and it was taken by a clock that is ahead; no earlier one runs unless"
        with self.assertRaisesRegex(RefusedError, said):
            self.once()
        self.etcd.put("/mutexes/.periods/" + self.name, "soon")
        with self.assertRaisesRegex(RefusedError, "cannot be read"):
            self.once()

    def test_periods_begin(self) -> None:
        self.assertEqual(begins(1553682600.5, 86400, 0), 1553644800)
        self.assertEqual(begins(1553682600.5, 86400, 5400), 1553650200)
        self.assertEqual(begins(1553682600.5, 1, 0), 1553682600)
        for every, offset in ((0, 0), (60, -1), (60, 60), (60, 61), (True, 0)):
            with self.subTest(every=every, offset=offset), self.assertRaises(RefusedError):
                begins(1553682600, every, offset)


class Reservations(OnEtcd):
    def test_one_process_takes_and_another_releases(self) -> None:
        left = self.client.reserve(self.name, "nightly run", 60, wait=0)
        self.assertIn('"detached":true', self.etcd.fields(self.name)["metadata"])
        worker = clustermutex.Client(self.etcd.endpoint, "worker").adopt(left.name, left.uuid)
        self.assertEqual(worker.token, left.token)
        worker.alive("half of it")
        worker.release()
        self.assertFalse(self.etcd.fields(self.name))
        with self.assertRaises(LostError):
            self.client.adopt(left.name, left.uuid)
        with self.assertRaisesRegex(RefusedError, "needs a reason"):
            self.client.reserve(self.name, "", 60)

    def test_a_permit_is_reserved_by_the_name_of_its_record(self) -> None:
        left = self.client.reserve(self.name, "reboot", 60, semaphore=2)
        self.assertEqual(left.name, self.name + "#1")
        self.client.adopt(left.name, left.uuid).release()
        self.assertFalse(self.etcd.get(f"/mutexes/{self.name}"))


class Leaders(OnEtcd):
    def test_leads(self) -> None:
        self.assertIsNone(self.client.leader(self.name))
        fit = [True]
        with self.client.campaign(self.name, life=4, address="10.0.0.1:80", check=lambda: fit[0]) as leads:
            leader = self.client.leader(self.name)
            assert leader is not None
            self.assertEqual((leader.token, leader.attributes["address"]), (leads.token, "10.0.0.1:80"))
            eventually("a sign of life", lambda: "alive" in self.etcd.fields(self.name))
            fit[0] = False
            eventually("the end of a leader that cannot work", lambda: leads.lost)
            self.assertEqual(leads.lost, "deadline")
            with self.assertRaises(clustermutex.LostError):
                leads.alive()
