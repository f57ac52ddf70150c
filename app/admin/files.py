"""What an operator sees of the stored files over HTTP: all of them, their content, and a way to delete one.

A file's name is what a client without sessions proves itself with, so these pages are for those who look after the
gateway and for nobody else (`core.wire.http_pages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ...core.base.effects import Serve
from ...core.base.ids import ChannelId
from ...core.files.store.records import FileStatus
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.routes import Refused
from ..runtime.hub import Hub

KINDS: Final = ("upload", "artifact")
FILTERS: Final = ("server", "kind", "session")


class FilePages:
    """Args:
    servers: the ids of all servers.
    """

    def __init__(self, hub: Hub, servers: Sequence[str]) -> None:
        self._hub = hub
        self._servers = servers

    def show_all(self, query: Mapping[str, str]) -> Refused:
        files = self._hub.files()
        choices = {"server": {*self._servers, *(file.server for file in files)}, "kind": set(KINDS)}
        for name, value in query.items():
            if name not in FILTERS:
                return page_error(400, f"got the filter {name[:80]!r}, expected one of {', '.join(FILTERS)}")
            if name in choices and value not in choices[name]:
                known = ", ".join(sorted(choices[name]))
                return page_error(400, f"got the {name} {value[:80]!r}, expected one of {known}")
        chosen = (file for file in files if all(getattr(file, name) == value for name, value in query.items()))
        return _said({"files": [self._describe(file) for file in chosen]})

    def show(self, id: str) -> Refused:
        file = self._find(id)
        return _unknown(id) if file is None else _said(self._describe(file))

    def content(self, id: str) -> Refused | Serve:
        """The file itself, with the ranges and conditions of any download."""
        file = self._find(id)
        if file is None:
            return _unknown(id)
        return Serve(
            channel=ChannelId(0),  # of none: the engine has no part in it
            blob=file.blob,
            filename=file.filename,
            mime_type=file.mime_type,
            size_bytes=file.size_bytes,
            sha256=file.sha256,
        )

    def delete(self, id: str) -> Refused:
        file = self._find(id)
        if file is None:
            return _unknown(id)
        if file.pins:
            return page_error(409, f"the file {id} is used by a call")
        self._hub.delete_file(id)
        return _said({"id": id, "action": "delete", "status": "success"})

    def _find(self, id: str) -> FileStatus | None:
        return next((file for file in self._hub.files() if file.id == id), None)

    def _describe(self, file: FileStatus) -> dict[str, object]:
        return described(file, self._hub.now_unix())


def described(file: FileStatus, now_unix: float) -> dict[str, object]:
    """A file as these pages tell it; times that are not known are null."""
    told = msgspec.structs.asdict(file)
    del told["blob"]
    return {
        **told,
        "age_s": _since(file.stored_at_unix, now_unix),
        "idle_s": _since(file.used_at_unix, now_unix),
        "expires_in_s": round(max(0.0, file.expires_at_unix - now_unix), 3),
    }


def _since(at_unix: float, now_unix: float) -> float | None:
    return round(max(0.0, now_unix - at_unix), 3) if at_unix else None


def _unknown(id: str) -> Refused:
    return page_error(404, f"got the file {id[:80]!r}, expected one that is stored: it may have expired")


def _said(body: Mapping[str, object]) -> Refused:
    return page_answer(200, msgspec.json.encode(body))
