"""The records of the audit log: what each line holds, and what it does not.

A line holds no payload and no secret, unless the configuration asks for arguments. Ids of sessions and tasks are
secrets of their clients, so a record has the beginning of each. All text of a peer is bounded, and on one line.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Final, Literal

import msgspec

from ...core.base.telemetry import NAME_MAX_CHARS, RequestStarted
from ...core.bridge.request_name import NAMED_BY
from ..base.output import plain_json
from ..base.tags import tag_of

Arguments = Literal["keys", "never", "full"]

TEXT_MAX_CHARS: Final = 400
"""Characters of a principal, an address or a text. An issuer and a subject have fewer. At it: the rest is left out."""
ARGUMENTS_MAX: Final = 64
"""Arguments that a record names. Tools have fewer. At it: the others are counted."""
ARGUMENTS_MAX_BYTES: Final = 16 * 1024
"""Bytes of arguments that are written with their values. With them a record fits into one datagram for a syslog server.
At it: only their names and sizes are written."""
READ_MAX_BYTES: Final = 1024 * 1024
"""Bytes of params that are read. Longer ones would hold up other requests. At it: the record names no argument."""

_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_USER: Final = re.compile(r"(?<=://)[^/@]*@")


class Record(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The part that all records have.

    Attributes:
        time: UTC, with milliseconds.
        id: the name of the record.
        replica: the tag of the replica among several.
        worker: the tag of the worker among several.
        principal: the caller or operator; "" is anonymous.
        address: that the client came from; "" if there is none.
    """

    time: str
    event: str
    id: str
    replica: str = ""
    worker: str = ""
    principal: str
    address: str = ""


class RequestRecord(Record, kw_only=True):
    """A request of a client: `started` is written before it is sent to a server, `request` when it has ended.

    Attributes:
        client: the name and the version that the client says.
        session: the beginning of the session's name.
        server: the server or profile that the client uses.
        target: the name of the tool or prompt, or the URI of the resource without its query.
        task: the beginning of the task's id.
        argument_bytes: the size of the JSON of each argument.
        arguments_more: the number of arguments that are not named.
        arguments: the arguments.
        trace_id: the W3C trace id that the client sent.
        outcome: result, tool_error, unread, error or cancelled.
        code: the code of the error.
        servers: the servers to which it was sent.
        attempts: how often it was sent to a server; 0: no server was asked.
    """

    client: str = ""
    session: str = ""
    server: str
    method: str
    target: str = ""
    task: str = ""
    argument_bytes: dict[str, int] = {}
    arguments_more: int = 0
    arguments: msgspec.Raw | None = None
    trace_id: str = ""
    outcome: str = ""
    code: int | None = None
    servers: tuple[str, ...] = ()
    attempts: int | None = None
    duration_ms: float | None = None
    request_bytes: int | None = None
    result_bytes: int | None = None


class DeniedRecord(Record, kw_only=True):
    """A request over HTTP whose caller was not let in."""

    http_method: str
    path: str
    reason: str


class NoteRecord(Record, kw_only=True):
    """A line of the log `isthmus.audit`: a caller reached a limit, logged in, or has its credentials revoked."""

    level: str
    text: str


class CommandRecord(Record, kw_only=True):
    """A command of an operator on a management page.

    Attributes:
        command: start, stop, restart, cancel, delete or revoke.
        target: the server, the beginning of the id of the task or file, or the caller.
        status: that of the HTTP response; 0 if the operator hung up.
    """

    command: str
    target: str
    status: int


class Said(msgspec.Struct):
    """The part of a `RequestRecord` that is read in the params of its request."""

    target: str = ""
    task: str = ""
    client: str = ""
    argument_bytes: dict[str, int] = {}
    arguments_more: int = 0
    arguments: msgspec.Raw | None = None
    trace_id: str = ""


_Members = dict[str, msgspec.Raw]
_members: Final = msgspec.json.Decoder(_Members)
_encoder: Final = msgspec.json.Encoder()
_text: Final = msgspec.json.Decoder(str)
_FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def without_secrets(uri: str) -> str:
    """Returns a URI without its user, query and fragment: these may hold credentials."""
    shown, _, _ = uri.partition("#")[0].partition("?")
    return _USER.sub("", shown)[:TEXT_MAX_CHARS]


def read_started(event: RequestStarted, arguments: Arguments) -> Said:
    """Reads the params of a request that has started."""
    said = read_params(event.method, event.params, arguments)
    if event.target and "://" not in event.target:
        said.target = event.target
    return said


def read_params(method: str, params: bytes | None, arguments: Arguments) -> Said:
    """Reads what a record has of the params of a request. What cannot be read is left out."""
    said = Said()
    if params is None or len(params) > READ_MAX_BYTES:
        return said
    found = _object(params)
    name, member = found, NAMED_BY.get(method)
    if method == "completion/complete":
        name = _object(found.get("ref"))
        member = "name" if "name" in name else "uri"
    text = "" if member is None else _string(name.get(member))
    if member == "taskId":
        said.task = tag_of(text)
    else:
        said.target = without_secrets(text) if member == "uri" else text[:NAME_MAX_CHARS]
    if "_meta" in found:
        _read_meta(said, _object(found["_meta"]))
    if arguments != "never":
        if method == "completion/complete":
            argument = _object(found.get("argument"))
            given = {_string(argument.get("name")): argument["value"]} if "value" in argument else {}
        else:
            given = _object(found.get("arguments"))
        if given:
            _read_arguments(said, given, arguments)
    return said


def _read_meta(said: Said, meta: _Members) -> None:
    trace = _TRACE.fullmatch(_string(meta.get("traceparent")))
    said.trace_id = "" if trace is None else trace[1]
    client = _object(meta.get("io.modelcontextprotocol/clientInfo"))
    words = f"{_string(client.get('name'))} {_string(client.get('version'))}"
    said.client = words.strip()[:NAME_MAX_CHARS]


def _read_arguments(said: Said, given: _Members, arguments: Arguments) -> None:
    if arguments == "full":
        raw = msgspec.json.encode(given)
        # Encoded anew: the client may have sent line ends between the values.
        with contextlib.suppress(*_FAULTS):
            if len(raw) <= ARGUMENTS_MAX_BYTES:
                said.arguments = msgspec.Raw(msgspec.json.encode(msgspec.json.decode(raw)))
                return
    named = list(given.items())[:ARGUMENTS_MAX]
    said.argument_bytes = {name[:NAME_MAX_CHARS]: len(memoryview(value)) for name, value in named}
    said.arguments_more = len(given) - len(named)


def _object(raw: msgspec.Raw | bytes | None) -> _Members:
    """Returns the members of a JSON object; none for anything else."""
    if raw is None:
        return {}
    try:
        return _members.decode(raw)
    except _FAULTS:
        return {}


def _string(raw: msgspec.Raw | None) -> str:
    """Returns the text of a JSON string; "" for anything else."""
    if raw is None:
        return ""
    try:
        return _text.decode(raw)
    except _FAULTS:
        return ""


def encode(record: Record) -> bytes:
    """Returns the line of a record. What cannot be seen in it is escaped."""
    try:
        line = _encoder.encode(record)
    except UnicodeEncodeError:  # a lone surrogate, of a path for example
        line = json.dumps(msgspec.to_builtins(record)).encode()
    if not line.isascii() or b"\x7f" in line:
        line = plain_json(line.decode()).encode()
    return line + b"\n"
