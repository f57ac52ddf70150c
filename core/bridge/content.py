"""Replacements for content blocks whose type a client's revision does not have.

Such a block is replaced by a block of a type that every client knows, which carries the original under
`_meta["dev.isthmus/original"]`. A second proxy downstream restores the original where its client can read it. The
marker is believed only if the replacement is exactly what the original is turned into, so that a server cannot show one
thing here and another there.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from ..base.revisions import Features
from ..jsonrpc.append import readable_text
from ..jsonrpc.envelope import text_of
from ..jsonrpc.equality import is_same
from ..jsonrpc.object_editor import ObjectEditor

ORIGINAL: Final = "dev.isthmus/original"
"""The member of a replacement's `_meta` that holds the block it replaces."""

TRACE: Final = b"dev.isthmus"
"""A text that occurs in all JSON that holds one of our markers, even if its slashes were escaped by another writer."""

GATES: Final = {"audio": "audio", "resource_link": "resource_links"}
"""The feature of a revision that has a block's type. A type not listed is either in every revision or unknown: it
passes unchanged."""


def knows_all(client: Features) -> bool:
    """True if the client's revision has every type of content block."""
    return client.audio and client.resource_links


def block_to(block: bytes, client: Features) -> bytes:
    """Returns the JSON of a content block as a client of some revision can read it.

    For a client of 2024-11-05 audio becomes an embedded resource; for a client older than 2025-06-18 a `resource_link`
    becomes a text. A replacement is turned back into its original where the client knows that. Anything else, a block
    that lacks members its type requires included, comes back as the very same object.

    Raises:
        RemoteProtocolError: a member that is read occurs twice.
    """
    if not block.startswith(b"{"):
        return block
    if TRACE in block and (original := restored(block)) is not block:
        return original if _is_known(original, client) else block
    return block if _is_known(block, client) else _stand_in(block) or block


def restored(block: bytes) -> bytes:
    """Returns the original of a replacement; any other block unchanged.

    Raises:
        RemoteProtocolError: a member that is read occurs twice.
    """
    if TRACE not in block or not block.startswith(b"{"):
        return block
    meta = ObjectEditor(block).get("_meta")
    if meta is None or not meta.startswith(b"{"):
        return block
    original = ObjectEditor(meta).get(ORIGINAL)
    if original is None or not original.startswith(b"{"):
        return block
    expected = _stand_in(original)
    return original if expected is not None and is_same(expected, block) else block


def _is_known(block: bytes, client: Features) -> bool:
    gate = GATES.get(text_of(ObjectEditor(block).get("type")) or "")
    return gate is None or bool(getattr(client, gate))


def _stand_in(block: bytes) -> bytes | None:
    """Builds the replacement for a block; None if its type needs none, or if it lacks what its type requires."""
    draft = ObjectEditor(block)
    kind = text_of(draft.get("type"))
    if kind == "audio":
        lead = _embedded(draft)
    elif kind == "resource_link":
        lead = _described(draft)
    else:
        return None
    if lead is None:
        return None
    annotations = draft.get("annotations")  # every revision has annotations
    kept = b"" if annotations is None else b',"annotations":%b' % annotations
    return b'{%b%b,"_meta":{%b:%b}}' % (lead, kept, msgspec.json.encode(ORIGINAL), block)


def _embedded(audio: ObjectEditor) -> bytes | None:
    """Builds an embedded resource that holds the audio data. Its URI has their digest and cannot be read anywhere
    else."""
    data, mime = audio.get("data"), audio.get("mimeType")
    text = readable_text(data)
    if data is None or text is None or mime is None or text_of(mime) is None:
        return None
    uri = msgspec.json.encode(f"isthmus:audio/{hashlib.sha256(text.encode()).hexdigest()}")
    return b'"type":"resource","resource":{"uri":%b,"mimeType":%b,"blob":%b}' % (uri, mime, data)


def _described(link: ObjectEditor) -> bytes | None:
    """Builds a text that names the resource, for people and models. The client can read the resource by its URI."""
    uri, name = readable_text(link.get("uri")), readable_text(link.get("name"))
    if uri is None or name is None:
        return None
    description = readable_text(link.get("description"))
    text = f"{name} <{uri}>" + (f": {description}" if description else "")
    return b'"type":"text","text":%b' % msgspec.json.encode(text)


def tool_error(text: str) -> bytes:
    """Returns the JSON of a tool result that reports a failed call."""
    return b'{"content":[{"type":"text","text":%b}],"isError":true}' % msgspec.json.encode(text)
