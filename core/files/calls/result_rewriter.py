"""Rewriting of a result for its client: paths of known files become URIs, and collected files are added."""

from __future__ import annotations

import posixpath
from typing import Final

from ...base.path_mapping import to_there
from ...base.plan import Plan
from ...state.context import Context
from ..store import handles
from ..store.store import FileStore
from . import path_rewriter
from .artifact import Artifact, attach, raw_block
from .job import FileCall, OutputRule
from .uris import describe

AREAS: Final = ("ws", "out", "in")
"""Folders of a session in which changed files count as output. Temporary files never do."""


class ResultRewriter:
    """Rewrites the results of calls that carry files."""

    def __init__(self, context: Context, file_store: FileStore) -> None:
        self._context = context
        self._file_store = file_store

    def attached(self, job: FileCall, rule: OutputRule, result: bytes) -> bytes:
        """Returns the result with the collected files, and with the content of some of them."""
        session = job.link.session_of(job.exchange)
        shown = [describe(self._context, session, record) for record in job.artifacts]
        raw: list[bytes] = []
        inline: list[tuple[Artifact, str]] = []
        for one in shown:
            data = job.contents.get(one.artifact_id)
            if data is None:
                continue
            if rule.allow_raw_output:
                raw.append(raw_block(one.filename, one.mime_type, data, one.artifact_uri))
                continue
            try:
                inline.append((one, data.decode()))
            except UnicodeDecodeError:
                continue
        links = session.features.resource_links
        return attach(result, shown, resource_links=links, raw=raw, inline=inline)

    def _is_there(self, uri: str, scheme: str) -> bool:
        """True if the URI that a client would use still leads to a file."""
        if uri.startswith(handles.ARTIFACT_SCHEME):
            return self._file_store.has("artifact", *handles.parse_artifact(uri))
        return self._file_store.has("upload", *handles.parse_upload(uri, scheme))

    def reworded(self, job: FileCall, result: bytes) -> bytes:
        """Returns the result with URIs in place of the paths of known files, and without paths of the session's
        folders."""
        shared = job.link.plan.shared
        known: list[path_rewriter.KnownPath] = []
        taken = {record.aid for record in job.artifacts}
        for path, entry in job.known_files.entries():
            if entry.uri and self._is_there(entry.uri, job.link.plan.upload_scheme):
                paths = tuple(dict.fromkeys((path, to_there(path, shared))))
                known.append(path_rewriter.KnownPath(paths, entry.uri, has_name=entry.aid in taken))
        is_known = {path for one in known for path in one.paths}
        for uri, path in job.new_files.items():
            paths = tuple(dict.fromkeys((path, to_there(path, shared))))
            if path and is_known.isdisjoint(paths):
                known.append(path_rewriter.KnownPath(paths, uri, has_name=False))
        folders = folders_of(self._context.plan, job)
        base = f"{self._context.plan.workspaces_path}/{job.link.workspace}"
        seen = tuple(to_there(folder, shared) for folder in (*folders.values(), base))
        hints = (job.link.tools.hints or {}).get(job.tool)
        schema = None if hints is None else hints.output_schema
        cwd = cwd_of(self._context.plan, job)
        prefix = self._context.plan.tmp_prefix
        called = {f"{prefix}{job.link.workspace}": "tmp"} if prefix else path_rewriter.NO_NAMES
        return path_rewriter.reword_result(result, known, cwd=cwd, folders=seen, output_schema=schema, called=called)


def folders_of(plan: Plan, job: FileCall) -> dict[str, str]:
    """Returns the folders of a call's session in which changed files count as output, by name."""
    base = f"{plan.workspaces_path}/{job.link.workspace}"
    return {name: f"{base}/{name}" for name in AREAS}


def cwd_of(plan: Plan, job: FileCall) -> str:
    """Returns the working directory of the server, where it sees it; "" if it is not an absolute path."""
    cwd = job.link.plan.cwd or "{ws}"
    for name, folder in folders_of(plan, job).items():
        cwd = cwd.replace("{" + name + "}", folder)
    return to_there(posixpath.normpath(cwd), job.link.plan.shared) if cwd.startswith("/") else ""
