"""One level of JSON, taken apart once, changed, and put together once.

A value that nobody sets keeps its bytes, and so does the spelling of its key. Who changes nothing gets back the very
object that came in, so that "unchanged" can be asked with `is`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..base.errors import INVALID_REQUEST, RemoteProtocolError
from .splice import Edit, elements, members, splice


class Draft:
    """A JSON object whose members can be set and removed.

    Raises:
        RemoteProtocolError: the bytes are no object, or have a key twice.
    """

    def __init__(self, data: bytes) -> None:
        if not data.startswith(b"{"):
            raise RemoteProtocolError("got a value that is no object, expected an object", rpc_code=INVALID_REQUEST)
        self._data = data
        self._values: dict[str, bytes] = {}
        self._keys: dict[str, bytes] = {}
        self._is_changed = False
        at = 0
        for key, span in members(data).items():
            # Between two values lie the comma (or the brace), the key and the colon.
            lead = data[at : span.start]
            self._keys[key] = lead[lead.index(b"," if at else b"{") + 1 :]
            self._values[key] = data[span.start : span.stop]
            at = span.stop
        self._tail = data[at:] if at else b"}"

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __bool__(self) -> bool:
        return bool(self._values)

    def get(self, key: str) -> bytes | None:
        """The JSON of one member; None if it is absent."""
        return self._values.get(key)

    def items(self) -> list[tuple[str, bytes]]:
        """The members as they are now, in order."""
        return list(self._values.items())

    def set(self, key: str, value: bytes) -> None:
        """Replace a member in its place, or add it at the end."""
        if self._values.get(key) == value:
            return
        if key not in self._keys:
            self._keys[key] = msgspec.json.encode(key) + b":"
        self._values[key] = value
        self._is_changed = True

    def remove(self, key: str) -> bytes | None:
        """Take a member out. Gives back its JSON, or None if there was none."""
        value = self._values.pop(key, None)
        if value is not None:
            del self._keys[key]
            self._is_changed = True
        return value

    def json(self) -> bytes:
        if not self._is_changed:
            return self._data
        pieces = [self._keys[key] + value for key, value in self._values.items()]
        return b"{" + b",".join(pieces) + self._tail


def each(array: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The array with every element changed; what is no array comes back as it came.

    Raises:
        RemoteProtocolError: whatever `change` raises.
    """
    if not array.startswith(b"["):
        return array
    edits = []
    for start, stop in elements(array):
        old = array[start:stop]
        new = change(old)
        if new is not old:
            edits.append(Edit(start, stop, new))
    return splice(array, edits) if edits else array
