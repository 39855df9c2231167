"""Locks for asyncio, on a real etcd."""

import asyncio
import time
import unittest
from typing import Any, Callable

import clustermutex
from clustermutex import HeldError, LostError, UnavailableError, WaitTimeoutError, aio
from tests.etcd import LIMIT, Etcd, shared, stop_shared


def tearDownModule() -> None:
    stop_shared()


async def eventually(what: str, check: Callable[[], Any]) -> Any:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        got = check()
        if got:
            return got
        await asyncio.sleep(0.01)
    raise AssertionError(f"{what} did not come within {LIMIT:g} s")


class OnEtcd(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.etcd = shared()
        self.client = aio.Client(self.etcd.endpoint, "billing")
        self.name = "aio-" + self.id().rsplit(".", 1)[1]

    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().slow_callback_duration = LIMIT  # do not warn on a busy machine

    async def test_a_lock(self) -> None:
        async with self.client.lock(self.name, purpose="nightly") as lock:
            await lock.alive("3 of 9")
            fields = self.etcd.fields(self.name)
            self.assertEqual((fields["uuid"], fields["alive"].split(" ", 1)[1]), (lock.uuid, "3 of 9"))
            self.assertIn("test_a_lock", self.etcd.metadata(self.name)["backtrace"].split("\n")[0])
            with self.assertRaisesRegex(HeldError, 'is held by billing .* for "nightly"'):
                await self.client.lock(self.name, wait=0).acquire()
            with self.assertRaises(WaitTimeoutError):
                await self.client.lock(self.name, wait=1).acquire()
        self.assertFalse(self.etcd.fields(self.name))
        self.assertIsNone(lock.lost)

    async def test_waiters_come_in_order(self) -> None:
        order: list[int] = []

        async def work(n: int) -> None:
            async with self.client.lock(self.name):
                order.append(n)

        async with self.client.lock(self.name):
            tasks = []
            for n in range(4):
                tasks.append(asyncio.ensure_future(work(n)))
                await eventually("a ticket", lambda: len(self.etcd.tickets(self.name)) == n + 1)
        await asyncio.wait_for(asyncio.gather(*tasks), LIMIT)
        self.assertEqual(order, [0, 1, 2, 3])

    async def test_a_cancelled_wait_leaves_the_queue(self) -> None:
        async with self.client.lock(self.name):
            task = asyncio.ensure_future(self.client.lock(self.name).acquire())
            await eventually("a ticket", lambda: self.etcd.tickets(self.name))
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await eventually("an empty queue", lambda: not self.etcd.get(f"/mutexes/.queue/{self.name}/"))

    async def test_a_try_that_is_cancelled_at_any_moment_leaves_no_lock(self) -> None:
        for turns in range(0, 40, 2):
            task = asyncio.ensure_future(self.client.lock(self.name).acquire())
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            if task.cancel():
                with self.assertRaises(asyncio.CancelledError):
                    await task
            else:
                await task.result().release()
        await eventually("a free lock", lambda: not self.etcd.fields(self.name))
        async with self.client.lock(self.name):
            pass

    async def test_the_work_is_cancelled_when_the_lock_is_lost(self) -> None:
        told: list[str] = []
        with self.assertRaises(LostError) as caught:
            async with self.client.lock(self.name, on_lost=lambda error: told.append(error.reason)) as lock:
                self.etcd.force_unlock(self.name, lock.token, "it hangs")
                await asyncio.sleep(LIMIT)
                self.fail("the work went on")
        self.assertEqual((caught.exception.reason, told), ("forced", ["forced"]))
        await asyncio.sleep(0)  # the task itself is not cancelled

    async def test_the_work_may_continue_after_a_loss(self) -> None:
        with self.assertRaises(LostError):
            async with self.client.lock(self.name, cancel_on_loss=False) as lock:
                self.etcd.delete(f"/mutexes/{self.name}/")
                await eventually("the loss", lambda: lock.lost == "deleted")

    async def test_work_that_is_cancelled_by_others_stays_cancelled(self) -> None:
        async def work() -> None:
            async with self.client.lock(self.name):
                await asyncio.sleep(LIMIT)

        task = asyncio.ensure_future(work())
        await eventually("the lock", lambda: self.etcd.fields(self.name))
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await eventually("the release", lambda: not self.etcd.fields(self.name))

    async def test_a_job_that_failed_gives_its_period_back(self) -> None:
        async def fails(lock: aio.Lock) -> None:
            raise KeyError("mine")

        for _ in "ab":
            with self.assertRaises(KeyError):
                await self.client.lock(self.name).once_per(86400, fails, retry_on_error=True)
        self.assertFalse(self.etcd.get("/mutexes/.periods/" + self.name))

    async def test_the_time_is_up(self) -> None:
        lock = await self.client.lock(self.name, auto_unlock_after=0.5, alert_after=0.5).acquire()
        await eventually("the loss", lambda: lock.lost == "deadline")
        await lock.release()

    async def test_asked_and_heartbeat(self) -> None:
        told: list[clustermutex.Request] = []
        async with self.client.lock(self.name, heartbeat=60, auto_unlock_after=6, alert_after=6,
                                    on_asked=told.append) as lock:
            first = self.etcd.fields(self.name)["auto_unlock_at"]
            request = {"uuid": lock.uuid, "token": lock.token, "by": "ann", "reason": "the deploy waits"}
            self.etcd.put(f"/mutexes/{self.name}/asked", clustermutex.record.to_json(request))
            await eventually("the request", lambda: [r.reason for r in told] == ["the deploy waits"])
            await eventually("a heartbeat", lambda: self.etcd.fields(self.name)["auto_unlock_at"] > first)


class Faults(unittest.IsolatedAsyncioTestCase):
    async def test_an_etcd_that_hangs(self) -> None:
        asyncio.get_running_loop().slow_callback_duration = LIMIT
        etcd = Etcd()
        self.addCleanup(etcd.stop)
        client = aio.Client(etcd.endpoint, timeout=0.5)
        async with client.lock("a") as lock:
            etcd.hang()
            with self.assertRaises(UnavailableError):
                await client.lock("b", wait=1).acquire()
            etcd.go_on()
            await lock.alive("back")
            await eventually("the tombstone", lambda: etcd.get("/mutexes/.cancelled/"))
            self.assertFalse(etcd.fields("b"))
