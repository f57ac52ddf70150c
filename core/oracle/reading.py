"""The parser from bytes to messages, based on the standard library's, with the problems it finds."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, NoReturn

from .seen import JsonObject, MessageKind, key_of, shown


class Problem(NamedTuple):
    """A reason why some JSON is no message, or a faulty one: the `rule`, and a text of what was seen.

    Attributes:
        is_echo: the value may repeat what the other side has sent: an invalid id.
    """

    rule: str
    text: str
    is_echo: bool = False


class Reading(NamedTuple):
    """The messages and problems found in some bytes.

    Attributes:
        messages: those that can be judged further, each with its kind.
        problems: of the rest, and of members that do not decide the kind of a message.
        is_batch: the messages came in an array.
        is_ambiguous: an object has a key twice, so that other readers may read something else, or nothing.
    """

    messages: list[tuple[MessageKind, JsonObject]]
    problems: list[Problem]
    is_batch: bool
    is_ambiguous: bool = False


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def read(text: bytes) -> Reading:
    """Reads any bytes as messages."""
    is_ambiguous = False

    def join(pairs: list[tuple[str, Any]]) -> JsonObject:
        nonlocal is_ambiguous
        joined = dict(pairs)
        is_ambiguous |= len(joined) < len(pairs)
        return joined

    try:
        value: Any = json.loads(text.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=join)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is one
        return Reading([], [Problem("not-json", f"got what is no JSON: {shown(str(error))}")], False)
    if not isinstance(value, list):
        return _read_all([value], is_batch=False)._replace(is_ambiguous=is_ambiguous)
    if not value:
        return Reading([], [Problem("not-jsonrpc", "got an empty array")], True)
    return _read_all(value, is_batch=True)


def _read_all(values: list[Any], *, is_batch: bool) -> Reading:
    reading = Reading([], [], is_batch)
    for value in values:
        kind = _kind_of(value, reading.problems)
        if kind is not None:
            reading.messages.append((kind, value))
    return reading


def _kind_of(value: Any, problems: list[Problem]) -> MessageKind | None:
    """Returns the kind of message that a value is; None if it is none, after adding a problem."""
    if not isinstance(value, dict):
        problems.append(Problem("not-jsonrpc", f"got {shown(value)}, expected an object"))
        return None
    if value.get("jsonrpc") != "2.0":
        problems.append(Problem("not-jsonrpc", f'got jsonrpc {shown(value.get("jsonrpc"))}, expected "2.0"'))
        return None
    if "method" in value:
        return _kind_of_call(value, problems)
    if "result" not in value and "error" not in value:
        what = "neither" if "id" in value else "no method either"
        rule = "response-shape" if "id" in value else "not-jsonrpc"
        problems.append(Problem(rule, f"expected a result or an error, got {what}"))
        return None
    return _kind_of_response(value, problems)


def _kind_of_call(value: JsonObject, problems: list[Problem]) -> MessageKind | None:
    if not isinstance(value["method"], str):
        problems.append(Problem("not-jsonrpc", f"got the method {shown(value['method'])}, expected a string"))
        return None
    if not isinstance(value.get("params", {}), dict):
        problems.append(Problem("not-jsonrpc", f"got params {shown(value['params'])}, expected an object"))
    if "id" not in value:
        return MessageKind.NOTIFICATION
    if key_of(value["id"]) is None:
        problems.append(Problem("id-type", f"got the id {shown(value['id'])} for {shown(value['method'])}"))
        return None
    return MessageKind.REQUEST


def _kind_of_response(value: JsonObject, problems: list[Problem]) -> MessageKind | None:
    if "result" in value and "error" in value:
        problems.append(Problem("response-shape", f"got both a result and an error for {shown(value.get('id'))}"))
        return None
    if "result" in value:
        if key_of(value.get("id")) is None:
            seen = f"got a result with the id {shown(value.get('id'))}"
            problems.append(Problem("response-shape", seen, is_echo="id" in value))
            return None
        if not isinstance(value["result"], dict):
            problems.append(Problem("result-type", f"got the result {shown(value['result'])}, expected an object"))
        return MessageKind.RESULT
    error = value["error"]
    code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(text, str):
        problems.append(Problem("error-shape", f"got the error {shown(error)}, expected an integer code and a message"))
    if value.get("id") is not None and key_of(value["id"]) is None:
        problems.append(Problem("id-type", f"got an error with the id {shown(value['id'])}", is_echo=True))
        return None
    return MessageKind.ERROR
