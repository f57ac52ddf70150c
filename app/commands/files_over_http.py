"""The stored files of a running isthmus, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlencode

from .http_client import Isthmus, Json


class FilesOverHttp:
    """A `commands.files.Files` over the operator pages of a running isthmus."""

    def __init__(self, isthmus: Isthmus) -> None:
        self.name = isthmus.url
        self._isthmus = isthmus

    def listed(self, filters: Mapping[str, str]) -> list[Json]:
        query = f"?{urlencode(filters)}" if filters else ""
        files = self._isthmus.ask("GET", f"/files{query}").get("files")
        if not isinstance(files, list) or not all(
            isinstance(one, dict) and isinstance(one.get("id"), str) for one in files
        ):
            raise self._isthmus.no_isthmus("it lists no files")
        return files

    def content(self, id: str) -> Iterator[bytes]:
        return self._isthmus.stream(f"/files/{quote(id, safe='')}/content")

    def delete(self, id: str) -> None:
        self._isthmus.ask("DELETE", f"/files/{quote(id, safe='')}")
