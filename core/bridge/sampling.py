"""Sampling messages, and the model's answer, for a peer of an older revision.

Before 2025-11-25 a message was one block of content and there were no tools; before 2025-03-26 there was no audio. A
message of several blocks becomes several messages of one role, which models read alike.

Source: 2024-11-05 to 2026-07-28 client/sampling.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.revisions import Features
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import items_of, remove_members, set_member

TOOL_BLOCKS: Final = frozenset({"tool_use", "tool_result"})
"""Types of content that only a client with `sampling.tools` understands."""


def uses_tools(params: bytes | None) -> bool:
    """True if a sampling request offers tools to the model, or has messages about their use."""
    if any(member_of(params, name) not in (None, b"null") for name in ("tools", "toolChoice")):
        return True
    if params is None or (b"tool_" not in params and b"\\u" not in params):
        return False
    blocks = (block for message in items_of(member_of(params, "messages")) for block in blocks_of(message))
    return any(text_of(member_of(block, "type")) in TOOL_BLOCKS for block in blocks)


def blocks_of(message: bytes) -> list[bytes]:
    """Returns the content blocks of one message: one or, since 2025-11-25, several."""
    content = member_of(message, "content")
    if content is None:
        return []
    return items_of(content) if content.startswith(b"[") else [content]


def older_messages(params: bytes, client: Features) -> bytes:
    """Returns the params with messages of one block each, only types of content that the client knows, and no tools."""
    params = remove_members(params, {"tools", "toolChoice"})
    messages = member_of(params, "messages")
    if messages is None or not messages.startswith(b"["):
        return params
    older: list[bytes] = []
    for message in items_of(messages):
        content = member_of(message, "content")
        blocks = [_older_block(block, client) for block in blocks_of(message)]
        if content is None or [content] == blocks:
            older.append(message)
        else:
            older += [set_member(message, "content", block) for block in blocks or [_text_block("")]]
    return params if older == items_of(messages) else set_member(params, "messages", b"[" + b",".join(older) + b"]")


def older_answer(result: bytes, server: Features) -> bytes:
    """Returns the model's answer as one block of a type that the server knows."""
    return set_member(result, "content", _merged([_older_block(block, server) for block in blocks_of(result)]))


def _older_block(block: bytes, peer: Features) -> bytes:
    """Returns a block of content, or a text in its place if the peer does not know its type."""
    kind = text_of(member_of(block, "type"))
    if kind == "audio" and not peer.audio:
        return _text_block(f"[audio, {text_of(member_of(block, 'mimeType')) or 'of unknown type'}]")
    return _text_block(f"[{kind}]") if kind in TOOL_BLOCKS else block


def _merged(blocks: list[bytes]) -> bytes:
    """Merges several blocks into one: their texts, with a note for each other block; or the first block if there is no
    text."""
    if len(blocks) < 2:
        return blocks[0] if blocks else _text_block("")
    kinds = [text_of(member_of(block, "type")) for block in blocks]
    if "text" not in kinds:
        return blocks[0]
    lines = [
        text_of(member_of(block, "text")) or "" if kind == "text" else f"[{kind}]"
        for block, kind in zip(blocks, kinds, strict=True)
    ]
    return _text_block("\n".join(lines))


def _text_block(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})
