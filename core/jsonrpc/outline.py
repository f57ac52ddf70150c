"""Large JSON objects whose members are located once, when their message is decoded.

Whether a message may have a progress token, a task or an envelope is asked a dozen times while it is handled. For a
small message the answer is a search for the word. In a large one each search takes longer than all else that is done
with it, and a peer decides how long: so the words are sought in its outline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..base.errors import RemoteProtocolError
from .splice import Outlined, Span, members

SHORT_BYTES: Final = 256
"""The longest value that an outline has as it is. Every word that is sought is a member's name or such a value."""


def outlined(data: bytes) -> bytes:
    """Returns `data` as `Outlined` if it is an object whose members can be located, else as it is."""
    if not data.startswith(b"{"):
        return data
    try:
        spans = members(data)
        return Outlined(data, spans, _outline(data, spans))
    except RemoteProtocolError:
        return data


def outline_of(data: bytes) -> bytes:
    """Returns the bytes in which a word is to be sought: the outline of a large object, or all of `data`.

    The fast paths of calls write this out, as a call of a function costs more than the question in a small message. A
    word that is not there is no name of a member, of `data` or of its `_meta`, and no short value of them. The
    converse does not hold: it may be anywhere.
    """
    return data.outline if isinstance(data, Outlined) else data


def _outline(data: bytes, spans: Mapping[str, Span]) -> bytes:
    parts = []
    for name, (start, stop) in spans.items():
        value = data[start:stop] if stop - start <= SHORT_BYTES else b"0"
        if name == "_meta" and value == b"0" and data.startswith(b"{", start):
            meta = data[start:stop]
            value = _outline(meta, members(meta))
        parts.append(msgspec.json.encode(name) + b":" + value)
    return b"{" + b",".join(parts) + b"}"
