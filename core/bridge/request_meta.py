"""The envelope of a stateless-era request: its sender's revision, name and capabilities in `_meta`.

A stateless-era request carries its revision and its client's capabilities itself; a handshake carries them once for a
session. So a request that crosses to a stateless-era server gets the envelope of its session. A request that crosses to
a handshake-era server loses its own, because some of those servers refuse a request that names a revision.

Source: 2026-07-28 basic, "_meta".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from ..base.errors import INVALID_PARAMS, RemoteProtocolError
from ..base.log_levels import LEVELS
from ..jsonrpc.envelope import text_of
from ..jsonrpc.outline import outline_of
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
"""The keys of an envelope, compared exactly: a key that differs in case or by a space is another party's, and
passes."""

CLIENT_INFO_SIZE_MAX_BYTES: Final = 128 * 1024
"""Longest description of a client, which may hold an icon. It is kept with its session. At it: error -32602."""

EXPECTED: Final = {
    REVISION: "a string",
    CLIENT_INFO: f"an object with a name and a version, of at most {CLIENT_INFO_SIZE_MAX_BYTES} bytes",
    CAPABILITIES: f"an object of at most {CAPABILITIES_SIZE_MAX_BYTES} bytes and {CAPABILITIES_DEPTH_MAX} levels",
    LOG_LEVEL: "one of " + ", ".join(LEVELS),
}
"""The value that each key must have. Revision and capabilities are required."""

OF_A_REQUEST: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""Headers, and members of `_meta`, that describe a request and not its sender (W3C Trace Context, Baggage)."""
RETRY_KEYS: Final = frozenset({"inputResponses", "requestState", "task"})
"""Members of params that continue a request, or run it as a task. A handshake-era server gave no reason to send the
first two, and some of those servers would take them for arguments of the tool. The stateless era does not have the
third."""

_CLAUSE: Final = '2026-07-28 basic, "_meta"'
_MARKER: Final = b"modelcontextprotocol/"


ENVELOPES_KEPT: Final = 128
"""Envelopes that are cached. A client sends the same one with each request."""


class RequestMeta(msgspec.Struct, frozen=True):
    """The sender of a request, its revision, and its capabilities.

    Attributes:
        capabilities: a JSON object, within the limits of `fingerprint`.
        client_info: a JSON object with a name and a version.
        log_level: one of `LEVELS`; None: the client wants no log messages.
    """

    revision: str
    capabilities: bytes
    client_info: bytes | None = None
    log_level: str | None = None


def own_envelope(revision: str, name: str, version: str) -> RequestMeta:
    """Returns the envelope of the proxy's own requests, with the name and version of the proxy. It declares no
    capabilities, so servers may ask for nothing."""
    return RequestMeta(revision, b"{}", msgspec.json.encode({"name": name, "version": version}))


def revision_of(params: bytes | None) -> str | None:
    """Returns the revision that a request names; None if it has no envelope, as in the handshake era.

    The revision is "" if its value is no string.

    Raises:
        RemoteProtocolError: a member on the path to the revision occurs twice.
    """
    if params is None or not may_name_sender(params):
        return None
    return _cached_revision(params) if len(params) <= LOOK_MAX_BYTES else _revision_in(params)


def _revision_in(params: bytes) -> str | None:
    meta = _meta_of(params)
    raw = None if meta is None else take(meta, look(meta).get(REVISION))
    return None if raw is None else text_of(raw) or ""


_cached_revision = lru_cache(maxsize=LOOKS_KEPT)(_revision_in)


def read(params: bytes | None) -> RequestMeta:
    """Returns the envelope of a stateless-era request. `null` for an optional key counts as absent.

    Raises:
        RemoteProtocolError: keys are missing or malformed (INVALID_PARAMS); the message names each of them.
    """
    meta = None if params is None else _meta_of(params)
    if meta is not None and len(meta) <= LOOK_MAX_BYTES and b"progressToken" not in meta:
        return _cached_read(meta)
    return _read(meta)


@lru_cache(maxsize=ENVELOPES_KEPT)
def _cached_read(meta: bytes) -> RequestMeta:
    return _read(meta)


def _read(meta: bytes | None) -> RequestMeta:
    spans = {} if meta is None else look(meta)
    raw = {key: _present(meta, spans.get(key)) for key in KEYS}
    revision, log_level = text_of(raw[REVISION]), text_of(raw[LOG_LEVEL])
    capabilities, client_info = raw[CAPABILITIES], raw[CLIENT_INFO]
    faulty: list[str] = []
    if revision is None:
        faulty.append(REVISION)
    if capabilities is None or not _is_acceptable(capabilities):
        faulty.append(CAPABILITIES)
    if client_info is not None and not (
        len(client_info) <= CLIENT_INFO_SIZE_MAX_BYTES and is_implementation(client_info)
    ):
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
    return RequestMeta(revision, capabilities, client_info, log_level)


def add(params: bytes | None, envelope: RequestMeta) -> bytes:
    """Returns `params` with this envelope in `_meta`, in place of any other. All other bytes stay.

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
    """Returns `params` without an envelope, and without a `_meta` that held nothing else."""
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
    """Returns `params` for a handshake-era server: without an envelope, and without `RETRY_KEYS`."""
    stripped = strip(params)
    if stripped is None or not stripped.startswith(b"{"):
        return stripped
    return remove_members(stripped, RETRY_KEYS)


def is_implementation(raw: bytes) -> bool:
    """True if this JSON has a name and a version, as `clientInfo` and `serverInfo` must."""
    if not raw.startswith(b"{"):
        return False
    spans = members(raw)
    return all(text_of(take(raw, spans.get(key))) is not None for key in ("name", "version"))


def may_name_sender(params: bytes | None) -> bool:
    """True if there may be a key of an envelope in the params.

    Only the escapes `\\u` and `\\/` can hide one: JSON has no others for a letter, a dot or a slash.
    """
    if params is None:
        return False
    words = outline_of(params)
    return _MARKER in words or b"\\u" in words or b"\\/" in words


def _meta_of(params: bytes) -> bytes | None:
    """Returns the JSON object under `_meta`, if there is one."""
    return _cached_meta(params) if len(params) <= LOOK_MAX_BYTES else _meta_in(params)


def _meta_in(params: bytes) -> bytes | None:
    meta = take(params, look(params).get("_meta")) if params.startswith(b"{") else None
    return meta if meta is not None and meta.startswith(b"{") else None


_cached_meta = lru_cache(maxsize=LOOKS_KEPT)(_meta_in)


def _present(meta: bytes | None, span: Span | None) -> bytes | None:
    raw = None if meta is None else take(meta, span)
    return None if raw == b"null" else raw


def _is_acceptable(capabilities: bytes) -> bool:
    return (
        capabilities.startswith(b"{")
        and len(capabilities) <= CAPABILITIES_SIZE_MAX_BYTES
        and depth_of(capabilities) <= CAPABILITIES_DEPTH_MAX
    )
