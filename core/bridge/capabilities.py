"""Capabilities of clients and servers, translated for peers of another revision.

A translation keeps what is in its table, as far as the other revision has it, and leaves everything else out: an
unknown capability may promise messages that cannot be carried across. Translations never add what was not declared, and
translating twice changes nothing.

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
"""Client capabilities that cross. `tasks` (2025-11-25) does not: a server request is answered, not run as a task."""

SERVER_KEPT: Final = (
    "tools",
    "prompts",
    "resources",
    "logging",
    "completions",
    "experimental",
    "extensions",
)
"""Server capabilities that cross. `tasks` shows what the proxy offers (`upstream.task_offers`), not what the server
has."""

EXTENSIONS_HELD_BACK: Final = frozenset({"io.modelcontextprotocol/tasks"})
"""Extensions whose messages mean something else, or nothing, in the other era. Tasks are offered separately."""

PUSHED: Final = frozenset({"listChanged", "subscribe"})
"""Members that promise messages outside of any request."""

CAPABILITIES_SIZE_MAX_BYTES: Final = 64 * 1024
"""Longest capabilities. Real clients send less than one KiB; extensions may bring schemas. At it: error -32602."""

CAPABILITIES_DEPTH_MAX: Final = 32
"""Levels of arrays and objects in capabilities. Real clients have five. At it: error -32602."""

_DIGITS_MAX: Final = 4000
"""The longest exponent that is read as a number. Python refuses longer integers by default; longer ones count as
text."""

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


def client_to_legacy(capabilities: bytes, server: Features) -> bytes:
    """Translates the capabilities of a stateless-era client for its handshake with a server of this revision."""
    return build_object(_client_parts(capabilities, server))


def client_to_modern(capabilities: bytes, client: Features | None = None) -> bytes:
    """Translates the capabilities of a handshake-era client for the `_meta` of requests to a stateless-era server.

    Args:
        client: the client's revision, where known: capabilities that it does not have are left out.
    """
    parts = _client_parts(capabilities, client)
    elicitation = parts.get("elicitation")
    if elicitation is not None and _is_bare(elicitation):
        parts["elicitation"] = set_member(elicitation, "form", b"{}")  # an object without modes has always meant forms
    return build_object(parts)


def server_to_legacy(capabilities: bytes, client: Features) -> bytes:
    """Translates the capabilities of a stateless-era server for the result of a client's `initialize`."""
    parts = _kept(capabilities, SERVER_KEPT)
    if not client.completions:
        parts.pop("completions", None)
    return build_object(parts)


def server_to_modern(capabilities: bytes, *, server: Features, has_push: bool, may_complete: bool = True) -> bytes:
    """Translates the capabilities of a handshake-era server for the result of `server/discover`.

    Args:
        server: the revision that the server speaks.
        has_push: the server can send messages outside of requests: through its pipe, or an event stream that it has
            opened.
        may_complete: the server has not refused `completion/complete`. A server whose revision has the method but no
            capability for it is assumed to support it.
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
"""Fingerprints that are cached: most clients of one kind declare the same. Refused capabilities are not cached."""


def fingerprint(capabilities: bytes) -> str:
    """Returns a digest that is equal for equal capabilities.

    The order of keys and the spelling of numbers and strings do not count.

    Raises:
        RemoteProtocolError: the capabilities are no JSON object, too large, nested too deeply, or have a key twice
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
            object_pairs_hook=_without_duplicates,
        )
    except ValueError as error:
        raise RemoteProtocolError(f"got capabilities that are not JSON: {error}", rpc_code=INVALID_PARAMS) from None
    if not isinstance(value, dict):
        raise RemoteProtocolError("got capabilities that are no object, expected one", rpc_code=INVALID_PARAMS)
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def missing(capabilities: bytes, method: str, params: bytes | None) -> bytes | None:
    """Returns what a client lacks for a server request, as the JSON of `requiredCapabilities`; None if it lacks
    nothing.

    Args:
        capabilities: as the client declared them, in either era.
        method: of the server request. One that needs no capability is never refused.
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
    """True if there is an object at this path of member names."""
    at: bytes | None = capabilities
    for name in path:
        at = _object(at, name)
    return at is not None


def elicitation_mode(params: bytes | None) -> str:
    """Returns the mode of an elicitation: `form`, which is also the default, `url`, or a mode of a later revision."""
    return text_of(member_of(params, "mode")) or "form"


def depth_of(data: bytes) -> int:
    """Returns the number of nested levels of arrays and objects in JSON.

    Up to `CAPABILITIES_DEPTH_MAX` brackets, the result is the number of brackets, an upper bound.
    """
    if data.count(b"{") + data.count(b"[") <= CAPABILITIES_DEPTH_MAX:
        return data.count(b"{") + data.count(b"[")  # an upper bound, and callers only compare with the limit
    depth = deepest = 0
    for byte in _STRING.sub(b"", data):
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _client_parts(capabilities: bytes, limit: Features | None) -> dict[str, bytes]:
    """Returns a client's capabilities without those that a revision does not have."""
    parts = _kept(capabilities, CLIENT_KEPT)
    if "roots" in parts:  # the stateless era has no notification of changed roots
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
    """Returns the members that cross, in their own order. A member that is no object declares nothing."""
    spans = members(capabilities)
    parts = {name: capabilities[span.start : span.stop] for name, span in spans.items() if name in names}
    parts = {name: raw for name, raw in parts.items() if raw.startswith(b"{")}
    if "extensions" in parts:
        parts["extensions"] = remove_members(parts["extensions"], EXTENSIONS_HELD_BACK)
    return parts


def _is_bare(elicitation: bytes) -> bool:
    """True if the capability names no mode. 2025-11-25 client/elicitation: that "is equivalent" to forms only."""
    return all(member_of(elicitation, mode) in (None, b"null") for mode in ("form", "url"))


def _has_forms(elicitation: bytes) -> bool:
    return _is_bare(elicitation) or declared(elicitation, "form")


def _object(data: bytes | None, name: str) -> bytes | None:
    raw = member_of(data, name)
    return raw if raw is not None and raw.startswith(b"{") else None


# --- Equality by value ----------------------------------------------------------------------------------------------


class _Number(str):
    """The canonical spelling of a number."""


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


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
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
