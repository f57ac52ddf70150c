"""The conversation that every pair of transports carries: the client's messages, and those it waits for.

A `Step` sends some messages and waits for answers to their ids and for other messages with given content. Requests of
the server are answered from `ANSWERS`. Steps are grouped in chapters. The whole is one session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from raw_clients import Client, Received
from slices import Parts, member, parts

# --- Answers of the client --------------------------------------------------------------------------------------------

ANSWERS: Final[list[tuple[bytes, bytes | None, bytes | None]]] = [
    (b'"roots/list"', b'"result"', rb'{"roots":[{"uri":"file:///h%C3%A9","name":"\u00e9","_meta":{"n":1.0}}],"x":[ ]}'),
    (
        b'"task":{"ttl"',
        b'"result"',
        b'{"task":{"taskId":"at-client","status":"completed","createdAt":"a","lastUpdatedAt":"b","ttl":1.0}}',
    ),
    (b'"tasks/get"', b'"result"', b'{"taskId":"at-client","status":"completed","ttl":1.0}'),
    (b'"tasks/result"', b'"result"', b'{"model":"m","role":"assistant","content":{"type":"text","text":"t"}}'),
    (
        b'"sampling/createMessage"',
        b'"result"',
        b'{"role":"assistant","model":"m-1.0","stopReason":"of my own","content":[{"type":"tool_use","id":"i","name":'
        b'"t","input":{"n":9007199254740993,"f":1e2}}],"_meta":{"lone":"\\udfff"}}',
    ),
    (b'"Who?"', b'"result"', b'{"action":"accept","content":{"name":"\xc3\xa9\\u2028","n":1.0,"list":["a"]}}'),
    (b'"Sure?"', b'"result"', b'{"action":"decline"}'),
    (b'"mode":"url"', b'"result"', b'{"action":"cancel","_meta":{}}'),
    (b'"com.example/ask"', b'"result"', b'["an array",1e2,{"b":1,"a":2}]'),
    (b'"com.example/refuse"', b'"error"', b'{"code":-12345,"message":"no","data":{"why":[1.0,"\\ud83d"]},"x":1e0}'),
    (b'"com.example/bare"', b'"result"', b"null"),
    (b'"ping"', b'"result"', b"{}"),
    (b'"never mind"', None, None),
]
"""The content of a server request, and the member to answer with. None leaves it unanswered."""


def answer_to(message: bytes, asked: Parts) -> bytes | None:
    for contained, name, value in ANSWERS:
        if contained in message:
            if name is None or value is None:
                return None
            assert asked.id is not None
            return b'{"jsonrpc":"2.0","id":%b,%b:%b}' % (asked.id, name, value)
    raise AssertionError(f"an unexpected request: {message[:300]!r}")


# --- Messages of the client -------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One step of the conversation.

    Attributes:
        sends: messages, one after the other.
        ids: ids of the answers to wait for.
        contents: texts that other messages to wait for contain.
    """

    sends: Sequence[bytes]
    ids: Sequence[bytes] = ()
    contents: Sequence[bytes] = ()


def request(id: bytes, method: str, params: bytes | None = None) -> bytes:
    rest = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b"%b}' % (id, method.encode(), rest)


def notification(method: str, params: bytes | None = None) -> bytes:
    rest = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","method":"%b"%b}' % (method.encode(), rest)


def request_step(id: bytes, method: str, params: bytes | None = None, *contents: bytes) -> Step:
    return Step([request(id, method, params)], [id], contents)


def call_step(id: bytes, tool: str, *contents: bytes, rest: bytes = b"") -> Step:
    return request_step(id, "tools/call", b'{"name":"%b"%b}' % (tool.encode(), rest), *contents)


def initialize(name: bytes, revision: bytes = b"2025-11-25") -> Step:
    params = (
        b'{ "clientInfo":{"version":"0.0","name":"%b","title":"T\\u00ef","icons":[{"src":"data:,","sizes":["48x48"]}],'
        b'"extra":{"n":1.0}},"capabilities":{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},'
        b'"elicitation":{"form":{},"url":{}},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}}'
        b'}},"experimental":{"com.example":{"a":[1.0,12345678901234567890]}},"vendor":[ ]},"protocolVersion":"%b",'
        b'"_meta":{"com.example/trace":"\\ud800"},"more":1e2 }'
    )
    return request_step(b"0", "initialize", params % (name, revision))


INITIALIZED: Final = notification("notifications/initialized")
TOKENED: Final = b',"_meta":{"com.example/k":1.0,"progressToken":%b,"z":[ ]}'

CHAPTERS: Final[dict[str, list[Step]]] = {
    "handshake": [request_step(b"1", "ping"), request_step(b"2", "ping", b'{"_meta":{}}')],
    "lists": [
        request_step(b"10", "tools/list"),
        request_step(b"11", "tools/list", b'{"cursor":"p2"}'),
        request_step(b"12", "tools/list", b'{"cursor":"p\\u00323","_meta":{"a":1.0}}'),
        request_step(b"13", "tools/list", b'{"cursor":"nothing"}'),
        request_step(b"14", "prompts/list", b"{ }"),
        request_step(b"15", "resources/list", b"{}"),
        request_step(b"16", "resources/templates/list"),
    ],
    "gets": [
        request_step(b"20", "prompts/get", b'{"name":"p","arguments":{"a":"\\u00e9"},"x":[1.0]}'),
        request_step(b"21", "resources/read", b'{"uri":"x:///1"}'),
        request_step(b"22", "resources/read", b'{"_meta":{"n":1.0},"uri":"x:///2"}'),
        request_step(b"23", "resources/read", b'{"uri":"x:///0"}'),
        request_step(
            b"24",
            "completion/complete",
            b'{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},"context":{"arguments":{}}}',
        ),
    ],
    "subscriptions": [
        request_step(b"30", "resources/subscribe", b'{"uri":"x:///1","_meta":{"n":1.0},"vendor":1e2}'),
        call_step(b"31", "touch", b"resources/updated"),
        request_step(b"32", "resources/unsubscribe", b'{"uri":"x:///1"}'),
    ],
    "logging": [request_step(b"40", "logging/setLevel", b'{"level":"debug","x":1.0}'), call_step(b"41", "log")],
    "changed lists": [
        call_step(b"50", "change", b"tools/list_changed", b"prompts/list_changed", b"resources/list_changed"),
        Step([notification("notifications/roots/list_changed", b'{"_meta":{"n":1.0}}')], (), [b"com.example/echoed"]),
    ],
    "progress": [
        call_step(b"60", "progress", rest=TOKENED % b'"a \\u0074oken"'),
        call_step(b"61", "progress", rest=TOKENED % b"0"),
        call_step(b"62", "progress", rest=TOKENED % b"-12345678901234567890123456789"),
        call_step(b"63", "nothing", rest=TOKENED % b"1.0"),
    ],
    "tools": [
        call_step(b"70", "contents"),
        call_step(b"71", "wrong"),
        call_step(b"72", "failing"),
        call_step(b"73", "nothing of the kind"),
        call_step(b"74", "echo"),
        call_step(b"75", "echo", rest=b',"arguments":{"a":[1,2 , 3],"b":{"c":null}},"vendor":{"x":1.0}'),
    ],
    "errors": [
        call_step(b"80", "authorize"),
        *(
            call_step(b"8%d" % number, f"code {code}")
            for number, code in enumerate((0, 1, -1, -32000, 999999999999), 1)
        ),
        call_step(b"86", "code -32700"),
        call_step(b"87", "code -32050"),
    ],
    "questions": [
        call_step(b"90", "roots"),
        call_step(b"91", "sample", b"com.example/echoed"),
        call_step(b"92", "form"),
        call_step(b"93", "url", b"elicitation/complete"),
        call_step(b"94", "pings"),
        call_step(b"95", "withdraw", b"notifications/cancelled"),
    ],
    "cancellation": [
        Step(
            [request(b'"slow\\u0031"', "tools/call", b'{"name":"slow"' + TOKENED % b'"begin"' + b"}")], (), [b'"begun"']
        ),
        Step(
            [
                notification("notifications/cancelled", b'{"requestId":"never was"}'),
                notification("notifications/cancelled", b'{"reason":"none"}'),
                notification(
                    "notifications/cancelled", b'{"reason":"enou\\u0067h","requestId":"slow1","_meta":{"n":1.0}}'
                ),
            ],
            (),
            [b"cancel seen"],
        ),
        call_step(b"101", "echo"),
    ],
    "tasks of the client": [call_step(b"115", "client task")],
    "vendors": [
        call_step(b"120", "vendor"),
        request_step(b"121", "com.example/do", b'[1.0,{"b":1,"a":2}]'),
        request_step(b"122", "com.example/bare"),
        request_step(b"123", "com.example/null", b'{"null":null}'),
        request_step(b"124", "com.example/unknown", b'{"x":1.0}'),
        Step([notification("com.example/noted", b'{"b":1.0,"a":{ }}')], (), [b"com.example/echoed"]),
        Step([notification("com.example/noted", b"[1.0]")], (), [b"com.example/echoed"]),
        Step([notification("com.example/bare-noted")], (), [b"com.example/bare-echoed"]),
    ],
    "fidelity": [
        call_step(b"130", "odd"),
        call_step(b"131", "echo", rest=b',"arguments":$ODD'),
        request_step(b"132", "com.example/do", b"$ODD"),
        Step(
            [b' \t{ "params" : {"name":"echo", "x" : 1.0} , "method":"tools\\/call",  "id" :133, "jsonrpc":"2.0" } '],
            [b"133"],
        ),
    ],
    "ids": [
        *(
            request_step(id, "com.example/do", b"{}")
            for id in (
                b'"text"',
                b'""',
                b'"\\u0061\\/\\ud83d\\ude00"',
                b'"\\ud800"',
                b'"\xc3\xa9 \xe2\x80\xa8"',
                b'"1"',
                b"-1",
                b"1.0",
                b"-0",
                b"9007199254740993",
                b"1234567890123456789012345678901234567890",
                b"140",
                b"140",  # used again, once the first is done
            )
        ),
    ],
    "large": [
        call_step(b"150", "big"),
        request_step(b"151", "com.example/do", b'{"big":"$BIG"}'),
        call_step(b"152", "huge"),
        request_step(b"153", "com.example/do", b"{}"),
    ],
}
"""Chapters, in order. `$ODD` and `$BIG` stand for text that is too long to be shown here."""

CANCELLED_ID: Final = b'"slow\\u0031"'


def spelled_out(message: bytes, odd: bytes) -> bytes:
    return message.replace(b"$ODD", odd).replace(b"$BIG", b"\\u0078y" * (5 * 2**20 // 7))


# --- The conversation -------------------------------------------------------------------------------------------------


class ChapterMessage(NamedTuple):
    chapter: str
    stream: str
    message: bytes


class Talk:
    """A client in conversation, with the messages it received by chapter."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.messages: list[ChapterMessage] = []
        self._at = 0

    def begin(self, name: bytes, revision: bytes = b"2025-11-25") -> None:
        self.carry_out("handshake", initialize(name, revision))
        self.client.confirm(INITIALIZED)

    def carry_out(
        self, chapter: str, step: Step, answer: Callable[[bytes, Parts], bytes | None] = answer_to
    ) -> list[Parts]:
        """Sends the step's messages, answers server requests, and returns what has come once all that is due is
        there."""
        begun_at = len(self.messages)
        ids, contents = list(step.ids), list(step.contents)
        for message in step.sends:
            self.client.send(message)
        while ids or contents:
            for received in self._next():
                self.messages.append(ChapterMessage(chapter, received.stream, received.message))
                found = parts(received.message)
                if found.is_request:
                    reply = answer(received.message, found)
                    if reply is not None:
                        self._report(found)
                        self.client.send(reply)
                elif found.is_answer and found.id in ids:
                    ids.remove(found.id)
                    continue
                for content in contents:
                    if content in received.message:
                        contents.remove(content)
                        break
        return [parts(one.message) for one in self.messages[begun_at:]]

    def _report(self, asked: Parts) -> None:
        """Sends progress before the answer if the request has a progress token."""
        token = member(asked.params, "_meta", "progressToken")
        if token is not None:
            params = b'{"progress":1.0,"progressToken":%b,"_meta":{"n":1e2}}' % token
            self.client.send(notification("notifications/progress", params))

    def _next(self) -> list[Received]:
        try:
            received = self.client.wait(self._at)
        except AssertionError as error:
            tail = "\n".join(f"{one.stream}: {one.message[:300]!r}" for one in self.client.received[-5:])
            raise AssertionError(f"{error}; the last that came:\n{tail}") from error
        self._at += len(received)
        return received
