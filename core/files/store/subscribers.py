"""The sessions that are to be told when an artifact is gone."""

from __future__ import annotations


class Subscribers:
    """Sessions with `resources/subscribe`, and the URIs that each has subscribed to. The caller bounds their number."""

    def __init__(self) -> None:
        self._uris: dict[str, set[str]] = {}  # by session
        self._sids: dict[str, set[str]] = {}  # by URI

    def count(self, sid: str) -> int:
        """Returns how many URIs a session has subscribed to."""
        return len(self._uris.get(sid, ()))

    def has(self, sid: str, uri: str) -> bool:
        return uri in self._uris.get(sid, ())

    def of(self, uri: str) -> list[str]:
        """Returns the sessions that have subscribed to a URI, in order."""
        return sorted(self._sids.get(uri, ()))

    def add(self, sid: str, uri: str) -> None:
        self._uris.setdefault(sid, set()).add(uri)
        self._sids.setdefault(uri, set()).add(sid)

    def discard(self, sid: str, uri: str) -> None:
        """Removes a subscription, if there is one."""
        for table, key, value in ((self._uris, sid, uri), (self._sids, uri, sid)):
            values = table.get(key, set())
            values.discard(value)
            if not values:
                table.pop(key, None)

    def close_session(self, sid: str) -> None:
        for uri in list(self._uris.get(sid, ())):
            self.discard(sid, uri)
