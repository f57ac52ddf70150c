"""Operator pages of the stored files: list all, show one, download its content, delete it.

The id of a file is a bearer secret: a client without sessions gets the file by naming it. So only operators may see
these pages; `core.wire.http.admin_routes` decides who is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ...core.base.ids import ChannelId
from ...core.base.storage import Serve
from ...core.state.records import FileStatus
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.routes import Refused
from ..runtime.hub import Hub

KINDS: Final = ("upload", "artifact")
FILTERS: Final = ("server", "kind", "session")


class FilePages:
    """The pages under `/files`.

    Args:
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
        return _answer({"files": [self._describe(file) for file in chosen]})

    def show(self, id: str) -> Refused:
        file = self._find(id)
        return _unknown(id) if file is None else _answer(self._describe(file))

    def content(self, id: str) -> Refused | Serve:
        """Returns the file itself, served with the ranges and conditions of any download."""
        file = self._find(id)
        if file is None:
            return _unknown(id)
        return Serve(
            channel=ChannelId(0),  # no channel: the engine takes no part in this download
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
        return _answer({"id": id, "action": "delete", "status": "success"})

    def _find(self, id: str) -> FileStatus | None:
        return next((file for file in self._hub.files() if file.id == id), None)

    def _describe(self, file: FileStatus) -> dict[str, object]:
        return describe(file, self._hub.now_unix())


def describe(file: FileStatus, now_unix: float) -> dict[str, object]:
    """Returns the JSON object that these pages show of a file; unknown times are null."""
    shown = msgspec.structs.asdict(file)
    del shown["blob"]
    return {
        **shown,
        "age_s": _since(file.stored_at_unix, now_unix),
        "idle_s": _since(file.used_at_unix, now_unix),
        "expires_in_s": round(max(0.0, file.expires_at_unix - now_unix), 3),
    }


def _since(at_unix: float, now_unix: float) -> float | None:
    return round(max(0.0, now_unix - at_unix), 3) if at_unix else None


def _unknown(id: str) -> Refused:
    return page_error(404, f"got the file {id[:80]!r}, expected one that is stored: it may have expired")


def _answer(body: Mapping[str, object]) -> Refused:
    return page_answer(200, msgspec.json.encode(body))
