"""The conversation that every pair of transports carries: what a client says, and what it then waits for.

A `Step` says some messages and waits for answers to their ids and for other messages that contain something. What the
server asks meanwhile is answered by `ANSWERS`. Steps are grouped in chapters; the whole is one session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from raw_clients import Client, Heard
from slices import Parts, member, parts

# --- What a client answers --------------------------------------------------------------------------------------------

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
"""What a request contains, and the member to answer with; None: it stays unanswered."""


def answer_to(message: bytes, asked: Parts) -> bytes | None:
    for contained, name, value in ANSWERS:
        if contained in message:
            if name is None or value is None:
                return None
            assert asked.id is not None
            return b'{"jsonrpc":"2.0","id":%b,%b:%b}' % (asked.id, name, value)
    raise AssertionError(f"an unexpected request: {message[:300]!r}")


# --- What it says -----------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """
    Attributes:
        says: messages, one after the other.
        ids: of the answers that are due.
        notices: each is contained in a message that is due.
    """

    says: Sequence[bytes]
    ids: Sequence[bytes] = ()
    notices: Sequence[bytes] = ()


def request(id: bytes, method: str, params: bytes | None = None) -> bytes:
    rest = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b"%b}' % (id, method.encode(), rest)


def notification(method: str, params: bytes | None = None) -> bytes:
    rest = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","method":"%b"%b}' % (method.encode(), rest)


def asks(id: bytes, method: str, params: bytes | None = None, *notices: bytes) -> Step:
    return Step([request(id, method, params)], [id], notices)


def calls(id: bytes, tool: str, *notices: bytes, rest: bytes = b"") -> Step:
    return asks(id, "tools/call", b'{"name":"%b"%b}' % (tool.encode(), rest), *notices)


def initialize(name: bytes, revision: bytes = b"2025-11-25") -> Step:
    params = (
        b'{ "clientInfo":{"version":"0.0","name":"%b","title":"T\\u00ef","icons":[{"src":"data:,","sizes":["48x48"]}],'
        b'"extra":{"n":1.0}},"capabilities":{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},'
        b'"elicitation":{"form":{},"url":{}},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}}'
        b'}},"experimental":{"com.example":{"a":[1.0,12345678901234567890]}},"vendor":[ ]},"protocolVersion":"%b",'
        b'"_meta":{"com.example/trace":"\\ud800"},"more":1e2 }'
    )
    return asks(b"0", "initialize", params % (name, revision))


INITIALIZED: Final = notification("notifications/initialized")
TOKENED: Final = b',"_meta":{"com.example/k":1.0,"progressToken":%b,"z":[ ]}'

CHAPTERS: Final[dict[str, list[Step]]] = {
    "handshake": [asks(b"1", "ping"), asks(b"2", "ping", b'{"_meta":{}}')],
    "lists": [
        asks(b"10", "tools/list"),
        asks(b"11", "tools/list", b'{"cursor":"p2"}'),
        asks(b"12", "tools/list", b'{"cursor":"p\\u00323","_meta":{"a":1.0}}'),
        asks(b"13", "tools/list", b'{"cursor":"nothing"}'),
        asks(b"14", "prompts/list", b"{ }"),
        asks(b"15", "resources/list", b"{}"),
        asks(b"16", "resources/templates/list"),
    ],
    "gets": [
        asks(b"20", "prompts/get", b'{"name":"p","arguments":{"a":"\\u00e9"},"x":[1.0]}'),
        asks(b"21", "resources/read", b'{"uri":"x:///1"}'),
        asks(b"22", "resources/read", b'{"_meta":{"n":1.0},"uri":"x:///2"}'),
        asks(b"23", "resources/read", b'{"uri":"x:///0"}'),
        asks(
            b"24",
            "completion/complete",
            b'{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},"context":{"arguments":{}}}',
        ),
    ],
    "subscriptions": [
        asks(b"30", "resources/subscribe", b'{"uri":"x:///1","_meta":{"n":1.0},"vendor":1e2}'),
        calls(b"31", "touch", b"resources/updated"),
        asks(b"32", "resources/unsubscribe", b'{"uri":"x:///1"}'),
    ],
    "logging": [asks(b"40", "logging/setLevel", b'{"level":"debug","x":1.0}'), calls(b"41", "log")],
    "changed lists": [
        calls(b"50", "change", b"tools/list_changed", b"prompts/list_changed", b"resources/list_changed"),
        Step([notification("notifications/roots/list_changed", b'{"_meta":{"n":1.0}}')], (), [b"com.example/echoed"]),
    ],
    "progress": [
        calls(b"60", "progress", rest=TOKENED % b'"a \\u0074oken"'),
        calls(b"61", "progress", rest=TOKENED % b"0"),
        calls(b"62", "progress", rest=TOKENED % b"-12345678901234567890123456789"),
        calls(b"63", "nothing", rest=TOKENED % b"1.0"),
    ],
    "tools": [
        calls(b"70", "contents"),
        calls(b"71", "wrong"),
        calls(b"72", "failing"),
        calls(b"73", "nothing of the kind"),
        calls(b"74", "echo"),
        calls(b"75", "echo", rest=b',"arguments":{"a":[1,2 , 3],"b":{"c":null}},"vendor":{"x":1.0}'),
    ],
    "errors": [
        calls(b"80", "authorize"),
        *(calls(b"8%d" % number, f"code {code}") for number, code in enumerate((0, 1, -1, -32000, 999999999999), 1)),
        calls(b"86", "code -32700"),
        calls(b"87", "code -32050"),
    ],
    "questions": [
        calls(b"90", "roots"),
        calls(b"91", "sample", b"com.example/echoed"),
        calls(b"92", "form"),
        calls(b"93", "url", b"elicitation/complete"),
        calls(b"94", "pings"),
        calls(b"95", "withdraw", b"notifications/cancelled"),
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
        calls(b"101", "echo"),
    ],
    "tasks of the client": [calls(b"115", "client task")],
    "vendors": [
        calls(b"120", "vendor"),
        asks(b"121", "com.example/do", b'[1.0,{"b":1,"a":2}]'),
        asks(b"122", "com.example/bare"),
        asks(b"123", "com.example/null", b'{"null":null}'),
        asks(b"124", "com.example/unknown", b'{"x":1.0}'),
        Step([notification("com.example/noted", b'{"b":1.0,"a":{ }}')], (), [b"com.example/echoed"]),
        Step([notification("com.example/noted", b"[1.0]")], (), [b"com.example/echoed"]),
        Step([notification("com.example/bare-noted")], (), [b"com.example/bare-echoed"]),
    ],
    "fidelity": [
        calls(b"130", "odd"),
        calls(b"131", "echo", rest=b',"arguments":$ODD'),
        asks(b"132", "com.example/do", b"$ODD"),
        Step(
            [b' \t{ "params" : {"name":"echo", "x" : 1.0} , "method":"tools\\/call",  "id" :133, "jsonrpc":"2.0" } '],
            [b"133"],
        ),
    ],
    "ids": [
        *(
            asks(id, "com.example/do", b"{}")
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
        calls(b"150", "big"),
        asks(b"151", "com.example/do", b'{"big":"$BIG"}'),
        calls(b"152", "huge"),
        asks(b"153", "com.example/do", b"{}"),
    ],
}
"""In order. `$ODD` and `$BIG` stand for what is too long to be shown here."""

CANCELLED_ID: Final = b'"slow\\u0031"'


def spelled_out(message: bytes, odd: bytes) -> bytes:
    return message.replace(b"$ODD", odd).replace(b"$BIG", b"\\u0078y" * (5 * 2**20 // 7))


# --- Talking ----------------------------------------------------------------------------------------------------------


class Said(NamedTuple):
    chapter: str
    stream: str
    message: bytes


class Talk:
    """A client at work: what it hears, by chapter."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.said: list[Said] = []
        self._at = 0

    def begin(self, name: bytes, revision: bytes = b"2025-11-25") -> None:
        self.carry_out("handshake", initialize(name, revision))
        self.client.confirm(INITIALIZED)

    def carry_out(
        self, chapter: str, step: Step, answer: Callable[[bytes, Parts], bytes | None] = answer_to
    ) -> list[Parts]:
        """Say it, answer what is asked, and return what has come when all that is due is there."""
        begun_at = len(self.said)
        ids, notices = list(step.ids), list(step.notices)
        for message in step.says:
            self.client.send(message)
        while ids or notices:
            for heard in self._next():
                self.said.append(Said(chapter, heard.stream, heard.message))
                said = parts(heard.message)
                if said.is_request:
                    reply = answer(heard.message, said)
                    if reply is not None:
                        self._report(said)
                        self.client.send(reply)
                elif said.is_answer and said.id in ids:
                    ids.remove(said.id)
                    continue
                for notice in notices:
                    if notice in heard.message:
                        notices.remove(notice)
                        break
        return [parts(said.message) for said in self.said[begun_at:]]

    def _report(self, asked: Parts) -> None:
        """Progress, before an answer to who wants it."""
        token = member(asked.params, "_meta", "progressToken")
        if token is not None:
            params = b'{"progress":1.0,"progressToken":%b,"_meta":{"n":1e2}}' % token
            self.client.send(notification("notifications/progress", params))

    def _next(self) -> list[Heard]:
        try:
            heard = self.client.wait(self._at)
        except AssertionError as error:
            tail = "\n".join(f"{one.stream}: {one.message[:300]!r}" for one in self.client.heard[-5:])
            raise AssertionError(f"{error}; the last that came:\n{tail}") from error
        self._at += len(heard)
        return heard
