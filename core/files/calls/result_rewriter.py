"""A result in the words of its client: known files go by what the client calls them, and what was taken in is added."""

from __future__ import annotations

import posixpath
from typing import Final

from ...base.plan import Plan
from ...state.context import Desk
from ..store import handles
from ..store.store import Shelf
from . import path_rewriter
from .artifact import Artifact, attach, raw_block
from .job import Job, Way
from .path_mapping import to_there
from .uris import describe

AREAS: Final = ("ws", "out", "in")
"""The folders of a session in which what changes is its output. Temporary files are nobody's output."""


class Retelling:
    def __init__(self, desk: Desk, shelf: Shelf) -> None:
        self._desk = desk
        self._shelf = shelf

    def attached(self, job: Job, way: Way, result: bytes) -> bytes:
        """The result with what was taken in, and with the content of some of it."""
        session = job.link.session_of(job.exchange)
        shown = [describe(self._desk, session, record) for record in job.artifacts]
        raw: list[bytes] = []
        inline: list[tuple[Artifact, str]] = []
        for one in shown:
            data = job.contents.get(one.artifact_id)
            if data is None:
                continue
            if way.allow_raw_output:
                raw.append(raw_block(one.filename, one.mime_type, data, one.artifact_uri))
                continue
            try:
                inline.append((one, data.decode()))
            except UnicodeDecodeError:
                continue
        links = session.features.resource_links
        return attach(result, shown, resource_links=links, raw=raw, inline=inline)

    def _is_there(self, uri: str, scheme: str) -> bool:
        """Whether what a client would call a file by still means it."""
        if uri.startswith(handles.ARTIFACT_SCHEME):
            return self._shelf.has("artifact", *handles.parse_artifact(uri))
        return self._shelf.has("upload", *handles.parse_upload(uri, scheme))

    def reworded(self, job: Job, result: bytes) -> bytes:
        """The result with URIs where paths of known files stand, and without the paths of the session's folders."""
        shared = job.link.plan.shared
        known: list[path_rewriter.Known] = []
        taken = {record.aid for record in job.artifacts}
        for path, entry in job.ledger.entries():
            if entry.uri and self._is_there(entry.uri, job.link.plan.upload_scheme):
                paths = tuple(dict.fromkeys((path, to_there(path, shared))))
                known.append(path_rewriter.Known(paths, entry.uri, has_name=entry.aid in taken))
        folders = folders_of(self._desk.plan, job)
        base = f"{self._desk.plan.workspaces_path}/{job.link.workspace}"
        seen = tuple(to_there(folder, shared) for folder in (*folders.values(), base))
        hints = (job.link.hints or {}).get(job.tool)
        schema = None if hints is None else hints.output_schema
        cwd = to_there(_cwd(job, folders), shared)
        prefix = self._desk.plan.tmp_prefix
        called = {f"{prefix}{job.link.workspace}": "tmp"} if prefix else path_rewriter.NO_NAMES
        return path_rewriter.reword_result(result, known, cwd=cwd, folders=seen, output_schema=schema, called=called)


def folders_of(plan: Plan, job: Job) -> dict[str, str]:
    """The folders of a call's session in which what changes is its output, by name."""
    base = f"{plan.workspaces_path}/{job.link.workspace}"
    return {name: f"{base}/{name}" for name in AREAS}


def _cwd(job: Job, folders: dict[str, str]) -> str:
    """The server's working directory, as far as it is known; "" where it is not below any folder we know."""
    cwd = job.link.plan.cwd or "{ws}"
    for name, folder in folders.items():
        cwd = cwd.replace("{" + name + "}", folder)
    return posixpath.normpath(cwd) if cwd.startswith("/") else ""
