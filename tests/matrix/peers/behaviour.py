"""The behaviour of the matrix's server for each message: the bytes to send, and what to wait for in between.

In a template `$ID` stands for the request's id, `$TOKEN` for its progress token, `$PARAMS` for its params, each as it
was written, and `$FILL` for as many letters as the step names.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from slices import Parts, member


class Send(NamedTuple):
    """Sends a message on the stream of the request. The style chooses the framing where the transport has a choice."""

    template: bytes
    style: str = ""
    fill: int = 0


class SendOnSession(NamedTuple):
    """Sends a message on the stream of the session."""

    template: bytes
    style: str = ""


class AskClient(NamedTuple):
    """Sends a request to the client on the request's stream, and waits for the answer."""

    template: bytes


class WaitCancelled(NamedTuple):
    """Waits until the client cancels this request."""


class Gather(NamedTuple):
    """Waits until `count` requests wait here. Then they continue one by one, the last first."""

    count: int


Op = Send | SendOnSession | AskClient | WaitCancelled | Gather


MARK = b"\xef\xbb\xbf"


def result(raw: bytes, *, style: str = "", fill: int = 0) -> Send:
    return Send(b'{"jsonrpc":"2.0","id":$ID,"result":' + raw + b"}", style, fill)


def error(raw: bytes) -> Send:
    return Send(b'{"jsonrpc":"2.0","id":$ID,"error":' + raw + b"}")


def notification(method: bytes, params: bytes | None = None) -> bytes:
    members = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","method":"' + method + b'"' + members + b"}"


def ask_client(number: bytes, method: bytes, params: bytes | None = None) -> AskClient:
    members = b"" if params is None else b',"params":' + params
    return AskClient(b'{"jsonrpc":"2.0","id":' + number + b',"method":"' + method + b'"' + members + b"}")


def text(content: bytes) -> bytes:
    return b'{"content":[{"type":"text","text":"' + content + b'"}]}'


def progress(rest: bytes) -> Send:
    return Send(notification(b"notifications/progress", b'{"progressToken":$TOKEN,' + rest + b"}"))


ODD_VALUES = (
    rb'{ "z":1 ,"a" : [1.0, 1e2, 1E+2, -0, 0.10, 1e400, 9007199254740993, 123456789012345678901234567890, '
    rb"-0.0, 3.141592653589793238462643383279],"
    rb' "escapes":"\u0041\/\"\\\b\f\n\r\t\u00e9\ud83d\ude00", "lone":"\ud800 and \udc00", "nul":"\u0000", '
    b'"raw":"\xc3\xa9 \xe2\x98\x83 \xf0\x9f\x98\x80 \xe2\x80\xa8\xc2\x85\x7f", "":"", "\\u0062":null, '
    rb'"deep":{"twice":1,"twice":2,"d":[[[[{}]]]]},"_meta":{"com.example/x":{"k":1.50}, "other":[ ]} }'
)
"""Text that parsers and printers like to change."""

TOOLS_2 = (
    b'{"tools":[{"name":"echo","title":"E","description":"says","inputSchema":{"type":"object","$schema":'
    b'"https://json-schema.org/draft/2020-12/schema","properties":{"x":{"type":["integer","null"],"x-vendor":1.0}}},'
    b'"annotations":{"readOnlyHint":true,"vendor":[1.0]},"icons":[{"src":"data:,","sizes":["any"],"theme":"dark"}],'
    b'"execution":{"taskSupport":"optional"},"vendorField":{"b":1,"a":2},"_meta":{"k":"v"}}],"nextCursor":"p\\u00323"}'
)

TABLE: dict[str, list[Op]] = {
    "ping": [result(b"{}")],
    "initialize": [
        result(
            b'{"protocolVersion":"2025-11-25","capabilities":{"vendor":{"x":1.0},"tools":{"listChanged":true},"prompts"'
            b':{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{},'
            b'"experimental":{"com.example":{"n":1e2'
            b'}}}, "serverInfo":{"version":"1.0.0-\\u00e9","name":"speaker","title":"The \xc3\xa9 Speaker","websiteUrl"'
            b':"https://example.com/","icons":[{"src":"https://example.com/i.png","mimeType":"image/png"}],"extra":1.0'
            b'},"instructions":"Speak \\"up\\", \\ud83d\\ude00 please.\\n","_meta":{"build":12345678901234567890}}'
        )
    ],
    "initialize 2025-03-26": [
        result(b'{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"1"}}')
    ],
    "tools/list": [result(b'{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"nextCursor":"p2"}')],
    "tools/list p2": [result(TOOLS_2)],
    "tools/list p23": [result(b'{"nextCursor":"","tools":[ ],"_meta":{"total":2}}')],
    "tools/list nothing": [error(b'{"code":-32602,"message":"no such page","data":{"cursor":"nothing"}}')],
    "prompts/list": [result(b'{"prompts":[{"name":"p","arguments":[{"name":"a","required":true,"more":1}]}]}')],
    "prompts/get p": [
        result(
            b'{"description":"d","messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"file:///x",'
            b'"text":"t","annotations":{"priority":1.0}}}},{"role":"assistant","content":{"type":"audio","data":"AA==",'
            b'"mimeType":"audio/wav"}}]}'
        )
    ],
    "resources/list": [
        result(
            b'{"resources":[{"uri":"file:///a b","name":"x","size":9007199254740993,"annotations":{"lastModified":'
            b'"2025-01-12T15:00:58Z","audience":["user"]}}]}'
        )
    ],
    "resources/templates/list": [result(b'{"resourceTemplates":[{"uriTemplate":"x:///{a}{?b*}","name":"t"}]}')],
    "resources/read x:///1": [
        result(b'{"contents":[{"uri":"x:///1","mimeType":"text/plain","text":"line\\nline\\r\\n"}]}')
    ],
    "resources/read x:///2": [result(b'{"contents":[{"uri":"x:///2","blob":"AP8=","_meta":{"a":1e0}}]}')],
    "resources/read x:///0": [error(b'{"code":-32002,"message":"Resource not found","data":{"uri":"x:///0"}}')],
    "resources/subscribe": [result(b'{"_meta":{"since":1.0}}')],
    "resources/unsubscribe": [result(b"{}")],
    "completion/complete": [result(b'{"completion":{"values":["a","\\u0062"],"total":100.0,"hasMore":true,"x":[]}}')],
    "logging/setLevel": [result(b"{ }")],
    "tools/call echo": [result(b'{"content":[],"structuredContent":{"params":$PARAMS}}')],
    "tools/call touch": [
        SendOnSession(
            notification(b"notifications/resources/updated", b'{"uri":"x:///1","title":"T","_meta":{"v":2.0}}')
        ),
        result(b'{"content":[]}'),
    ],
    "tools/call change": [
        SendOnSession(notification(b"notifications/tools/list_changed")),
        SendOnSession(notification(b"notifications/prompts/list_changed", b"{}")),
        SendOnSession(notification(b"notifications/resources/list_changed", b'{"_meta":{"n":1.0}}')),
        result(b'{"content":[]}'),
    ],
    "tools/call log": [
        *(
            Send(
                notification(b"notifications/message", b'{"level":"%b","logger":"l","data":{"n":1.0,"a":[ ]}}' % level)
            )
            for level in (b"debug", b"info", b"notice", b"warning", b"error", b"critical", b"alert", b"emergency")
        ),
        Send(notification(b"notifications/message", b'{"data":"\\ud800","level":"info"}')),
        result(b'{"content":[]}'),
    ],
    "tools/call progress": [
        progress(b'"progress":1,"total":3,"message":"one"'),
        progress(b'"total":3.0,"progress":2.0,"_meta":{"x":1e0}'),
        progress(b'"progress":3, "total":3,"message":"\\u2713"'),
        result(text(b"done")),
    ],
    "tools/call wrong": [
        result(b'{"structuredContent":{"n":"not a number","m":[1.0]},"content":[{"type":"text","text":"{}"}]}')
    ],
    "tools/call failing": [
        result(b'{"isError":true,"content":[{"type":"text","text":"it failed"}],"_meta":{"trace":"\\u0000"}}')
    ],
    "tools/call contents": [
        result(
            b'{"content":[{"type":"image","data":"iVBORw==","mimeType":"image/png"},{"type":"resource_link","uri":'
            b'"x:///1","name":"n","size":1.0},{"type":"of-tomorrow","payload":{"a":[1.0]}},{"text":"t","type":"text",'
            b'"annotations":{"audience":["assistant"],"priority":0.50}}],"structuredContent":{"a":1.0},"resultType":'
            b'"complete","ttlMs":0}'
        )
    ],
    "tools/call odd": [result(ODD_VALUES)],
    "tools/call roots": [ask_client(b'"q-roots"', b"roots/list"), result(text(b"thanks for the roots"))],
    "tools/call sample": [
        ask_client(
            b"41",
            b"sampling/createMessage",
            b'{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"maxTokens":1e2,"modelPreferences":'
            b'{"costPriority":0.50,"hints":[{"name":"m"}]},"tools":[{"name":"t","inputSchema":{"type":"object"}}],'
            b'"toolChoice":{"mode":"auto"},"includeContext":"none","x":9007199254740993,'
            b'"_meta":{"progressToken":"mine","k":1.0}}',
        ),
        result(text(b"thanks for the sample")),
    ],
    "tools/call form": [
        ask_client(
            b'"e\\u0031"',
            b"elicitation/create",
            b'{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string",'
            b'"format":"email","default":"a@b"},"n":{"type":"integer","minimum":1.0}},"required":["name"]}}',
        ),
        ask_client(
            b"-7", b"elicitation/create", b'{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}'
        ),
        result(text(b"thanks for the form")),
    ],
    "tools/call url": [
        ask_client(
            b'"u1"',
            b"elicitation/create",
            b'{"mode":"url","url":"https://example.com/?a=b&c=%20","elicitationId":"el-1","message":"Go"}',
        ),
        Send(notification(b"notifications/elicitation/complete", b'{"elicitationId":"el-1"}')),
        result(text(b"thanks for going")),
    ],
    "tools/call vendor": [
        ask_client(b"99999999999999999999999999999999", b"com.example/ask", b'{"b":1,"a":[1.0,"\\ud800"]}'),
        ask_client(b'"v2"', b"com.example/refuse", b"[1,2.0]"),
        ask_client(b'"v3"', b"com.example/bare"),
        Send(notification(b"com.example/told", b'{"b":1,"a":{ }}')),
        Send(notification(b"com.example/bare-told")),
        result(b'{"vendor":[]}'),
    ],
    "tools/call pings": [ask_client(b'"ping-1"', b"ping"), result(text(b"thanks for the pong"))],
    "tools/call withdraw": [
        Send(ask_client(b'"w1"', b"elicitation/create", b'{"message":"never mind","requestedSchema":{}}').template),
        Send(
            notification(
                b"notifications/cancelled", b'{"requestId":"w1","reason":"changed my \\u006dind","_meta":{"x":1}}'
            )
        ),
        result(text(b"withdrawn")),
    ],
    "tools/call authorize": [
        error(
            b'{"code":-32042,"message":"Authorize first","data":{"elicitations":[{"mode":"url","elicitationId":"a-1",'
            b'"url":"https://example.com/auth","message":"Sign in","x":1.0}],"k":[ ]}}'
        )
    ],
    "tools/call slow": [
        progress(b'"progress":0.5,"message":"begun"'),
        WaitCancelled(),
        SendOnSession(notification(b"notifications/message", b'{"level":"info","data":"cancel seen"}')),
        result(text(b"too late")),
    ],
    "tools/call client task": [
        ask_client(b'"ct-1"', b"sampling/createMessage", b'{"messages":[],"maxTokens":1,"task":{"ttl":1.0}}'),
        ask_client(b'"ct-2"', b"tasks/get", b'{"taskId":"at-client"}'),
        ask_client(b'"ct-3"', b"tasks/result", b'{"taskId":"at-client"}'),
        result(text(b"thanks for the task")),
    ],
    "com.example/do": [result(b'[1.0,"an array is a result, too"]')],
    "com.example/bare": [result(b'"text"')],
    "com.example/null": [result(b'{"null":null}')],
    "com.example/noted": [SendOnSession(notification(b"com.example/echoed", b'{"got":$PARAMS}'))],
    "com.example/bare-noted": [SendOnSession(notification(b"com.example/bare-echoed"))],
    "notifications/roots/list_changed": [SendOnSession(notification(b"com.example/echoed", b'{"got":$PARAMS}'))],
    "notifications/progress": [SendOnSession(notification(b"com.example/echoed", b'{"progress":$PARAMS}'))],
    "tools/call big": [result(text(b"$FILL"), fill=5 * 2**20)],
    "tools/call huge": [result(text(b"$FILL"), fill=20 * 2**20)],
    "tools/call gather": [Gather(50), result(b'{"content":[],"structuredContent":{"params":$PARAMS}}')],
    "tools/call wait": [Gather(2), result(b'{"content":[],"structuredContent":{"params":$PARAMS}}')],
    # --- Malformed and unusual messages -----
    "tools/call crlf": [result(text(b"crlf"), style="crlf")],
    "tools/call noise": [result(text(b"after noise"), style="noise")],
    "tools/call cr": [
        SendOnSession(notification(b"notifications/tools/list_changed"), "cr"),
        Send(notification(b"notifications/message", b'{"level":"info","data":"cr"}'), "cr"),
        result(text(b"cr"), style="cr"),
    ],
    "tools/call cut": [
        SendOnSession(notification(b"notifications/prompts/list_changed"), "cut"),
        Send(notification(b"notifications/message", b'{"level":"info","data":"cut"}'), "cut"),
        result(text(b"cut"), style="cut"),
    ],
    "tools/call marked": [
        Send(MARK + notification(b"notifications/message", b'{"level":"info","data":"marked"}')),
        Send(MARK + result(text(b"marked")).template),
    ],
    "tools/call utf8": [
        Send(notification(b"notifications/message", b'{"level":"info","data":"\xff"}')),
        result(b'{"bad":"\xff\xfe"}'),
    ],
    "tools/call strangers": [
        Send(b'{"jsonrpc":"2.0","id":987654321,"result":{"for":"nobody"}}'),
        Send(b'{"jsonrpc":"2.0","id":"never asked","result":{"for":"nobody"}}'),
        Send(b'{"jsonrpc":"2.0","id":987654322,"error":{"code":1,"message":"for nobody"}}'),
        result(text(b"for its owner")),
    ],
    "tools/call ids": [
        Send(b'{"jsonrpc":"2.0","id":1.5,"method":"roots/list"}'),
        Send(b'{"jsonrpc":"2.0","id":true,"method":"roots/list"}'),
        Send(b'{"jsonrpc":"2.0","id":{},"method":"roots/list"}'),
        Send(b'{"jsonrpc":"2.0","id":null,"method":"roots/list"}'),
        ask_client(b"7.0", b"roots/list"),
        result(text(b"after odd ids")),
    ],
    "tools/call as float": [Send(b'{"jsonrpc":"2.0","id":$ID.0,"result":' + text(b"as float") + b"}")],
    "tools/call as text": [Send(b'{"jsonrpc":"2.0","id":"$ID","result":' + text(b"as text") + b"}")],
    "tools/call twice": [result(text(b"the first")), result(text(b"the second"))],
    "tools/call same question": [
        Send(ask_client(b'"same"', b"roots/list").template),
        ask_client(b'"same"', b"elicitation/create", b'{"message":"again","requestedSchema":{}}'),
        result(text(b"asked twice")),
    ],
    "tools/call too big": [
        Send(notification(b"notifications/message", b'{"level":"info","data":"mind your head"}')),
        result(text(b"$FILL"), fill=70 * 2**20),
    ],
    "tools/call too big at once": [result(text(b"$FILL"), fill=70 * 2**20)],
    "tools/call too much said": [
        Send(notification(b"notifications/message", b'{"level":"info","data":"$FILL"}'), fill=70 * 2**20),
        result(text(b"after too much")),
    ],
    "tools/call batch": [
        Send(
            b'[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"in a batch"}},'
            b'{"jsonrpc":"2.0","id":"b1","method":"roots/list"},{"jsonrpc":"2.0","id":$ID,"result":'
            + text(b"batched")
            + b"}]"
        )
    ],
    "tools/call pretty": [
        Send(b'\r\n{\n\t"jsonrpc": "2.0",\n\t"id": $ID,\n\t"result": {\n\t\t"content": [ ],\r\n\t\t"n": 1.0\n\t}\n}\n')
    ],
}

DISCRIMINATORS = ("name", "uri", "cursor", "taskId", "protocolVersion")


def ops_for(message: Parts) -> list[Op]:
    """Returns the steps from the table. An unknown request is refused with its method; unknown notifications are
    ignored."""
    for key in DISCRIMINATORS:
        value = member(message.params, key)
        if value is not None and (ops := TABLE.get(f"{message.method} {json.loads(value)}")) is not None:
            return ops
    if message.method in TABLE:
        return TABLE[message.method]
    if message.method == "tools/call":
        code = (member(message.params, "name") or b"").strip(b'"')
        if code.startswith(b"code "):
            return [
                error(b'{"data":[1.0,null],"code":%b,"message":"code \\u0041","x":{ }}' % code.removeprefix(b"code "))
            ]
    if message.is_request:
        return [error(b'{"code":-32601,"message":"Method not found: ' + (message.method or "").encode() + b'"}')]
    return []
