"""What a modern request says of its sender in `_meta`: read, put in, and taken out.

A modern request carries its revision and its client's capabilities itself; a handshake says them once. So what crosses
to a modern server gets the envelope of its session, and what crosses to a handshake server loses its own, because some
of those servers refuse a request that names a revision.

Source: 2026-07-28 basic, "_meta".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..base.log_levels import LEVELS
from ..jsonrpc.envelope import text_of
from ..jsonrpc.splice import (
    LOOK_MAX_BYTES,
    LOOKS_KEPT,
    Span,
    build_object,
    insert_members,
    look,
    members,
    remove_members,
    set_member,
    take,
)
from .capabilities import CAPABILITIES_DEPTH_MAX, CAPABILITIES_SIZE_MAX_BYTES, depth_of

PREFIX: Final = "io.modelcontextprotocol/"

REVISION: Final = PREFIX + "protocolVersion"
CLIENT_INFO: Final = PREFIX + "clientInfo"
CAPABILITIES: Final = PREFIX + "clientCapabilities"
LOG_LEVEL: Final = PREFIX + "logLevel"

KEYS: Final = frozenset({REVISION, CLIENT_INFO, CAPABILITIES, LOG_LEVEL})
"""Compared exactly: a key that differs in case or by a space is somebody else's, and passes."""

EXPECTED: Final = {
    REVISION: "a string",
    CLIENT_INFO: "an object with a name and a version",
    CAPABILITIES: f"an object of at most {CAPABILITIES_SIZE_MAX_BYTES} bytes and {CAPABILITIES_DEPTH_MAX} levels",
    LOG_LEVEL: "one of " + ", ".join(LEVELS),
}
"""What each key holds. Revision and capabilities must be there."""

RETRY_KEYS: Final = frozenset({"inputResponses", "requestState", "task"})
"""Members of params that continue a request, or make it a task. A handshake server gave no reason to send the first
two, and lifts them out of what a tool is called with; the third is not a modern word."""

_CLAUSE: Final = '2026-07-28 basic, "_meta"'
_MARKER: Final = b"modelcontextprotocol/"


ENVELOPES_KEPT: Final = 128
"""A client says the same of itself with each request: so many of such texts are remembered."""


class Envelope(msgspec.Struct, frozen=True):
    """Who sent a request, in which revision, and what it can do.

    Attributes:
        capabilities: a JSON object, within the limits of `fingerprint`.
        client_info: a JSON object with a name and a version.
        log_level: one of `LEVELS`; None: the client wants no log messages.
    """

    revision: str
    capabilities: bytes
    client_info: bytes | None = None
    log_level: str | None = None


def own_envelope(revision: str, version: str) -> Envelope:
    """What the proxy says of itself with requests of its own: it can be asked nothing."""
    return Envelope(revision, b"{}", msgspec.json.encode({"name": "isthmus", "version": version}))


def revision_of(params: bytes | None) -> str | None:
    """The revision a request names, or "" where that is no string; None: it has no envelope, and is a handshake's.

    Raises:
        RemoteProtocolError: a member on the way to it occurs twice.
    """
    if params is None or not may_name_sender(params):
        return None
    return _revision_again(params) if len(params) <= LOOK_MAX_BYTES else _revision_in(params)


def _revision_in(params: bytes) -> str | None:
    meta = _meta_of(params)
    raw = None if meta is None else take(meta, look(meta).get(REVISION))
    return None if raw is None else text_of(raw) or ""


_revision_again = lru_cache(maxsize=LOOKS_KEPT)(_revision_in)


def read(params: bytes | None) -> Envelope:
    """The envelope of a modern request. `null` for a key that need not be there counts as absence.

    Raises:
        RemoteProtocolError: keys are missing or malformed (INVALID_PARAMS); the message names each of them.
    """
    meta = None if params is None else _meta_of(params)
    if meta is not None and len(meta) <= LOOK_MAX_BYTES and b"progressToken" not in meta:
        return _read_again(meta)
    return _read(meta)


@lru_cache(maxsize=ENVELOPES_KEPT)
def _read_again(meta: bytes) -> Envelope:
    return _read(meta)


def _read(meta: bytes | None) -> Envelope:
    spans = {} if meta is None else look(meta)
    raw = {key: _present(meta, spans.get(key)) for key in KEYS}
    revision, log_level = text_of(raw[REVISION]), text_of(raw[LOG_LEVEL])
    capabilities, client_info = raw[CAPABILITIES], raw[CLIENT_INFO]
    faulty: list[str] = []
    if revision is None:
        faulty.append(REVISION)
    if capabilities is None or not _is_acceptable(capabilities):
        faulty.append(CAPABILITIES)
    if client_info is not None and not is_implementation(client_info):
        faulty.append(CLIENT_INFO)
    if raw[LOG_LEVEL] is not None and log_level not in LEVELS:
        faulty.append(LOG_LEVEL)
    if faulty:
        seen = " and ".join(f"{'no' if raw[key] is None else 'a malformed'} {key}" for key in faulty)
        wanted = " and ".join(EXPECTED[key] for key in faulty)
        text = f"got {seen} in _meta, expected {wanted}"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS, clause=_CLAUSE)
    assert revision is not None
    assert capabilities is not None
    return Envelope(revision, capabilities, client_info, log_level)


def add(params: bytes | None, envelope: Envelope) -> bytes:
    """`params` with this envelope in `_meta`, in place of any other; all else stays byte for byte.

    Raises:
        RemoteProtocolError: `params` is no object (INVALID_PARAMS).
    """
    parts = {REVISION: msgspec.json.encode(envelope.revision)}
    if envelope.client_info is not None:
        parts[CLIENT_INFO] = envelope.client_info
    parts[CAPABILITIES] = envelope.capabilities
    if envelope.log_level is not None:
        parts[LOG_LEVEL] = msgspec.json.encode(envelope.log_level)
    if params is None:
        return build_object({"_meta": build_object(parts)})
    if not params.startswith(b"{"):
        raise RemoteProtocolError("got params in an array, expected an object", rpc_code=INVALID_PARAMS)
    meta = take(params, look(params).get("_meta"))
    if meta is None:
        return insert_members(params, {"_meta": build_object(parts)})
    kept = remove_members(meta, KEYS) if meta.startswith(b"{") else b"{}"
    return set_member(params, "_meta", insert_members(kept, parts))


def strip(params: bytes | None) -> bytes | None:
    """`params` without an envelope, and without a `_meta` that held nothing else."""
    if params is None or not may_name_sender(params):
        return params
    meta = _meta_of(params)
    if meta is None:
        return params
    kept = remove_members(meta, KEYS)
    if kept == meta:
        return params
    return set_member(params, "_meta", kept) if members(kept) else remove_members(params, {"_meta"})


def strip_retry(params: bytes | None) -> bytes | None:
    """`params` as a handshake server may see them: without an envelope, and without `RETRY_KEYS`."""
    stripped = strip(params)
    if stripped is None or not stripped.startswith(b"{"):
        return stripped
    return remove_members(stripped, RETRY_KEYS)


def is_implementation(raw: bytes) -> bool:
    """Whether this JSON tells a name and a version, as `clientInfo` and `serverInfo` must."""
    if not raw.startswith(b"{"):
        return False
    spans = members(raw)
    return all(text_of(take(raw, spans.get(key))) is not None for key in ("name", "version"))


def may_name_sender(params: bytes | None) -> bool:
    """Whether there may be a key of an envelope in it. JSON has no other escapes for a letter, a dot or a slash."""
    return params is not None and (_MARKER in params or b"\\u" in params or b"\\/" in params)


def _meta_of(params: bytes) -> bytes | None:
    """The JSON object under `_meta`, if there is one."""
    return _meta_again(params) if len(params) <= LOOK_MAX_BYTES else _meta_in(params)


def _meta_in(params: bytes) -> bytes | None:
    meta = take(params, look(params).get("_meta")) if params.startswith(b"{") else None
    return meta if meta is not None and meta.startswith(b"{") else None


_meta_again = lru_cache(maxsize=LOOKS_KEPT)(_meta_in)


def _present(meta: bytes | None, span: Span | None) -> bytes | None:
    raw = None if meta is None else take(meta, span)
    return None if raw == b"null" else raw


def _is_acceptable(capabilities: bytes) -> bool:
    return (
        capabilities.startswith(b"{")
        and len(capabilities) <= CAPABILITIES_SIZE_MAX_BYTES
        and depth_of(capabilities) <= CAPABILITIES_DEPTH_MAX
    )
