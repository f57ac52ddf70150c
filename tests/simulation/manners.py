"""Manners: the lasting habits of peers that a proxy must bear, one for each kind of fault that was met in use.

A fault strikes while the storm lasts. A manner stays: also in a world without faults, each request to a peer of any
manner must get its good answer. A world has some of the manners, and each of its peers some of those.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

MANNERS: Final = ("noisy", "wordy", "elsewhere", "shy", "exclusive", "unended", "forgetful", "future", "curt", "untidy")
"""noisy: logs among the messages, with the ids of open requests. wordy: a 2xx to a notification has a body. elsewhere:
answers come on the session's own stream. shy: the server refuses that stream, for a while or for good. exclusive: a
second process of the server cannot run, and an ending one takes its time. unended: the last line of a client has no
end. forgetful: a server has words of its own for a session that it does not know. future: a stateless server answers
`initialize`, with its own revision. curt: it refuses that in words of its own. untidy: progress that does not increase,
or comes after the answer."""

CHANCE: Final = 0.3
OF_PEER: Final = 0.6

STRANGER: Final = "mk99999:"
"""The mark of logs. No client has it, so a client that is sent a log fails as for a message of another."""


def of_world(seed: str, kept: frozenset[str] | None) -> list[str]:
    """Returns the manners of a world. `kept` are the parts that its name lists."""
    named = kept or frozenset()
    return [manner for manner in MANNERS if manner in named or random.Random(f"{seed} {manner}").random() < CHANCE]


def of_peer(manners: frozenset[str], rng: random.Random) -> frozenset[str]:
    """Returns the manners of one peer. Draws for all there are, so that none changes when a world lacks another."""
    return frozenset([manner for manner in MANNERS if rng.random() < OF_PEER and manner in manners])


# --- noisy ------------------------------------------------------------------------------------------------------------

LOGS: Final = (
    '{"level":"info","id":%s,"method":"tools/call","params":{},"note":"MARK"}',
    '{"level":30,"id":"log7","method":"elicitation/create","params":{"message":"MARK"}}',
    '{"id":%s,"result":{"content":[{"type":"text","text":"MARK"}]}}',
    '{"id":%s,"error":{"code":-32000,"message":"MARK"}}',
    '{"id":%s,"error":"MARK"}',
    '{"id":%s,"result":null,"error":null,"note":"MARK"}',
    '[{"id":%s,"result":{"note":"MARK"}}]',
    '{"method":"notifications/message","params":{"level":"info","data":"MARK"}}',
    'INFO 12:00:01 [7] answered id=%s {"jsonrpc":"2.0"} with result=ok error=null method=tools/call MARK',
    '{"id":%s,"result":{"content":[{"type":"text","te',
    "",
)


def log_line(rng: random.Random, id: Any) -> bytes:
    """Returns a line of a log. It is no message, as it does not say that it is JSON-RPC 2.0."""
    return rng.choice(LOGS).replace("%s", json.dumps(id)).replace("MARK", STRANGER).encode()


# --- wordy ------------------------------------------------------------------------------------------------------------

TYPES: Final = ("text/plain", "application/json", "text/html; charset=utf-8", "text/event-stream", "x", None)
BODIES: Final = (
    *(b"OK", b"Accepted", b"null", b"{}", b"<p>", b"\xff\xfe", b"x" * 3000),
    *(b'{"jsonrpc":"2.0","id":1,"result":{}}', b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'),
)


class Acceptance(NamedTuple):
    """A response that accepts a notification. `is_chunked`: its body has no announced length."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def acceptance(rng: random.Random) -> Acceptance:
    """Returns a response of any status, type, length and content."""
    body, type = rng.choice(BODIES), rng.choice(TYPES)
    headers = [] if type is None else [("content-type", type)]
    if rng.random() < 0.5:
        headers.append(("content-length", str(len(body))))
    return Acceptance(rng.choice((200, 201, 202, 203)), headers, body)


# --- shy --------------------------------------------------------------------------------------------------------------

NOT_NOW: Final = (400, 429, 500, 502, 503)
NEVER: Final = (404, 405)
NOT_NOW_MAX: Final = 3
"""The bound on refusals before the stream is granted."""
SURELY_TRIED_S: Final = 45.0
"""The time after which a stream was surely asked for again, with all pauses and delays."""

# --- exclusive --------------------------------------------------------------------------------------------------------

LINGER_MAX_S: Final = 5.0
TAKEN: Final = "the address is in use"
"""The last words of a process beside which another one runs."""

# --- forgetful --------------------------------------------------------------------------------------------------------


class Refusal(NamedTuple):
    """A refusal of a request in an unknown session.

    Attributes:
        status: of the response.
        code, message: of the error in its body; 0 for a body that is text, or none.
        is_event: the error is an event of a stream.
    """

    status: int
    code: int = 0
    message: str = ""
    is_event: bool = False

    def body(self, id: Any) -> bytes:
        """Returns the error that answers the request of that id; for a refused status, no request."""
        if not self.code:
            return self.message.encode()
        named = id if self.status == 200 else None
        return json.dumps(
            {"jsonrpc": "2.0", "id": named, "error": {"code": self.code, "message": self.message}}
        ).encode()


REFUSALS: Final = (
    Refusal(404),
    Refusal(404, 0, "gone"),
    Refusal(404, -32001, "Session not found"),
    Refusal(400, -32000, "Bad Request: No valid session ID provided"),
    Refusal(400, -32600, "Bad Request: Server not initialized"),
    Refusal(400, -32000, "this session has expired, begin again"),
    Refusal(400, 0, "no such session"),
    Refusal(401),
    Refusal(200, -32002, "Server not initialized"),
    Refusal(200, -32600, "Unknown session id"),
    Refusal(200, -32600, "Unknown session id", is_event=True),
)

# --- curt -------------------------------------------------------------------------------------------------------------

CURT: Final = {"code": -32602, "message": "missing _meta protocolVersion; supported: 2026-07-28"}


# --- untidy -----------------------------------------------------------------------------------------------------------

LATE_S: Final = 6.0
"""The time after which an untidy server repeats the last progress. Most calls are answered by then."""


def untidy(steps: int, rng: random.Random) -> Iterator[int]:
    """Yields the numbers from 1 to `steps`, with some again and some that are lower in between."""
    for step in range(1, steps + 1):
        yield step
        if rng.random() < 0.3:
            yield rng.randint(0, step)
