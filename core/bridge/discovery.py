"""The server's introduction: the result of `initialize`, and that of `server/discover`.

Each is built from the other without a further request, so what a client is told agrees with what the server said. A
client that names an unsupported revision is told the supported ones. Only stateless-era revisions are named, because an
older date in a request's `_meta` would mean nothing.

Source: 2025-11-25 basic/lifecycle; 2026-07-28 server/discover and basic/versioning.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, UNSUPPORTED_VERSION, RemoteProtocolError
from ..base.memoize import remembered
from ..base.revisions import MODERN, Features, features_of
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import build_object, elements, members, remove_members, set_member, take
from .capabilities import client_to_legacy, client_to_modern, server_to_legacy, server_to_modern
from .request_meta import PREFIX, RequestMeta, is_implementation

SERVER_INFO: Final = PREFIX + "serverInfo"

OF_RESULTS: Final = frozenset({SERVER_INFO, PREFIX + "subscriptionId"})
"""Keys of a stateless-era result's `_meta` that mean nothing in a handshake."""

ONLY_MODERN: Final = frozenset({"resultType", "supportedVersions", "ttlMs", "cacheScope"})
"""Members of a DiscoverResult that an InitializeResult does not have."""

ONLY_LEGACY: Final = frozenset({"protocolVersion", "serverInfo"})
"""Members of an InitializeResult that a DiscoverResult expresses in another way."""

_UNKNOWN_VERSION: Final = b'"0"'
"""The version given to a server that does not tell its own."""


def to_initialize_result(discovered: bytes, *, client: Features, name: str) -> bytes:
    """Builds the result of a client's `initialize` from a stateless-era server's result of `server/discover`.

    Args:
        client: the revision agreed on with the client.
        name: the name given to a server that does not tell its own.

    Raises:
        RemoteProtocolError: `discovered` is no DiscoverResult (INTERNAL_ERROR).
    """
    served_revisions(discovered)
    spans = members(discovered)
    meta = _object(take(discovered, spans.get("_meta")))
    capabilities = discovered[slice(*spans["capabilities"])]
    parts = {
        "protocolVersion": msgspec.json.encode(client.revision),
        "capabilities": server_to_legacy(capabilities, client),
        "serverInfo": _implementation(member_of(meta, SERVER_INFO), name),
    }
    for key, span in spans.items():
        if key not in ONLY_MODERN and key not in parts:
            parts[key] = discovered[span.start : span.stop]
    if meta is not None:
        parts["_meta"] = remove_members(meta, OF_RESULTS)
        if not members(parts["_meta"]):
            del parts["_meta"]
    return build_object(_with_plain_instructions(parts))


def to_discover_result(initialized: bytes, *, has_push: bool, may_complete: bool = True) -> bytes:
    """Builds the result of `server/discover` from a handshake-era server's result of `initialize`.

    The other parameters are those of `server_to_modern`.

    Raises:
        RemoteProtocolError: `initialized` is no InitializeResult (INTERNAL_ERROR).
    """
    if not initialized.startswith(b"{"):
        raise _unusable("initialize", "no object")
    spans = members(initialized)
    capabilities = _object(take(initialized, spans.get("capabilities")))
    if capabilities is None:
        raise _unusable("initialize", "no capabilities")
    server = features_of(text_of(take(initialized, spans.get("protocolVersion"))))
    parts = {
        "resultType": b'"complete"',
        "supportedVersions": msgspec.json.encode(list(MODERN)),
        "capabilities": server_to_modern(capabilities, server=server, has_push=has_push, may_complete=may_complete),
        "ttlMs": b"0",
        "cacheScope": b'"private"',
    }
    for key, span in spans.items():
        if key not in ONLY_LEGACY and key not in parts:
            parts[key] = initialized[span.start : span.stop]
    meta = _object(parts.pop("_meta", None)) or b"{}"
    info = take(initialized, spans.get("serverInfo"))
    meta = remove_members(meta, OF_RESULTS)
    if info is not None and is_implementation(info):  # a server need not tell its name in 2026-07-28
        meta = set_member(meta, SERVER_INFO, info)
    if members(meta):
        parts["_meta"] = meta
    return build_object(_with_plain_instructions(parts))


def initialize_params(envelope: RequestMeta, *, server: Features, name: str, version: str) -> bytes:
    """Builds the params of the `initialize` that the proxy sends for a stateless-era client.

    Args:
        server: the revision to offer.
        name, version: those of the proxy, for a client that does not tell its own.
    """
    anonymous = msgspec.json.encode({"name": name, "version": version})
    return build_object(
        {
            "protocolVersion": msgspec.json.encode(server.revision),
            "capabilities": client_to_legacy(envelope.capabilities, server),
            "clientInfo": envelope.client_info or anonymous,
        }
    )


@remembered
def introduction(initialize: bytes) -> RequestMeta:
    """Builds the `_meta` of each request to a stateless-era server from the params of a client's `initialize`.

    Raises:
        RemoteProtocolError: the params are no object, or have a member twice.
    """
    spans = members(initialize)
    revision = text_of(take(initialize, spans.get("protocolVersion"))) or ""
    declared = _object(take(initialize, spans.get("capabilities"))) or b"{}"
    info = take(initialize, spans.get("clientInfo"))
    is_named = info is not None and is_implementation(info)
    return RequestMeta(revision, client_to_modern(declared, features_of(revision or None)), info if is_named else None)


def served_revisions(discovered: bytes) -> tuple[str, ...]:
    """Returns the revisions that a DiscoverResult names, in its order.

    Raises:
        RemoteProtocolError: `discovered` is no DiscoverResult (INTERNAL_ERROR). Some servers answer an unknown method
            with any result.
    """
    if not discovered.startswith(b"{"):
        raise _unusable("server/discover", "no object")
    spans = members(discovered)
    revisions = _texts(take(discovered, spans.get("supportedVersions")))
    if revisions is None:
        raise _unusable("server/discover", "no list of supportedVersions")
    if _object(take(discovered, spans.get("capabilities"))) is None:
        raise _unusable("server/discover", "no capabilities")
    return revisions


def refused_revisions(error: bytes) -> tuple[str, ...] | None:
    """Returns the revisions that the JSON of a JSON-RPC error names as supported; None if it is not about revisions."""
    try:
        if not _is_code(member_of(error, "code"), UNSUPPORTED_VERSION):
            return None
        return _texts(member_of(member_of(error, "data"), "supported"))
    except RemoteProtocolError:
        return None


def _implementation(info: bytes | None, name: str) -> bytes:
    """Returns the `serverInfo` of a server, completed where name or version is missing."""
    if info is None or text_of(member_of(info, "name")) is None:
        return build_object({"name": msgspec.json.encode(name), "version": _UNKNOWN_VERSION})
    return info if is_implementation(info) else set_member(info, "version", _UNKNOWN_VERSION)


def _with_plain_instructions(parts: dict[str, bytes]) -> dict[str, bytes]:
    """Removes instructions that are no text, such as `null` from a peer that writes every member its types have."""
    if not parts.get("instructions", b'"').startswith(b'"'):
        del parts["instructions"]
    return parts


def _texts(raw: bytes | None) -> tuple[str, ...] | None:
    if raw is None or not raw.startswith(b"["):
        return None
    texts = [text_of(raw[span.start : span.stop]) for span in elements(raw)]
    return tuple(text for text in texts if text is not None) if None not in texts else None


def _object(raw: bytes | None) -> bytes | None:
    return raw if raw is not None and raw.startswith(b"{") else None


def _is_code(raw: bytes | None, code: int) -> bool:
    return raw is not None and re.fullmatch(rb"%d(?:\.0+)?" % code, raw) is not None


def _unusable(method: str, seen: str) -> RemoteProtocolError:
    text = f"got a result of {method} with {seen}, expected what the server supports"
    return RemoteProtocolError(text, rpc_code=INTERNAL_ERROR)


def server_info_of(discovered: bytes | None) -> bytes | None:
    """Returns the `serverInfo` in a DiscoverResult; None if there is none that can be read."""
    try:
        return member_of(member_of(discovered, "_meta"), SERVER_INFO)
    except RemoteProtocolError:
        return None
