"""`isthmus files`: the stored files of a running isthmus, or of the storage folder of one that does not run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ...core.base.plan import UPLOAD_SCHEME
from ...core.files.store import handles
from ..admin.files import FILTERS
from ..base.errors import ConfigError, Failed
from ..base.output import complain, plain, say, short
from ..base.sizes import format_size
from .file_export import export
from .http_client import PREFIX_MIN_CHARS, Json, aligned, duration, moment, named, shown


class Files(Protocol):
    """The stored files of one isthmus; `name` is its URL or its storage folder.

    Each method raises `Failed` if it cannot do its work.
    """

    @property
    def name(self) -> str: ...

    def listed(self, filters: Mapping[str, str]) -> list[Json]:
        """Returns each file as `GET /files` shows it."""

    def content(self, id: str) -> Iterator[bytes]: ...

    def delete(self, id: str) -> None: ...


def run(options: argparse.Namespace, files: Files, print_result: Callable[[Any, Callable[[Any], str]], None]) -> bool:
    """Carries out the command in `options`. Returns False if a part of it failed, which was printed.

    Args:
        print_result: called with the result, and a function that formats it for people.

    Raises:
        ConfigError: the options contradict each other. Nothing was done.
        Failed: the command cannot be carried out.
    """
    filters = {name: value for name in FILTERS if (value := getattr(options, name)) is not None}
    is_narrowed = bool(filters) or options.older_than is not None or options.larger_than is not None
    is_named = options.verb in ("show", "export") or (options.verb == "delete" and options.id)
    if is_narrowed and is_named:
        raise ConfigError(f"got an ID and what narrows a list with `files {options.verb}`, expected one of the two")
    if options.verb == "delete" and not is_named and not is_narrowed:
        raise ConfigError("got `files delete` without a file, expected its ID, or options that say which are meant")
    if options.verb == "show":
        print_result(find(files, [options.id])[0], description)
        return True
    if options.verb == "export":
        export_one(files, options.id, options.path, may_replace=options.force)
        return True
    chosen = find(files, options.id) if is_named else choose(files, filters, options.older_than, options.larger_than)
    if options.verb == "list":
        print_result(chosen, table)
        return True
    if chosen and not is_named and not options.yes:
        say(table(chosen))
        complain(f"isthmus: nothing was deleted: say --yes to delete {summary(chosen)}")
        return False
    gone = delete_all(files, chosen)
    print_result(gone, lambda gone: f"deleted {summary(gone)}")
    return len(gone) == len(chosen)


def choose(files: Files, filters: Mapping[str, str], older_than_s: float | None, larger_than: int | None) -> list[Json]:
    """Returns the files that the filters select. A file of unknown age counts as new."""
    return [
        file
        for file in files.listed(filters)
        if (older_than_s is None or (_number(file.get("age_s")) or 0.0) > older_than_s)
        and (larger_than is None or (_number(file.get("size_bytes")) or 0.0) > larger_than)
    ]


def find(files: Files, given: Sequence[str]) -> list[Json]:
    """Returns the files with the given ids, beginnings of ids, or URIs, each once.

    Raises:
        Failed: one of them names no file, or more than one.
    """
    listed = files.listed({})
    found = []
    for text in given:
        id = _id_of(text)
        missing = f"{files.name} has no file {id}: it may have expired"
        file = named(listed, id, "files", missing)
        if file not in found:
            found.append(file)
    return found


def _id_of(text: str) -> str:
    for parse in (handles.parse_artifact, lambda uri: handles.parse_upload(uri, UPLOAD_SCHEME)):
        try:
            return parse(text)[1]
        except handles.HandleError:
            continue
    if len(text) < PREFIX_MIN_CHARS:
        right = f"a file's id or URI, or at least the id's first {PREFIX_MIN_CHARS} characters"
        raise Failed(f"got {text!r}, expected {right}")
    return text


def export_one(files: Files, given: str, path: str | None, *, may_replace: bool) -> None:
    (file,) = find(files, [given])
    where = export(file, files.content(file["id"]), path, may_replace=may_replace)
    if path != "-":
        say(f"{plain(where)}: {format_size(int(file['size_bytes']))}")


def delete_all(files: Files, chosen: Sequence[Json]) -> list[Json]:
    """Deletes the files. Returns those that were deleted, and prints why the others were not."""
    gone = []
    for file in chosen:
        try:
            files.delete(file["id"])
        except Failed as failed:
            complain(f"isthmus: {failed}")
        else:
            gone.append(file)

    return gone


def summary(files: Sequence[Json]) -> str:
    size = format_size(sum(int(_number(file.get("size_bytes")) or 0) for file in files))
    return f"{len(files)} file{'' if len(files) == 1 else 's'} ({size})"


def table(files: Sequence[Json]) -> str:
    """Formats the files as a table, with headings."""
    return aligned([["ID", "SERVER", "KIND", "NAME", "SIZE", "AGE", "EXPIRES IN", "USED"], *map(_row, files)])


def _row(file: Json) -> list[str]:
    cells = [
        file["id"],
        file.get("server"),
        file.get("kind"),
        short(str(file.get("filename") or "")),
        _size(file.get("size_bytes")),
        _duration(file.get("age_s")),
        _duration(file.get("expires_in_s")),
        "now" if file.get("pins") else _duration(file.get("idle_s"), " ago"),
    ]
    return list(map(shown, cells))


def description(file: Json) -> str:
    """Formats all that is known of a file, a line for each member."""
    bearer = "all clients of its principal" if file.get("is_bearer") else "its session"
    session = f"{file.get('session')} ({'goes on' if file.get('is_live') else 'over'})"
    lines = [
        ("id", file["id"]),
        ("uri", file.get("uri")),
        ("kind", file.get("kind")),
        ("server", file.get("server")),
        ("tool", file.get("tool")),
        ("name", file.get("filename")),
        ("type", file.get("mime_type")),
        ("size", _size(file.get("size_bytes"))),
        ("sha256", file.get("sha256")),
        ("principal", file.get("principal")),
        ("session", session),
        ("for", bearer),
        ("stored", _moment(file.get("stored_at_unix"), file.get("age_s"), "ago")),
        ("used", _moment(file.get("used_at_unix"), file.get("idle_s"), "ago")),
        ("expires", _moment(file.get("expires_at_unix"), file.get("expires_in_s"), "left")),
        ("in use by", f"{file['pins']} calls" if file.get("pins") else None),
    ]
    return aligned([[name, shown(value)] for name, value in lines])


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) else None


def _duration(seconds: object, suffix: str = "") -> str | None:
    number = _number(seconds)
    return None if number is None else duration(number) + suffix


def _size(size_bytes: object) -> str | None:
    return format_size(size_bytes) if isinstance(size_bytes, int) else None


def _moment(at_unix: object, away_s: object, direction: str) -> str | None:
    return moment(at_unix, away_s, direction) if at_unix else None
