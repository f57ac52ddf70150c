"""What either side can do, as far as the other revision has a word for it and the bridge can carry it.

A projection keeps what is in its table and leaves everything else out: a capability nobody here knows may promise
messages that have no way across. Projections never add what was not declared, and projecting twice changes nothing.

Source: the pages on capabilities of each revision (basic/lifecycle; 2026-07-28 basic/versioning, client and server).
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import Any, Final

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..base.revisions import Features
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import build_object, members, remove_members, set_member
from .sampling import uses_tools

CLIENT_KEPT: Final = ("roots", "sampling", "elicitation", "experimental", "extensions")
"""Client capabilities that cross. `tasks` (2025-11-25) does not: a question is answered, not made a task of."""

SERVER_KEPT: Final = (
    "tools",
    "prompts",
    "resources",
    "logging",
    "completions",
    "experimental",
    "extensions",
)
"""Server capabilities that cross. `tasks` is told by what is offered of them (`offers`), not by what a server has."""

EXTENSIONS_HELD_BACK: Final = frozenset({"io.modelcontextprotocol/tasks"})
"""Extensions whose messages mean something else, or nothing, in the other era. Tasks are offered by themselves."""

PUSHED: Final = frozenset({"listChanged", "subscribe"})
"""Promises of messages that belong to no request."""

CAPABILITIES_SIZE_MAX_BYTES: Final = 64 * 1024
"""Real clients send less than one KiB; extensions may bring schemas."""

CAPABILITIES_DEPTH_MAX: Final = 32
"""Levels of arrays and objects. Real clients have five."""

_DIGITS_MAX: Final = 4000
"""Longer exponents are compared as text: Python refuses to read longer integers by default."""

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


def client_to_legacy(capabilities: bytes, server: Features) -> bytes:
    """What a modern client declared, as a handshake with this server says it."""
    return build_object(_client_parts(capabilities, server))


def client_to_modern(capabilities: bytes, client: Features | None = None) -> bytes:
    """What a client declared in its handshake, as each request to a modern server says it.

    Args:
        client: its revision, where known: what that has no word for is left out.
    """
    parts = _client_parts(capabilities, client)
    elicitation = parts.get("elicitation")
    if elicitation is not None and _is_bare(elicitation):
        parts["elicitation"] = set_member(elicitation, "form", b"{}")  # what the bare object has always meant
    return build_object(parts)


def server_to_legacy(capabilities: bytes, client: Features) -> bytes:
    """What a modern server declared, as the answer to this client's handshake says it."""
    parts = _kept(capabilities, SERVER_KEPT)
    if not client.completions:
        parts.pop("completions", None)
    return build_object(parts)


def server_to_modern(capabilities: bytes, *, server: Features, has_push: bool, may_complete: bool = True) -> bytes:
    """What a server declared in its handshake, as `server/discover` says it.

    Args:
        server: the revision it speaks.
        has_push: it can be heard outside of requests: by its pipe, or an event stream it has opened.
        may_complete: it has not refused `completion/complete`. A server whose revision has the method and no
            capability for it is taken to know it.
    """
    parts = _kept(capabilities, SERVER_KEPT)
    if not has_push:
        for name in ("tools", "prompts", "resources"):
            if name in parts:
                parts[name] = remove_members(parts[name], PUSHED)
    if not may_complete:
        parts.pop("completions", None)
    elif not server.completions and parts.keys() & {"prompts", "resources"}:
        parts.setdefault("completions", b"{}")
    return build_object(parts)


FINGERPRINTS_KEPT: Final = 64
"""Most clients of one kind say the same; what is larger than a limit is refused, and not kept."""


def fingerprint(capabilities: bytes) -> str:
    """Equal for equal capabilities, whatever the order of their keys and the spelling of their numbers and strings.

    Raises:
        RemoteProtocolError: they are no JSON object, too large, nested too deeply, or have a key twice
            (INVALID_PARAMS).
    """
    return _fingerprint(capabilities)


@lru_cache(maxsize=FINGERPRINTS_KEPT)
def _fingerprint(capabilities: bytes) -> str:
    _check_limits(capabilities)
    try:
        value = json.loads(
            capabilities,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_twins,
        )
    except ValueError as error:
        raise RemoteProtocolError(f"got capabilities that are not JSON: {error}", rpc_code=INVALID_PARAMS) from None
    if not isinstance(value, dict):
        raise RemoteProtocolError("got capabilities that are no object, expected one", rpc_code=INVALID_PARAMS)
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def missing(capabilities: bytes, method: str, params: bytes | None) -> bytes | None:
    """What a client lacks to be asked this, as the JSON of `requiredCapabilities`; None: it can be asked.

    Args:
        capabilities: as the client declared them, in either era.
        method: of the question; those that need no capability are never refused.
    """
    if method == "roots/list":
        return None if declared(capabilities, "roots") else b'{"roots":{}}'
    if method == "sampling/createMessage":
        if uses_tools(params):
            return None if declared(capabilities, "sampling", "tools") else b'{"sampling":{"tools":{}}}'
        return None if declared(capabilities, "sampling") else b'{"sampling":{}}'
    if method == "elicitation/create":
        mode = elicitation_mode(params)
        elicitation = _object(capabilities, "elicitation")
        if elicitation is not None and (_has_forms(elicitation) if mode == "form" else declared(elicitation, mode)):
            return None
        return build_object({"elicitation": build_object({mode: b"{}"})})
    return None


def declared(capabilities: bytes, *path: str) -> bool:
    """Whether there is an object at this path of member names."""
    at: bytes | None = capabilities
    for name in path:
        at = _object(at, name)
    return at is not None


def elicitation_mode(params: bytes | None) -> str:
    """`form`, which is also what no mode means, `url`, or what a later revision may bring."""
    return text_of(member_of(params, "mode")) or "form"


def depth_of(data: bytes) -> int:
    """How many levels of arrays and objects this JSON has."""
    if data.count(b"{") + data.count(b"[") <= CAPABILITIES_DEPTH_MAX:
        return data.count(b"{") + data.count(b"[")  # no deeper than that, and that is all anyone asks
    depth = deepest = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _client_parts(capabilities: bytes, limit: Features | None) -> dict[str, bytes]:
    """A client's capabilities, without what a revision has no word for."""
    parts = _kept(capabilities, CLIENT_KEPT)
    if "roots" in parts:  # a modern client has no way to say that its roots changed, nor a modern server to hear it
        parts["roots"] = remove_members(parts["roots"], PUSHED)
    if limit is not None and not limit.sampling_tools and "sampling" in parts:
        parts["sampling"] = remove_members(parts["sampling"], {"tools", "context"})
    elicitation = parts.get("elicitation")
    if elicitation is not None and limit is not None and not limit.url_elicitation:
        if limit.elicitation and _has_forms(elicitation):
            parts["elicitation"] = remove_members(elicitation, {"form", "url"})
        else:
            del parts["elicitation"]
    return parts


def _kept(capabilities: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    """The members that cross, in their own order. What is no object declares nothing."""
    spans = members(capabilities)
    parts = {name: capabilities[span.start : span.stop] for name, span in spans.items() if name in names}
    parts = {name: raw for name, raw in parts.items() if raw.startswith(b"{")}
    if "extensions" in parts:
        parts["extensions"] = remove_members(parts["extensions"], EXTENSIONS_HELD_BACK)
    return parts


def _is_bare(elicitation: bytes) -> bool:
    """Whether the capability names no mode. 2025-11-25 client/elicitation: that "is equivalent" to forms only."""
    return all(member_of(elicitation, mode) in (None, b"null") for mode in ("form", "url"))


def _has_forms(elicitation: bytes) -> bool:
    return _is_bare(elicitation) or declared(elicitation, "form")


def _object(data: bytes | None, name: str) -> bytes | None:
    raw = member_of(data, name)
    return raw if raw is not None and raw.startswith(b"{") else None


# --- Equality by value ----------------------------------------------------------------------------------------------


class _Number(str):
    """The one spelling of a number."""


def _number(text: str) -> _Number:
    match = _NUMBER.fullmatch(text)
    assert match is not None
    sign, whole, fraction, power = match[1], match[2], match[3] or "", match[4] or "0"
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return _Number("0")
    significant = digits.rstrip("0")
    if len(power) > _DIGITS_MAX:
        return _Number(text)
    return _Number(f"{sign}{significant}e{int(power) - len(fraction) + len(digits) - len(significant)}")


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"there is no {text}")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return value


def _canonical(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return value if isinstance(value, _Number) else json.dumps(value)


def _check_limits(capabilities: bytes) -> None:
    if len(capabilities) > CAPABILITIES_SIZE_MAX_BYTES:
        text = f"got capabilities of {len(capabilities)} bytes, expected at most {CAPABILITIES_SIZE_MAX_BYTES}"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
    if depth_of(capabilities) > CAPABILITIES_DEPTH_MAX:
        text = f"got capabilities of more than {CAPABILITIES_DEPTH_MAX} levels, expected no more"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
