"""Locks for threads, on a real etcd."""

import dis
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import clustermutex
from clustermutex import HeldError, LostError, RefusedError, UnavailableError, WaitTimeoutError
from clustermutex.attempt import Attempt
from clustermutex.hold import Hold
from clustermutex.threads import BlockingConnection, BlockingFlag, BlockingIO
from clustermutex.transport import clock, run
from tests.etcd import LIMIT, Etcd, eventually, shared, stop_shared

SOURCE = str(Path(clustermutex.__file__).resolve().parents[1])


def tearDownModule() -> None:
    stop_shared()


class OnEtcd(unittest.TestCase):
    def setUp(self) -> None:
        self.etcd = shared()
        self.client = clustermutex.Client(self.etcd.endpoint, "billing")
        self.name = self.id().rsplit(".", 1)[1]
        self.lock = self.client.lock(self.name)

    def free(self, name: str = "") -> None:
        eventually("the lock's release", lambda: not self.etcd.fields(name or self.name))


def in_thread(work: Any) -> "threading.Thread":
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Waiter:
    """A thread that waits for a lock and holds it until told to release it."""

    def __init__(self, lock: clustermutex.Lock) -> None:
        self.lock = lock
        self.error: Any = None
        self.held = threading.Event()
        self.go = threading.Event()
        self._thread = in_thread(self._run)

    def _run(self) -> None:
        try:
            with self.lock:
                self.held.set()
                self.go.wait(LIMIT)
        except Exception as error:
            self.error = error

    def end(self) -> Any:
        self.go.set()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        return self.error


class Holding(OnEtcd):
    def test_the_record_says_who_where_since_when_and_what_for(self) -> None:
        before = time.time()
        lock = self.client.lock("billing/invoice run", purpose="nightly", attributes={"tenant": 41, "dry": True})
        with lock as held:
            self.assertIs(held, lock)
            fields = self.etcd.fields("billing%2Finvoice run")
            self.assertEqual(fields["uuid"], lock.uuid)
            self.assertAlmostEqual(float(fields["alert_at"]), before + 300, delta=LIMIT)
            self.assertAlmostEqual(float(fields["auto_unlock_at"]) - float(fields["alert_at"]), 600, delta=0.01)
            about = json.loads(fields["metadata"])
        self.assertEqual({name: about[name] for name in ("owner", "purpose", "tenant", "dry", "pid", "client")}, {
            "owner": "billing", "purpose": "nightly", "tenant": 41, "dry": True, "pid": os.getpid(),
            "client": "python/" + clustermutex.__version__})
        self.assertEqual(about["hostname"], socket.gethostname())
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as boot:
            self.assertEqual(about["boot_id"], boot.read().strip())
        self.assertIsInstance(about["process_start"], int)
        newest = about["backtrace"].split("\n")[0]
        self.assertRegex(newest, "^" + re.escape(os.path.abspath(__file__)) +
                         r":[0-9]+ in .*test_the_record_says_who_where_since_when_and_what_for$")
        self.assertFalse(self.etcd.fields("billing%2Finvoice run"))

    def test_tokens_grow_and_one_object_serves_again(self) -> None:
        with self.lock as lock:
            first, uuid = lock.token, lock.uuid
            with self.assertRaisesRegex(RefusedError, "is already held by this object"):
                lock.acquire()
        with self.lock as lock:
            self.assertGreater(lock.token, first)
            self.assertNotEqual(lock.uuid, uuid)
            self.assertIsNone(lock.lost)

    def test_who_holds_it(self) -> None:
        with self.client.lock(self.name, purpose="nightly"):
            with self.assertRaises(HeldError) as caught:
                self.client.lock(self.name, wait=0).acquire()
        error = caught.exception
        assert error.holder is not None
        self.assertEqual((error.lock, error.holder.owner, error.holder.purpose, error.waiting),
                         (self.name, "billing", "nightly", 0))
        self.assertRegex(str(error), f'^lock "{self.name}" is held by billing on .* [(]pid {os.getpid()}[)], taken .* '
                                     'ago for "nightly"; auto-unlock in 1[45] minutes$')
        self.assertNotIsInstance(error, WaitTimeoutError)

    def test_only_the_queue_is_in_the_way(self) -> None:
        self.etcd.put(f"/mutexes/.queue/{self.name}/.tail", "x")
        self.etcd.put(f"/mutexes/.queue/{self.name}/x", "{}")
        with self.assertRaises(HeldError) as caught:
            self.client.lock(self.name, wait=0).acquire()
        self.assertIsNone(caught.exception.holder)
        self.assertEqual(str(caught.exception), f'nobody holds lock "{self.name}", but others are ahead; 1 waiting')

    def test_a_hostile_record_is_described(self) -> None:
        self.etcd.put(f"/mutexes/{self.name}/uuid", "\x1b[2J")
        self.etcd.put(f"/mutexes/{self.name}/metadata", "[" * 5000)
        self.etcd.put(f"/mutexes/{self.name}/owner", "ann\n\u202e" + "x" * 3000)
        with self.assertRaises(HeldError) as caught:
            self.client.lock(self.name, wait=0).acquire()
        self.assertIn(r"ann\n\u202exxx", str(caught.exception))
        self.assertLess(len(str(caught.exception)), 400)

    def test_alive_extends_and_reports(self) -> None:
        with self.client.lock(self.name, alert_after=60, auto_unlock_after=120) as lock:
            before = self.etcd.fields(self.name)
            lock.alive("3 of 9")
            after = self.etcd.fields(self.name)
            self.assertGreater(after["auto_unlock_at"], before["auto_unlock_at"])
            self.assertGreater(after["alert_at"], before["alert_at"])
            self.assertEqual(after["alive"].split(" ", 1)[1], "3 of 9")
            lock.alive(auto_unlock_after=600)
            longer = self.etcd.fields(self.name)
            self.assertGreater(float(longer["auto_unlock_at"]), float(after["auto_unlock_at"]) + 300)
            assert lock._hold is not None
            self.assertAlmostEqual(lock._hold._deadline - clock(), 600 - 30, delta=LIMIT)
            lock.alive()
            self.assertEqual(self.etcd.fields(self.name)["auto_unlock_at"], longer["auto_unlock_at"])
            with self.assertRaisesRegex(RefusedError, "the progress has 2000 bytes"):
                lock.alive("x" * 2000)

    def test_an_error_of_the_work_releases_the_lock_and_comes_out(self) -> None:
        with self.assertRaisesRegex(KeyError, "mine"):
            with self.lock:
                raise KeyError("mine")
        self.assertFalse(self.etcd.fields(self.name))

    def test_a_decorator(self) -> None:
        tokens: list[int] = []

        @self.client.lock(self.name)
        def work(n: int) -> int:
            tokens.append(int(bool(self.etcd.fields(self.name))))
            return work(n - 1) if n and False else n

        self.assertEqual((work(1), work(2), tokens), (1, 2, [1, 1]))

    def test_a_heartbeat_extends_the_life_and_not_the_alert(self) -> None:
        with self.client.lock(self.name, heartbeat=60, alert_after=50, auto_unlock_after=6) as lock:
            lock.alive("step 1")
            first = self.etcd.fields(self.name)
            eventually("a heartbeat", lambda: float(self.etcd.fields(self.name)["auto_unlock_at"])
                       > float(first["auto_unlock_at"]) + 1.5)
            now = self.etcd.fields(self.name)
            self.assertEqual(now["alive"].split(" ", 1)[1], "step 1")
            self.assertEqual(now["alert_at"], now["auto_unlock_at"])  # the alert is not due before
            self.assertIsNone(lock.lost)

    def test_a_heartbeat_ends(self) -> None:
        lock = self.client.lock(self.name, heartbeat=1, auto_unlock_after=0.6, alert_after=0.6).acquire()
        eventually("the end of the hold", lambda: lock.lost == "deadline")
        members = self.etcd.metadata(self.name)
        self.assertAlmostEqual(float(members["heartbeat_until"]), float(members["locked_at"]) + 1, 2)
        self.assertLessEqual(float(self.etcd.fields(self.name)["auto_unlock_at"]),
                             float(members["heartbeat_until"]) + 0.01)  # both are rounded
        with self.assertRaisesRegex(LostError, "its time ran out: its maximum hold of 1 s is over"):
            lock.alive()
        lock.release()


class Lazy(OnEtcd):
    """What is called and has not run when the call returns would run without the lock."""

    def test_functions_that_run_later_are_refused_where_they_are_written(self) -> None:
        async def coroutine(lock: Any = None) -> None:
            raise AssertionError("it ran")

        async def agenerator() -> Any:
            yield

        def generator() -> Any:
            yield

        class Called:
            async def __call__(self, lock: Any) -> None:
                raise AssertionError("it ran")

        functions: list[tuple[Any, str]] = [
            (coroutine, "a coroutine"), (partial(coroutine), "a coroutine"), (Called(), "a coroutine"),
            (agenerator, "an async generator"), (generator, "a generator")]
        for lazy, kind in functions:
            with self.subTest(kind):
                with self.assertRaisesRegex(RefusedError, f"is {kind} function: its body would run after the call"):
                    self.lock(lazy)
                with self.assertRaisesRegex(RefusedError, f"is {kind} function"):
                    self.lock.once_per(60, lazy)
                with self.assertRaisesRegex(RefusedError, f"is {kind} function"):
                    self.client.lock(self.name, on_lost=lazy)
                with self.assertRaisesRegex(RefusedError, f"is {kind} function"):
                    self.client.lock(self.name, on_asked=lazy)
        self.assertFalse(self.etcd.get(f"/mutexes/.periods/{self.name}"))

    def test_work_that_returns_something_to_run_later_is_reported(self) -> None:
        async def coroutine() -> None:
            raise AssertionError("it ran")

        def starts(lock: Any = None) -> Any:
            return coroutine()

        with self.assertRaisesRegex(RefusedError, "returned a coroutine, which has yet to run, without the lock"):
            self.lock(starts)()
        with self.assertRaisesRegex(RefusedError, "returned a coroutine"):
            self.lock.once_per(60, starts)
        self.free()

    def test_a_decorated_function_runs_under_the_lock(self) -> None:
        @self.lock
        def work(more: int) -> int:
            """Do it."""
            self.assertTrue(self.etcd.fields(self.name))
            return more + 1

        self.assertEqual((work(1), work(2), work.__name__, work.__doc__), (2, 3, "work", "Do it."))
        self.free()


class Waiting(OnEtcd):

    def test_a_wait_runs_out(self) -> None:
        with self.client.lock(self.name, purpose="nightly"):
            with self.assertRaises(WaitTimeoutError) as caught:
                self.client.lock(self.name, wait=1).acquire()
        self.assertRegex(str(caught.exception), '^waited 1 s: lock .* is held by billing .* for "nightly"')
        self.assertFalse(self.etcd.get(f"/mutexes/.queue/{self.name}/"))

    def test_one_object_is_for_one_thread_at_a_time(self) -> None:
        with self.lock:
            waiter = Waiter(self.client.lock(self.name))
            eventually("a ticket", lambda: self.etcd.tickets(self.name))
            with self.assertRaisesRegex(RefusedError, "is being taken with this object by another caller"):
                waiter.lock.acquire()
        self.assertTrue(waiter.held.wait(LIMIT))
        self.assertIsNone(waiter.end())

    def test_a_wait_is_cancelled_before_it_began(self) -> None:
        self.lock.cancel()
        with self.assertRaises(clustermutex.CancelledError):
            self.lock.acquire()
        with self.lock:
            pass

    def test_a_lock_whose_answer_came_after_a_sleep_is_taken_anew(self) -> None:
        fields, sleeps = Attempt.fields, [0.0]

        def slept(attempt: Attempt) -> dict[str, str]:
            record = fields(attempt)
            attempt.base = (attempt.base[0] - sleeps.pop() if sleeps else attempt.base[0], attempt.base[1])
            return record

        ways: list[Any] = [self.lock, self.client.lock_all(self.lock)]
        for taken in ways:
            sleeps[:] = [3000.0]
            with mock.patch.object(Attempt, "fields", slept), taken:
                self.assertEqual((self.lock.lost, sleeps), (None, []))
                self.assertEqual(self.etcd.fields(self.name)["uuid"], self.lock.uuid)

    def test_a_lost_ticket_is_replaced(self) -> None:
        with self.lock:
            waiter = Waiter(self.client.lock(self.name))
            ticket = eventually("a ticket", lambda: self.etcd.tickets(self.name))
            self.etcd.delete(ticket[0])
            eventually("another ticket", lambda: self.etcd.tickets(self.name) not in ([], ticket))
        self.assertTrue(waiter.held.wait(LIMIT))
        self.assertIsNone(waiter.end())

    def test_a_ticket_says_who_waits(self) -> None:
        with self.lock:
            waiter = Waiter(self.client.lock(self.name, wait=LIMIT, purpose="the next"))
            key = eventually("a ticket", lambda: self.etcd.tickets(self.name))[0]
            ticket = json.loads(self.etcd.get(key)[key])
            self.assertEqual((ticket["owner"], ticket["purpose"], ticket["pid"]), ("billing", "the next", os.getpid()))
            self.assertAlmostEqual(float(ticket["timeout_at"]) - float(ticket["since"]), LIMIT, delta=5)
        self.assertIsNone(waiter.end())


class Losing(OnEtcd):
    def losing(self, **options: Any) -> "tuple[clustermutex.Lock, list[str], threading.Event]":
        told: list[str] = []
        event = threading.Event()

        def on_lost(error: LostError) -> None:
            told.append(error.reason)
            event.set()

        lock = self.client.lock(self.name, on_lost=on_lost, **options).acquire()
        return lock, told, event

    def test_alive_reports_a_loss_before_the_watch(self) -> None:
        lock, told, event = self.losing()
        self.etcd.force_unlock(self.name, lock.token, "it\x1b hangs")
        with self.assertRaisesRegex(LostError, r"forced by ann: it\\x1b hangs") as caught:
            lock.alive()
        self.assertEqual((caught.exception.reason, lock.lost), ("forced", "forced"))
        self.assertTrue(event.wait(LIMIT))
        self.assertEqual(told, ["forced"])

    def test_the_time_is_up_before_auto_unlock(self) -> None:
        lock, told, event = self.losing(auto_unlock_after=1, alert_after=1, margin=0.5)
        self.assertTrue(event.wait(LIMIT))
        self.assertEqual((told, lock.lost), (["deadline"], "deadline"))
        with self.assertRaisesRegex(LostError, "its time ran out: etcd confirmed no extension"):
            lock.alive()
        lock.release()  # it stood until now
        self.assertFalse(self.etcd.fields(self.name))

    def test_leaving_with_reports_that_the_lock_was_lost(self) -> None:
        with self.assertRaisesRegex(LostError, "its record is gone, and whoever removed it left no note"):
            with self.lock:
                self.etcd.delete(f"/mutexes/{self.name}/")
        with self.assertRaisesRegex(KeyError, "mine"):
            with self.lock:
                self.etcd.delete(f"/mutexes/{self.name}/")
                raise KeyError("mine")

    def test_a_callback_that_fails_does_no_harm(self) -> None:
        def fails(error: LostError) -> None:
            raise KeyError(error.reason)

        lock = self.client.lock(self.name, on_lost=fails).acquire()
        self.etcd.delete(f"/mutexes/{self.name}/")
        eventually("the loss", lambda: lock.lost == "deleted")


def watched(lock: clustermutex.Lock) -> bool:
    return lock.hold.lookout is not None and lock.hold in lock.hold.lookout.open


def knows_of(hold: Hold, auto_unlock_at: float) -> bool:
    return hold._recorded > auto_unlock_at - 1


class Asked(OnEtcd):
    def test_asked_to_finish(self) -> None:
        told: list[clustermutex.Request] = []
        lock = self.client.lock(self.name, on_asked=told.append).acquire()
        self.assertIsNone(lock.asked)
        for uuid, token in (("x", lock.token), (lock.uuid, lock.token + 1)):  # for other holds
            self.ask(lock, uuid, token, "no")
        self.ask(lock, lock.uuid, lock.token, "the deploy waits")
        eventually("the request", lambda: told)
        self.assertEqual([(r.by, r.reason, r.source) for r in told], [("ann", "the deploy waits", "cli")])
        self.assertEqual(lock.asked, told[0])
        self.ask(lock, lock.uuid, lock.token, "now!")
        eventually("another request", lambda: len(told) == 2)
        lock.release()

    def ask(self, lock: clustermutex.Lock, uuid: str, token: int, why: str) -> None:
        request = {"uuid": uuid, "token": token, "by": "ann", "source": "cli", "at": "1553682600", "reason": why}
        self.etcd.put(f"/mutexes/{self.name}/asked", json.dumps(request))

    def test_a_leftover_request_is_ignored(self) -> None:
        self.etcd.put(f"/mutexes/{self.name}/asked", "{}")
        with self.lock as lock:
            lock.alive()
            self.assertIsNone(lock.asked)

    def test_more_time(self) -> None:
        with self.client.lock(self.name, auto_unlock_after=3, alert_after=3) as lock:
            given = {"uuid": lock.uuid, "token": lock.token, "seconds": 600, "by": "ann"}
            later = float(self.etcd.fields(self.name)["auto_unlock_at"]) + 600
            self.etcd.put(f"/mutexes/{self.name}/auto_unlock_at", f"{later:.3f}")
            self.etcd.put(f"/mutexes/{self.name}/extended", json.dumps(given))
            hold = lock._hold
            assert hold is not None
            eventually("more time", partial(knows_of, hold, later))
            lock.alive("going on")
            self.assertEqual(float(self.etcd.fields(self.name)["auto_unlock_at"]), round(later, 3))
            end = time.monotonic() + 3.5  # a hold without the time that was given would be over
            while time.monotonic() < end:
                self.assertIsNone(lock.lost)
                time.sleep(0.1)


class Connections(OnEtcd):
    def test_a_connection_is_closed_by_the_thread_that_opened_it(self) -> None:
        """Otherwise another connection may get its number, and the reading thread would steal its answer."""
        strangers: list[str] = []

        class Watched(BlockingConnection):
            def __init__(self, sock: socket.socket) -> None:
                super().__init__(sock)
                self.opened_by = threading.get_ident()

            def close(self) -> None:
                if threading.get_ident() != self.opened_by:
                    strangers.append(threading.current_thread().name)
                super().close()

        with mock.patch("clustermutex.threads.BlockingConnection", Watched):
            with self.lock as lock:
                eventually("a watch", lambda: watched(lock))
                waiter = Waiter(self.client.lock(self.name))
                eventually("the waiter's watch", lambda: waiter.lock._stop.cuts)
                waiter.lock.cancel()
                self.assertIsInstance(waiter.end(), clustermutex.CancelledError)
        self.assertEqual(strangers, [])

    def test_an_interrupted_connection_ends_and_keeps_its_number(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            connection = BlockingConnection(ours)
            got: list[bytes] = []
            reader = in_thread(lambda: got.append(run(connection.receive(LIMIT))))
            connection.interrupt()
            reader.join(LIMIT)
            self.assertEqual(got, [b""])
            self.assertGreaterEqual(ours.fileno(), 0)
            connection.close()
            self.assertEqual(ours.fileno(), -1)
            connection.interrupt()  # too late, and harmless


class Background(OnEtcd):
    def test_fifty_holds_share_one_thread(self) -> None:
        locks = [self.client.lock(f"{self.name}-{n}", heartbeat=60, auto_unlock_after=12) for n in range(50)]
        ends = [float(self.etcd.fields(lock.acquire().name)["auto_unlock_at"]) for lock in locks]
        for lock, end in zip(locks, ends):
            eventually("a watch and a heartbeat", lambda: watched(lock) and lock.hold._recorded > end + 2)
        self.assertEqual(len({lock.hold.lookout for lock in locks}), 1, "one connection for what happens to them")
        self.assertEqual(["clustermutex"], [t.name for t in threading.enumerate() if t.name == "clustermutex"])
        self.etcd.delete(f"/mutexes/{locks[7].name}/")
        eventually("a loss", lambda: locks[7].lost == "deleted")
        self.assertEqual([lock.lost for lock in locks], [None] * 7 + ["deleted"] + [None] * 42)
        for lock in locks[:7] + locks[8:]:
            lock.release()

    def test_a_slow_callback_delays_no_heartbeat(self) -> None:
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def takes_its_time(error: LostError) -> None:
            begun.set()
            go_on.wait(LIMIT)

        lost = self.client.lock(self.name, on_lost=takes_its_time).acquire()
        with self.client.lock(self.name + "-other", heartbeat=60, auto_unlock_after=6) as lock:
            self.etcd.delete(f"/mutexes/{lost.name}/")
            self.assertTrue(begun.wait(LIMIT))
            end = lock.hold._recorded
            eventually("two heartbeats", lambda: lock.hold._recorded > end + 3)

    def test_events_before_the_watch_are_noticed(self) -> None:
        """A second hold reopens it at the first one's revision, which etcd has compacted meanwhile."""
        told: list[clustermutex.Request] = []
        with self.client.lock(self.name, on_asked=told.append) as lock:
            eventually("a watch", lambda: watched(lock))
            request = {"uuid": lock.uuid, "token": lock.token, "by": "ann"}
            asked = self.etcd.put("/elsewhere", "")
            self.etcd.post("/v3/kv/compaction", {"revision": str(asked)})
            with self.client.lock(self.name + "-other") as other:
                eventually("another watch", lambda: watched(other))
                self.etcd.put(f"/mutexes/{self.name}/asked", json.dumps(request))
                eventually("the request", lambda: told)
        with self.client.lock(self.name) as lock, mock.patch.object(lock.hold, "_look") as look:
            early = self.etcd.put(f"/mutexes/{self.name}/asked", "{}")
            self.assertIsNone(lock.hold.lookout)
            eventually("the event", lambda: lock.hold._seen >= early)
            eventually("a look", lambda: look.called)


class TimeLimit(Exception):
    """What a signal handler raises."""


class Interrupts(OnEtcd):
    """An exception of a signal handler, such as Ctrl-C or Celery's soft time limit, may arrive after any call."""

    INSTANTS = 400

    def setUp(self) -> None:
        super().setUp()
        warnings.simplefilter("ignore")  # about coroutines that never began
        hook = mock.patch("sys.unraisablehook")  # Python drops exceptions in finalizers, and prints them
        hook.start()
        self.addCleanup(hook.stop)

    def interrupted_at(self, instant: int, call: Any) -> bool:
        """Call it, and raise TimeLimit at the given instant. Report whether it came to that.

        Python runs signal handlers where a function begins, and where one has returned. Where ``__exit__`` begins, it
        is Python that loses a lock.
        """
        left = instant

        def trace(frame: Any, event: str, arg: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename == __file__:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            before = calls.get(frame)
            if event == "opcode":
                calls[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("CALL")
            if (event == "call" and frame.f_code.co_name != "__exit__") or before and event == "opcode":
                left -= 1
                if left == 0:
                    raise TimeLimit
            return trace

        calls: dict[Any, bool] = {}  # whether a frame's latest instruction is a call
        sys.settrace(trace)
        try:
            call()
        except TimeLimit:
            return True
        finally:
            sys.settrace(None)
        self.instants = instant - left
        return False

    def leaves_nothing(self, use: Any) -> None:
        """Interrupt the use of a lock at many instants. Afterwards it is free, and its object can be used."""
        for name in ("connects", "is connected"):
            self.assertFalse(self.interrupted_at(1 << 40, partial(use, self.client.lock(f"{self.name} {name}"))))
        locks = []
        for instant in range(1, self.instants, max(1, self.instants // self.INSTANTS)):
            lock = self.client.lock(f"{self.name} {instant}")
            if self.interrupted_at(instant, partial(use, lock)):
                locks.append(lock)
        self.assertGreater(len(locks), self.INSTANTS // 2)
        eventually("the end of all cleanups", lambda: not self.client._session._debts)
        names = [name for lock in locks for name in (lock.name, f"{lock.name} b")]
        self.assertEqual([name for name in names if self.etcd.fields(name)], [])
        for lock in locks:
            with lock:
                pass

    def test_an_interrupted_acquire_leaves_nothing(self) -> None:
        self.leaves_nothing(lambda lock: lock.acquire())

    def test_an_interrupted_block_leaves_nothing(self) -> None:
        def use(lock: clustermutex.Lock) -> None:
            with lock:
                pass
        self.leaves_nothing(use)

    def test_interrupted_blocks_with_several_locks_leave_nothing(self) -> None:
        def use(lock: clustermutex.Lock) -> None:
            with self.client.lock_all(lock, self.client.lock(f"{lock.name} b")):
                pass
        self.leaves_nothing(use)

    def test_an_interrupted_job_leaves_nothing(self) -> None:
        self.leaves_nothing(lambda lock: lock.once_per(3600, lambda lock: None))


class Processes(OnEtcd):
    def script(self, text: str) -> "subprocess.CompletedProcess[str]":
        program = f"import clustermutex\nclient = clustermutex.Client({self.etcd.endpoint!r}, 'billing')\n" + text
        python = [sys.executable, "-X", "dev", "-W", "ignore:This process"]  # forking beside threads is intended
        return subprocess.run([*python, "-c", program], env={**os.environ, "PYTHONPATH": SOURCE}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)

    def test_nothing_keeps_the_interpreter_alive_and_nothing_is_printed(self) -> None:
        done = self.script(f"""
import threading, time
lock = client.lock({self.name!r}, heartbeat=3600, on_lost=lambda error: 1 / 0).acquire()
threading.Thread(target=client.lock({self.name!r}).acquire, daemon=True).start()
time.sleep(1)
""")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertFalse(self.etcd.fields(self.name))
        self.assertFalse(self.etcd.tickets(self.name))

    def test_the_background_ends_before_the_interpreter(self) -> None:
        done = self.script(f"""
import atexit, threading, time
def say():
    print(sum(thread.name == "clustermutex" for thread in threading.enumerate()))
atexit._clear()
atexit.register(say)  # comes last
client = clustermutex.Client({self.etcd.endpoint!r})
lock = client.lock({self.name!r}, heartbeat=3600).acquire()
while not (lock._hold.lookout and lock._hold.lookout.open):
    time.sleep(0.01)
say()
""")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n0\n", ""))

    def test_the_process_releases_its_locks_at_exit(self) -> None:
        take = f"import os, signal, sys\nlock = client.lock({self.name!r}).acquire()\n"
        alone = "def no(thread): raise RuntimeError\nimport threading; threading.Thread.start = no\n"  # Python 3.12
        own = "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
        for text, code, stays in (
                ("sys.exit(3)", 3, False), ("1 / 0", 1, False), (alone + "sys.exit(3)", 3, False),
                ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, False),
                ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP, False),
                ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, False),
                ("os._exit(4)", 4, True), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, True),
                (own + "os.kill(os.getpid(), signal.SIGTERM)", 7, True)):
            with self.subTest(text):
                self.assertEqual(self.script(take + text).returncode, code)
                self.assertEqual(bool(self.etcd.fields(self.name)), stays)
                self.etcd.delete(f"/mutexes/{self.name}/")

    # A second client, whose etcd accepts connections and never answers: settling what it has takes all the time.
    SLOW = """
import os, signal, socket, sys, threading, time
silent = socket.create_server(("127.0.0.1", 0))
second = clustermutex.Client(f"http://127.0.0.1:{silent.getsockname()[1]}")
silent.detach()  # open until the process ends, without a warning
threading.Thread(target=second.lock("slow").acquire, daemon=True).start()
def begin(work):
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.5)
"""

    def test_a_process_that_ends_takes_no_more_locks(self) -> None:
        ways = {"lock": "lock = client.lock({name!r})\n    with lock:\n        time.sleep(0.05)",
                "locks": "with client.lock_all(client.lock({name!r})):\n        time.sleep(0.05)",
                "once": "client.lock({name!r}).once_per(1, lambda lock: time.sleep(0.5))"}
        for way, call in ways.items():
            for end in ("os.kill(os.getpid(), signal.SIGTERM)", "sys.exit()"):
                with self.subTest(f"{way}, {end}"):
                    loop = f" while True:\n    {call.format(name=self.name)}\n"
                    work = f"def work():\n with suppress(clustermutex.CancelledError):\n {loop}"
                    done = self.script(f"from contextlib import suppress\n{self.SLOW}{work}begin(work)\n{end}\n")
                    self.assertEqual(done.stderr, "")
                    self.assertFalse(self.etcd.fields(self.name))

    def test_a_process_that_ends_works_without_its_lock_only_for_a_moment(self) -> None:
        process = subprocess.Popen([sys.executable, "-c", f"""
import clustermutex
client = clustermutex.Client({self.etcd.endpoint!r})
{self.SLOW}
def work():
    lock = client.lock({self.name!r}).acquire()
    while True:
        print(time.time(), lock.lost, flush=True)
        time.sleep(0.001)
begin(work)
os.kill(os.getpid(), signal.SIGTERM)
"""], env={**os.environ, "PYTHONPATH": SOURCE}, stdout=subprocess.PIPE, text=True)
        eventually("the hold", lambda: self.etcd.fields(self.name))
        self.lock.acquire()
        granted = time.time()
        self.lock.release()
        lines = process.communicate(timeout=LIMIT)[0].splitlines()
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertLessEqual({line.split()[1] for line in lines}, {"None", "released"})
        self.assertLess(float(lines[-1].split()[0]) - granted, 0.5)

    def test_nothing_is_released_if_that_is_turned_off(self) -> None:
        done = self.script(f"""
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as it was before that client
lock = clustermutex.Client({self.etcd.endpoint!r}, release_at_exit=False).lock({self.name!r}).acquire()
os.kill(os.getpid(), signal.SIGTERM)
""")
        self.assertEqual(done.returncode, -signal.SIGTERM)
        self.assertTrue(self.etcd.fields(self.name))

    def test_a_stopped_loop_releases_its_locks(self) -> None:
        done = self.script(f"""
import asyncio, os, signal
from clustermutex import aio
async def main():
    lock = await aio.Client({self.etcd.endpoint!r}).lock({self.name!r}).acquire()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)
asyncio.run(main())
""")
        self.assertEqual(done.returncode, -signal.SIGTERM)
        self.assertFalse(self.etcd.fields(self.name))

    def test_a_forked_child_does_not_release_the_lock(self) -> None:
        done = self.script(f"""
import os, time
with client.lock({self.name!r}) as lock:
    while not (lock._hold.lookout and lock._hold.lookout.open):
        time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        try:
            lock.alive()
        except clustermutex.RefusedError as error:
            print(error, flush=True)
            lock.release()
            try:
                client.lock({self.name!r}, wait=0).acquire()
            except clustermutex.HeldError:
                print("held", flush=True)
        with client.lock("{self.name}-child") as own:
            while not (own._hold.lookout and own._hold.lookout.open):
                time.sleep(0.01)
        print("its own", flush=True)
        raise SystemExit
    os.waitpid(pid, 0)
    lock.alive("still held")
    print(lock.lost)
    client.lock("{self.name}-child", wait=0).acquire()
""")
        lines = done.stdout.splitlines()
        self.assertEqual((lines[1:], done.stderr), (["held", "its own", "None"], ""))
        self.assertRegex(lines[0], f'^lock "{self.name}" belongs to process [0-9]+, not to [0-9]+, which was forked')
        self.assertFalse(self.etcd.fields(self.name))

    def test_an_interrupt_leaves_the_queue(self) -> None:
        with self.lock:
            text = ("import clustermutex, signal\n"
                    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
                    f"client = clustermutex.Client({self.etcd.endpoint!r})\n"
                    f"client.lock({self.name!r}).acquire()")
            process = subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": SOURCE},
                                       stderr=subprocess.PIPE, text=True)
            eventually("a ticket", lambda: self.etcd.tickets(self.name))
            process.send_signal(2)
            _, error = process.communicate(timeout=LIMIT)
            self.assertIn("KeyboardInterrupt", error.splitlines()[-1])
            self.assertFalse(self.etcd.get(f"/mutexes/.queue/{self.name}/"))


class Faults(unittest.TestCase):
    def setUp(self) -> None:
        self.etcd = Etcd()
        self.addCleanup(self.etcd.stop)
        self.client = clustermutex.Client(self.etcd.endpoint, "billing", timeout=0.5)

    def test_a_hold_and_its_waiter_outlive_an_outage(self) -> None:
        with self.client.lock("a") as lock:
            waiter = Waiter(self.client.lock("a"))
            eventually("a ticket", lambda: self.etcd.tickets("a"))
            self.etcd.kill()
            self.etcd.start()
            lock.alive("back")
            self.etcd.put("/mutexes/a/asked", json.dumps({"uuid": lock.uuid, "token": lock.token, "by": "ann"}))
            eventually("the watch is opened again", lambda: lock.asked)
        self.assertTrue(waiter.held.wait(LIMIT))
        self.assertIsNone(waiter.end())

    def test_an_interrupted_release_continues(self) -> None:
        lock = self.client.lock("a").acquire()
        self.etcd.hang()
        wait = BlockingFlag.wait

        async def interrupted(flag: BlockingFlag, timeout: float) -> bool:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return await wait(flag, timeout)

        with mock.patch.object(BlockingFlag, "wait", interrupted):  # of the pause before a resend
            with self.assertRaises(KeyboardInterrupt):
                lock.release()
        self.etcd.go_on()
        eventually("the release", lambda: not self.etcd.fields("a"))

    def test_no_etcd_at_all(self) -> None:
        self.etcd.kill()
        with self.assertRaisesRegex(UnavailableError, 'lock "a": etcd did not answer: http://.*refused'):
            self.client.lock("a", wait=0.5).acquire()
        self.etcd.start()


def _waiting(client: clustermutex.Client) -> bool:
    try:
        client.lock("a", wait=0).acquire()
    except HeldError as error:
        return error.waiting == 1
    return False


class Tls(unittest.TestCase):
    def test_certificates(self) -> None:
        import tempfile
        with tempfile.TemporaryDirectory() as certs:
            etcd = Etcd("-tls", certs, "-client-certs")
            self.addCleanup(etcd.stop)
            ca, key = certs + "/cert.pem", certs + "/key.pem"
            client = clustermutex.Client(etcd.endpoint, ca=ca, cert=ca, key=key)
            with client.lock("a") as lock:
                lock.alive()
                waiter = Waiter(client.lock("a"))
                eventually("a ticket", lambda: _waiting(client))
            self.assertTrue(waiter.held.wait(LIMIT))
            self.assertIsNone(waiter.end())
            with mock.patch.object(BlockingIO, "connect", side_effect=AssertionError("one connection is kept")):
                client.lock("a").acquire().release()
            with self.assertRaisesRegex(RefusedError, "the certificate of https.* is not trusted: self-signed"):
                clustermutex.Client(etcd.endpoint, cert=ca, key=key).lock("a").acquire()
            with self.assertRaises(UnavailableError):
                clustermutex.Client(etcd.endpoint, ca=ca, timeout=0.3).lock("a", wait=0.5).acquire()
            with self.assertRaises(UnavailableError):
                clustermutex.Client(etcd.endpoint.replace("https", "http")).lock("a", wait=0.5).acquire()
