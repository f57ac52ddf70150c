"""Any bytes arrive: decoding gives a frame or one refusal, and the standard library's json agrees which.

Accepted outcomes: a `Frame` that is the same after it was encoded and decoded again, with parts that an independent
reader decodes to the same values; or `RemoteProtocolError`, with a response that is a valid message.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.jsonrpc import envelope
from isthmus.core.jsonrpc.envelope import Frame


class Pairs(list[tuple[str, object]]):
    """An object with all its members, duplicates included."""


class Number(str):
    """A number as it was written."""


def refuse(text: str) -> NoReturn:
    raise ValueError(text)


def parse(data: bytes) -> object:
    return json.loads(
        data.decode(), object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=refuse
    )


def is_id(value: object) -> bool:
    if isinstance(value, Number):
        return re.fullmatch(r"-?[0-9]+(\.0+)?", value) is not None
    return isinstance(value, str)


def is_message(value: object) -> bool:
    """True if the decoded value is a JSON-RPC 2.0 message as MCP defines it."""
    if not isinstance(value, Pairs):
        return False
    members = dict(value)
    # Half a surrogate pair is no character: the decoder replaces it, so keys that differ in one count as equal.
    if len({re.sub("[\ud800-\udfff]", "\ufffd", key) for key, _ in value}) < len(value):
        return False
    version = members.get("jsonrpc")
    if version != "2.0" or isinstance(version, Number):
        return False
    has_id = members.get("id") is not None
    if has_id and not is_id(members["id"]):
        return False
    if "method" in members:
        method = members["method"]
        if not isinstance(method, str) or isinstance(method, Number) or re.search("[\ud800-\udfff]", method):
            return False
        return ("id" not in members or has_id) and isinstance(members.get("params") or [], list)
    outcome = {name: members[name] for name in ("result", "error") if name in members}
    if len(outcome) == 2 and None in outcome.values():
        outcome.pop("error" if outcome["error"] is None else "result")
    return len(outcome) == 1 and (has_id or "error" in outcome)


def encode(frame: Frame) -> bytes:
    if frame.method is not None:
        if frame.id_raw is None:
            return envelope.encode_notification(frame.method, frame.params)
        return envelope.encode_request(frame.id_raw, frame.method, frame.params)
    if frame.error is not None:
        return envelope.encode_error_raw(frame.id_raw, frame.error)
    assert frame.id_raw is not None
    assert frame.result is not None
    return envelope.encode_result(frame.id_raw, frame.result)


def test_one_input(data: bytes) -> None:
    try:
        value: object = parse(data)
    except RecursionError:
        value = RecursionError  # either reader may give up first
    except ValueError:
        value = None
    try:
        frame = envelope.decode(data)
    except RemoteProtocolError as error:
        refusal = error
    else:
        check_frame(data, value, frame)
        return
    assert value is RecursionError or not is_message(value)
    reply = envelope.decode(envelope.parse_failure(refusal))
    assert reply.error is not None
    assert reply.id_raw == (None if refusal.shape == "reply" else refusal.id_raw)


def check_frame(data: bytes, value: object, frame: Frame) -> None:
    assert envelope.decode(encode(frame)) == frame
    if frame.id_raw is not None:
        assert envelope.id_key(frame.id_raw) is not None
    if value is RecursionError:
        return
    assert is_message(value)
    assert isinstance(value, Pairs)
    members = dict(value)
    assert members.get("method") == frame.method
    for name, raw in (("id", frame.id_raw), ("params", frame.params), ("error", frame.error), ("result", frame.result)):
        if raw is not None:
            assert parse(raw) == members[name]
            assert raw in data
        elif frame.method is None or name in ("id", "params"):
            assert members.get(name) is None
