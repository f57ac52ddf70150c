"""Content blocks that older clients have no name for.

Such a block gives way to a stand-in of a kind that every client knows, which carries the original under
`_meta["dev.isthmus/original"]`. A second proxy on the way puts it back where its client can read it. The marker is
believed only if the stand-in is what the original becomes: nobody is shown one thing here and another there.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from ..base.revisions import Features
from ..jsonrpc.append import readable_text
from ..jsonrpc.envelope import text_of
from ..jsonrpc.equality import is_same
from ..jsonrpc.object_editor import Draft

ORIGINAL: Final = "dev.isthmus/original"
"""The member of a stand-in's `_meta` that holds what it stands for."""

TRACE: Final = b"dev.isthmus"
"""What stands in every text that holds one of our markers, even if someone has written it anew with escaped slashes."""

GATES: Final = {"audio": "audio", "resource_link": "resource_links"}
"""The feature without which a client has not heard of a block's type. Types that are not here have always been there,
or are nobody's: they pass as they are."""


def knows_all(client: Features) -> bool:
    """Whether there is no type of block that a client of this revision has not heard of."""
    return client.audio and client.resource_links


def block_to(block: bytes, client: Features) -> bytes:
    """The JSON of a content block, as a client of some revision can read it.

    Audio becomes an embedded resource for a client of 2024-11-05, a `resource_link` a text for one older than
    2025-06-18. A stand-in gives way to its original where the client knows that. Anything else comes back as it is,
    the very same object: a block without the members its type requires too.

    Raises:
        RemoteProtocolError: a member that is read stands there twice.
    """
    if not block.startswith(b"{"):
        return block
    if TRACE in block and (original := restored(block)) is not block:
        return original if _is_known(original, client) else block
    return block if _is_known(block, client) else _stand_in(block) or block


def restored(block: bytes) -> bytes:
    """The original of a stand-in; of any other block, the block. Raises as `block_to` does."""
    if TRACE not in block or not block.startswith(b"{"):
        return block
    meta = Draft(block).get("_meta")
    if meta is None or not meta.startswith(b"{"):
        return block
    original = Draft(meta).get(ORIGINAL)
    if original is None or not original.startswith(b"{"):
        return block
    expected = _stand_in(original)
    return original if expected is not None and is_same(expected, block) else block


def _is_known(block: bytes, client: Features) -> bool:
    gate = GATES.get(text_of(Draft(block).get("type")) or "")
    return gate is None or bool(getattr(client, gate))


def _stand_in(block: bytes) -> bytes | None:
    """What every client can read instead; None if the block is of no such type, or lacks what its type requires."""
    draft = Draft(block)
    kind = text_of(draft.get("type"))
    if kind == "audio":
        lead = _embedded(draft)
    elif kind == "resource_link":
        lead = _described(draft)
    else:
        return None
    if lead is None:
        return None
    annotations = draft.get("annotations")  # these every revision has
    kept = b"" if annotations is None else b',"annotations":%b' % annotations
    return b'{%b%b,"_meta":{%b:%b}}' % (lead, kept, msgspec.json.encode(ORIGINAL), block)


def _embedded(audio: Draft) -> bytes | None:
    """An embedded resource that holds the sound. Its URI says which, and is nothing that could be read elsewhere."""
    data, mime = audio.get("data"), audio.get("mimeType")
    text = readable_text(data)
    if data is None or text is None or mime is None or text_of(mime) is None:
        return None
    uri = msgspec.json.encode(f"isthmus:audio/{hashlib.sha256(text.encode()).hexdigest()}")
    return b'"type":"resource","resource":{"uri":%b,"mimeType":%b,"blob":%b}' % (uri, mime, data)


def _described(link: Draft) -> bytes | None:
    """A text that names the resource, for people and models. The client can read it by its URI."""
    uri, name = readable_text(link.get("uri")), readable_text(link.get("name"))
    if uri is None or name is None:
        return None
    description = readable_text(link.get("description"))
    text = f"{name} <{uri}>" + (f": {description}" if description else "")
    return b'"type":"text","text":%b' % msgspec.json.encode(text)


def tool_error(text: str) -> bytes:
    """A tool result that says the call failed."""
    return b'{"content":[{"type":"text","text":%b}],"isError":true}' % msgspec.json.encode(text)
