"""HTTP that arrives in pieces, and the choice of endpoints."""

import asyncio
import json
import signal
import socket
import threading
import unittest
from functools import partial
from typing import Any, Callable, Iterator
from unittest import mock

import clustermutex
from clustermutex.gateway import Gateway, Heard
from clustermutex.lookout import MOST, Lookout
from clustermutex.loops import AsyncIO, within
from clustermutex.threads import BlockingIO
from clustermutex.transactions import Answer, Verdict, trouble
from clustermutex.transport import KEEP, MOST_IDLE, Pool, Response, clock, parse_endpoint, run
from tests.etcd import LIMIT, eventually


def fed(*pieces: bytes) -> Response:
    response = Response()
    for piece in pieces:
        response.feed(piece)
    return response


class Http(unittest.TestCase):
    def test_an_answer_in_single_bytes(self) -> None:
        for raw in (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"):
            response = fed(*(raw[i:i + 1] for i in range(len(raw))))
            self.assertEqual((response.status, response.body, response.over), (200, b"hello", True))

    def test_an_answer_until_the_end(self) -> None:
        response = fed(b"HTTP/1.0 502 Bad Gateway\r\nServer: x\r\n\r\n<html>")
        self.assertFalse(response.over)
        response.end()
        self.assertEqual((response.status, response.body, response.over), (502, b"<html>", True))

    def test_responses_that_are_not_answers(self) -> None:
        for raw in (b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            with self.subTest(raw), self.assertRaises(ValueError):
                fed(raw)
        for raw in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhell"):
            with self.subTest(raw), self.assertRaises(ValueError):
                fed(raw).end()

    def test_lines_of_a_stream(self) -> None:
        response = fed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na\nb\nc\r\n")
        self.assertEqual(response.lines(), [b"a", b"b"])
        response.feed(b"2\r\nd\n\r\n")
        self.assertEqual(response.lines(), [b"cd"])

    def test_endpoints(self) -> None:
        self.assertEqual(parse_endpoint("a:1")[1:], ("a", 1, False, ""))
        self.assertEqual(parse_endpoint("https://[::1]/etcd/")[1:], ("::1", 2379, True, "/etcd"))


class Server:
    """Answers each request with what a function returns for its body; None closes the connection."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.connections = 0
        self.closes = False  # half of each connection after an answer, without saying so in it
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = parse_endpoint("http://127.0.0.1:%d" % self._socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as read:
            length = 0
            for line in read:
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                if line != b"\r\n":
                    continue
                request = json.loads(read.read(length))
                self.requests.append(request)
                answer = self._answer(request)
                if answer is None:
                    return
                status, body = answer
                text = json.dumps(body).encode()
                connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text))
                if self.closes:
                    connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


def always(answer: Any, request: dict[str, Any]) -> Any:
    return answer


OK = (200, {"header": {"revision": "7"}})


class Sending(unittest.TestCase):
    def gateway(self, *servers: Server, user: str = "") -> Gateway:
        for server in servers:
            self.addCleanup(server.close)
        return Gateway(BlockingIO(), [server.endpoint for server in servers], None, user, "secret" if user else "", 20)

    def send(self, gateway: Gateway, within: float = 60) -> Any:
        return run(gateway.send("try", {"a": 1}, clock() + within))

    def test_the_next_endpoint_is_asked_and_then_kept(self) -> None:
        bad, good = Server(lambda r: (503, {"code": 14, "message": "no leader"})), Server(lambda r: OK)
        gateway = self.gateway(bad, good)
        self.assertEqual(self.send(gateway).unanswered, True)
        self.assertEqual(self.send(gateway).unanswered, False)
        self.assertEqual((len(bad.requests), len(good.requests)), (1, 2))

    def test_a_refused_connection_leaves_no_doubt(self) -> None:
        closed, good = Server(lambda r: OK), Server(lambda r: OK)
        gateway = self.gateway(closed, good)
        closed.close()
        self.assertEqual(self.send(gateway).unanswered, False)

    def test_a_lost_answer_leaves_a_doubt(self) -> None:
        answers = [None, OK]
        server = Server(lambda r: answers.pop(0))
        self.assertEqual(self.send(self.gateway(server)).unanswered, True)
        self.assertEqual(server.requests, [{"a": 1}] * 2)

    def test_one_connection_carries_all_requests(self) -> None:
        server = Server(lambda r: OK)
        gateway = self.gateway(server)
        self.assertEqual([self.send(gateway).unanswered for _ in range(5)], [False] * 5)
        self.assertEqual((len(server.requests), server.connections), (5, 1))

    def test_a_connection_that_the_server_closed_carries_no_request(self) -> None:
        server = Server(lambda r: OK)
        server.closes = True
        gateway = self.gateway(server)
        for n in range(3):
            self.assertEqual(self.send(gateway).unanswered, False)
            [(_, _, idle)] = gateway._pool._idle
            eventually("the end of the connection", lambda: not idle.usable())
        self.assertEqual((len(server.requests), server.connections), (3, 3))

    def test_a_kept_connection_that_breaks_leaves_a_doubt(self) -> None:
        answers = [OK, None, OK]
        server = Server(lambda r: answers.pop(0))
        gateway = self.gateway(server)
        self.assertEqual([self.send(gateway).unanswered for _ in range(2)], [False, True])
        self.assertEqual((len(server.requests), server.connections), (3, 2))

    def test_no_answer_is_taken_for_that_to_a_later_request(self) -> None:
        go_on = threading.Event()
        self.addCleanup(go_on.set)

        def answer(request: dict[str, Any]) -> Any:
            if "late" in request:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                go_on.wait(LIMIT)
            return 200, {**OK[1], "to": request}

        gateway = self.gateway(Server(answer))
        self.send(gateway)
        with self.assertRaises(KeyboardInterrupt):
            run(gateway.send("try", {"late": 1}, clock() + LIMIT))
        go_on.set()
        for n in range(3):
            body = {"n": n}
            self.assertEqual(run(gateway.send("try", body, clock() + LIMIT)).body["to"], body)

    def test_threads_never_share_a_connection(self) -> None:
        both = threading.Barrier(2, timeout=LIMIT)
        server = Server(lambda r: OK if both.wait() is not None else None)
        gateway = self.gateway(server)
        for _ in range(2):
            other = threading.Thread(target=self.send, args=(gateway,))
            other.start()
            self.send(gateway)
            other.join(LIMIT)
        self.assertEqual((len(server.requests), server.connections), (4, 2))

    def test_whatever_is_sent_again_goes_to_the_next_endpoint(self) -> None:
        for status, body, doubt in ((429, {"code": 8, "message": "etcdserver: too many requests"}, False),
                                    (400, {"code": 9, "message": "etcdserver: rpc not supported for learner"}, False),
                                    (400, {"code": 9, "message": "etcdserver: not capable"}, False),
                                    (429, "<html>slow down</html>", True)):
            bad, good = Server(partial(always, (status, body))), Server(lambda r: OK)
            with self.subTest(body):
                self.assertEqual(self.send(self.gateway(bad, good)).unanswered, doubt)
                self.assertEqual(len(bad.requests), 1)

    def test_a_refusal_is_final(self) -> None:
        answers: list[tuple[int, Any, str]] = [
            (403, {"code": 7, "message": "etcdserver: permission denied"}, "etcd refuses: etcdserver: permission den"),
            (400, {"code": 3, "message": "etcdserver: user name is empty"}, "user name is empty"),
        ]
        for status, body, sentence in answers:
            server = Server(partial(always, (status, body)))
            with self.subTest(sentence), self.assertRaisesRegex(clustermutex.RefusedError, sentence) as caught:
                self.send(self.gateway(server))
            self.assertFalse(caught.exception.doubt)
            self.assertEqual(len(server.requests), 1)

    @mock.patch("clustermutex.gateway.LEAST_SEND", 20)
    def test_a_foreign_response_is_not_an_answer(self) -> None:
        for status, body in ((404, "404 page not found"), (401, "<html>"), (200, "<html>"), (200, {"status": "ok"}),
                             (403, {"code": "forbidden", "message": "no"})):
            bad, good = Server(partial(always, (status, body))), Server(lambda r: OK)
            with self.subTest(status=status, body=body):
                self.assertEqual(self.send(self.gateway(bad, good)).unanswered, True)
                gone = partial(self.send, self.gateway(bad, bad), within=0.3)
                sentence = f"^etcd did not answer: {bad.endpoint.url}: HTTP {status}, which is not an answer from etcd"
                self.assertRaisesRegex(clustermutex.UnavailableError, sentence, gone)

    def test_silence_in_a_hurry_hides_no_failure(self) -> None:
        gateway, heard = self.gateway(Server(lambda r: OK)), Heard()
        gateway.io = mock.Mock(connect=mock.AsyncMock(side_effect=TimeoutError))
        endpoint = gateway._endpoint()
        for answer in (Answer(503, {"code": 14, "message": "no leader"}), run(gateway._post("/", b"{}", 1))):
            heard.note(endpoint, answer, trouble("try", answer) or Verdict("again"))
        self.assertRegex(str(heard.error([endpoint])), "no leader$")

    @mock.patch("clustermutex.gateway.LEAST_SEND", 20)
    def test_no_answer_in_time(self) -> None:
        with self.assertRaisesRegex(clustermutex.UnavailableError, "etcd did not answer: .*cut off") as caught:
            self.send(self.gateway(Server(lambda r: None)), within=0.3)
        self.assertTrue(caught.exception.doubt)

    def test_a_login_is_renewed(self) -> None:
        tokens = iter(["one", "two"])
        expired: Iterator[Any] = iter([(401, {"code": 16, "message": "etcdserver: invalid auth token"}), OK])

        def answer(r: dict[str, Any]) -> Any:
            return (200, {"header": {}, "token": next(tokens)}) if "name" in r else next(expired)

        server = Server(answer)
        self.assertEqual(self.send(self.gateway(server, user="billing")).unanswered, False)
        login = {"name": "billing", "password": "secret"}
        self.assertEqual(server.requests, [login, {"a": 1}, login, {"a": 1}])

    def test_a_keepalive_is_the_first_line_of_a_stream(self) -> None:
        for code in ("grpc_code", "code"):
            answers: list[Any] = [(401, {"error": {code: 16, "message": "etcdserver: invalid auth token"}}),
                                  (200, {"result": {"header": {}, "ID": "7"}})]
            server = Server(lambda r: (200, {"header": {}, "token": "t"}) if "name" in r else answers.pop(0))
            answer = run(self.gateway(server, user="billing").send("keepalive", {"ID": "7"}, clock() + 60))
            self.assertEqual((answer.body["ID"], answer.unanswered, answers), ("7", False, []))

    def test_users_are_switched_off(self) -> None:
        off = (400, {"code": 9, "message": "etcdserver: authentication is not enabled"})
        server = Server(lambda r: off if "name" in r else OK)
        self.assertEqual(self.send(self.gateway(server, user="billing")).status, 200)

    def test_a_wrong_password(self) -> None:
        no = (400, {"code": 3, "message": "etcdserver: authentication failed, invalid user ID or password"})
        server = Server(lambda r: no)
        with self.assertRaisesRegex(clustermutex.RefusedError, "invalid user ID or password") as caught:
            self.send(self.gateway(server, user="billing"))
        self.assertFalse(caught.exception.doubt)
        self.assertEqual(len(server.requests), 1)

    def test_a_login_that_never_succeeds(self) -> None:
        token: Any = (200, {"header": {}, "token": "t"})
        invalid: Any = (401, {"code": 16, "message": "etcdserver: invalid auth token"})
        server = Server(lambda r: token if "name" in r else invalid)
        with self.assertRaisesRegex(clustermutex.RefusedError, "invalid auth token"):
            self.send(self.gateway(server, user="billing"))
        self.assertEqual(sum("name" in r for r in server.requests), 2)


class Pools(unittest.TestCase):
    def test_connections_that_are_not_kept(self) -> None:
        server = parse_endpoint("a:1")
        kept, stale, surplus = (mock.Mock() for _ in range(3))
        pool = Pool()
        pool.give(server, kept)
        self.assertIs(pool.take(server), kept)
        pool.give(server, kept)
        self.assertIsNone(pool.take(parse_endpoint("b:1")), "another endpoint's")
        kept.close.assert_called_once()
        pool.give(server, stale)
        with mock.patch("clustermutex.transport.clock", lambda: clock() + KEEP):
            self.assertIsNone(pool.take(server), "too old")
        stale.close.assert_called_once()
        for _ in range(MOST_IDLE):
            pool.give(server, mock.Mock())
        pool.give(server, surplus)
        surplus.close.assert_called_once()

    def test_an_answer_says_whether_the_connection_stays_open(self) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n%s\r\nok"
        old = answer.replace(b"1.1", b"1.0")
        for raw, stays in ((answer % b"", True), (answer % b"Connection: close\r\n", False), (old % b"", False),
                           (answer % b"" + b"x", False)):
            with self.subTest(raw):
                self.assertEqual((fed(raw).body, fed(raw).reusable), (b"ok", stays))


class Lookouts(unittest.IsolatedAsyncioTestCase):
    async def test_an_ended_lookout_takes_no_more_holds(self) -> None:
        lookout, hold = Lookout(mock.Mock()), mock.Mock()
        lookout.add(hold)
        self.assertTrue(lookout.room())
        lookout.remove(hold)
        self.assertFalse(lookout.room())
        for _ in range(MOST):
            lookout.add(hold)
        self.assertFalse(lookout.room())


class Connections(unittest.IsolatedAsyncioTestCase):
    async def test_what_the_server_says_unasked_is_not_taken_for_the_next_answer(self) -> None:
        async def talks(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            self.addCleanup(writer.close)

        server = await asyncio.start_server(talks, "127.0.0.1", 0)
        connection = await AsyncIO().connect("127.0.0.1", server.sockets[0].getsockname()[1], None, LIMIT)
        end = clock() + LIMIT
        while connection.usable() and clock() < end:
            await asyncio.sleep(0.01)
        self.assertFalse(connection.usable())
        connection.close()
        server.close()


class Cancelling(unittest.IsolatedAsyncioTestCase):
    async def test_no_answer_is_taken_for_that_to_a_later_request(self) -> None:
        asked, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def answer(request: dict[str, Any]) -> Any:
            if "late" in request:
                asked.set()
                go_on.wait(LIMIT)
            return 200, {**OK[1], "to": request}

        server = Server(answer)
        self.addCleanup(server.close)
        gateway = Gateway(AsyncIO(), [server.endpoint], None, "", "", LIMIT)
        await gateway.send("try", {"a": 1}, clock() + LIMIT)
        task = asyncio.ensure_future(gateway.send("try", {"late": 1}, clock() + LIMIT))
        while not asked.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        go_on.set()
        for n in range(3):
            self.assertEqual((await gateway.send("try", {"n": n}, clock() + LIMIT)).body["to"], {"n": n})

    async def test_a_cancellation_is_never_swallowed(self) -> None:
        for turns in range(6):
            ready = asyncio.Event()
            task = asyncio.ensure_future(within(ready.wait(), 60))
            await asyncio.sleep(0)
            ready.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.cancel():
                with self.assertRaises(asyncio.CancelledError):
                    await task
