"""A watch on some keys: a request with an endless answer."""

from __future__ import annotations

import json
from typing import Any

from .transport import Connection, Response, clock


class Watch:
    """An open watch on some keys."""

    def __init__(self, connection: Connection, response: Response, early: list[dict[str, Any]]) -> None:
        self._connection = connection
        self._response = response
        self._early = early

    async def events(self, timeout: float) -> list[dict[str, Any]]:
        """Return the next events, or none after ``timeout`` seconds. Raises OSError if the watch broke."""
        end = clock() + timeout
        while not self._early:
            left = end - clock()
            if left <= 0:
                return []
            try:
                self._early = watch_results(await read_more(self._connection, self._response, left))
            except TimeoutError:
                return []
        events = [e for result in self._early for e in result.get("events", [])]
        self._early = []
        return events

    def interrupt(self) -> None:
        """End the watch from any thread: its owner gets an OSError."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection. Only the reader of the events may call it."""
        self._connection.close()


async def read_more(connection: Connection, response: Response, timeout: float) -> list[bytes]:
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


def watch_results(lines: list[bytes]) -> list[dict[str, Any]]:
    """Parse the lines of a watch. Raises OSError if it is over."""
    results: list[dict[str, Any]] = []
    for line in lines:
        try:
            result = json.loads(line).get("result")
        except (ValueError, AttributeError, RecursionError):
            result = None
        if not isinstance(result, dict) or result.get("canceled"):
            raise OSError(f"etcd ended the watch: {line[:200]!r}")
        results.append(result)
    return results
