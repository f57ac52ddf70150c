"""An editor for one level of JSON: the object is taken apart once, changed, and written once.

A value that is not set keeps its bytes, and so does the spelling of its key. An object that is not changed comes back
as the very object that came in, so that callers can test for "unchanged" with `is`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..base.errors import INVALID_REQUEST, RemoteProtocolError
from .splice import Edit, elements, members, splice


class ObjectEditor:
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
        """Returns the JSON of one member; None if it is absent."""
        return self._values.get(key)

    def items(self) -> list[tuple[str, bytes]]:
        """Returns the current members, in order."""
        return list(self._values.items())

    def set(self, key: str, value: bytes) -> None:
        """Replaces a member in its place, or adds it at the end."""
        if self._values.get(key) == value:
            return
        if key not in self._keys:
            self._keys[key] = msgspec.json.encode(key) + b":"
        self._values[key] = value
        self._is_changed = True

    def remove(self, key: str) -> bytes | None:
        """Removes a member and returns its JSON, or None if there was none."""
        value = self._values.pop(key, None)
        if value is not None:
            del self._keys[key]
            self._is_changed = True
        return value

    def json(self) -> bytes:
        """Returns the JSON of the object with its changes; the original bytes object if there are none."""
        if not self._is_changed:
            return self._data
        pieces = [self._keys[key] + value for key, value in self._values.items()]
        return b"{" + b",".join(pieces) + self._tail


def each(array: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Returns the array with `change` applied to every element. Anything but an array comes back unchanged.

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
