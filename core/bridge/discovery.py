"""How a server introduces itself: the answer to `initialize`, and that to `server/discover`.

Either is made from the other without asking anybody, so what a client is told and what the server said agree. A client
that names a revision nobody serves learns which ones are; only modern ones are named, because an older date in a
request's `_meta` would mean nothing.

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
from .request_meta import PREFIX, Envelope, is_implementation

SERVER_INFO: Final = PREFIX + "serverInfo"

OF_RESULTS: Final = frozenset({SERVER_INFO, PREFIX + "subscriptionId"})
"""Keys a modern result may have in `_meta` that mean nothing in a handshake."""

ONLY_MODERN: Final = frozenset({"resultType", "supportedVersions", "ttlMs", "cacheScope"})
"""Members of a discovery that an initialization has no word for."""

ONLY_LEGACY: Final = frozenset({"protocolVersion", "serverInfo"})
"""Members of an initialization that a discovery says otherwise."""

_UNKNOWN_VERSION: Final = b'"0"'
"""What stands for the version of a server that does not tell."""


def to_initialize_result(discovered: bytes, *, client: Features, name: str) -> bytes:
    """The answer to a client's `initialize`, from what its modern server answered to `server/discover`.

    Args:
        client: the revision agreed on with the client.
        name: what an anonymous server is called.

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
    """The answer to `server/discover`, from what a handshake server answered to `initialize`.

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
    if info is not None and is_implementation(info):  # nobody need tell a name
        meta = set_member(meta, SERVER_INFO, info)
    if members(meta):
        parts["_meta"] = meta
    return build_object(_with_plain_instructions(parts))


def initialize_params(envelope: Envelope, *, server: Features, version: str) -> bytes:
    """The params of the `initialize` that stands for a modern client.

    Args:
        server: the revision to offer.
        version: of this package, for a client that does not tell its name.
    """
    anonymous = msgspec.json.encode({"name": "isthmus", "version": version})
    return build_object(
        {
            "protocolVersion": msgspec.json.encode(server.revision),
            "capabilities": client_to_legacy(envelope.capabilities, server),
            "clientInfo": envelope.client_info or anonymous,
        }
    )


@remembered
def introduction(initialize: bytes) -> Envelope:
    """What a client said of itself in the params of `initialize`, as it would say it with each request.

    Raises:
        RemoteProtocolError: the params are no object, or have a member twice.
    """
    spans = members(initialize)
    revision = text_of(take(initialize, spans.get("protocolVersion"))) or ""
    declared = _object(take(initialize, spans.get("capabilities"))) or b"{}"
    info = take(initialize, spans.get("clientInfo"))
    is_named = info is not None and is_implementation(info)
    return Envelope(revision, client_to_modern(declared, features_of(revision or None)), info if is_named else None)


def served_revisions(discovered: bytes) -> tuple[str, ...]:
    """The revisions a DiscoverResult names, in its order.

    Raises:
        RemoteProtocolError: it is none (INTERNAL_ERROR): some servers answer anything to a method they do not know.
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
    """The revisions that the JSON of a JSON-RPC error names as supported; None: it says nothing of revisions."""
    try:
        if not _is_code(member_of(error, "code"), UNSUPPORTED_VERSION):
            return None
        return _texts(member_of(member_of(error, "data"), "supported"))
    except RemoteProtocolError:
        return None


def _implementation(info: bytes | None, name: str) -> bytes:
    """What a server tells of itself, completed where it does not say enough."""
    if info is None or text_of(member_of(info, "name")) is None:
        return build_object({"name": msgspec.json.encode(name), "version": _UNKNOWN_VERSION})
    return info if is_implementation(info) else set_member(info, "version", _UNKNOWN_VERSION)


def _with_plain_instructions(parts: dict[str, bytes]) -> dict[str, bytes]:
    """Without instructions that are no text: `null`, from a peer that writes every member its types have."""
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
    """The name of the server in a `DiscoverResult`; None where it tells none that can be read."""
    try:
        return member_of(member_of(discovered, "_meta"), SERVER_INFO)
    except RemoteProtocolError:
        return None
