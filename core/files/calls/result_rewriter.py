"""Rewriting of a result for its client: paths of known files become URIs, and collected files are added."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from ...base.path_mapping import to_there
from ...base.plan import Links, Plan
from ...state.context import Context
from ...state.link import Link
from ..store import handles
from ..store.store import FileStore
from . import path_rewriter
from .artifact import Artifact, attach, raw_block
from .job import FileCall, OutputRule
from .session_paths import ROOT, SessionPaths
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
        made = {entry.aid: entry for _, entry in job.known_files.entries() if entry.aid}
        shown = [describe(self._context, session, record, made.get(record.aid)) for record in job.artifacts]
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
        return attach(
            result,
            shown,
            resource_links=session.features.resource_links and rule.links is not Links.TEXT,
            has_texts=rule.links is not Links.RESOURCE_LINK,
            may_extend=rule.rewrite_text,
            raw=raw,
            inline=inline,
        )

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
        outside: list[str] = []
        taken = {record.aid for record in job.artifacts}
        base = f"{self._context.plan.workspaces_path}/{job.link.workspace}/"
        for path, entry in job.known_files.entries():
            if entry.uri and self._is_there(entry.uri, job.link.plan.upload_scheme):
                paths = tuple(dict.fromkeys((path, to_there(path, shared))))
                known.append(path_rewriter.KnownPath(paths, entry.uri, has_name=entry.aid in taken))
                if not path.startswith(base):
                    outside += paths
        is_known = {path for one in known for path in one.paths}
        for uri, path in job.new_files.items():
            paths = tuple(dict.fromkeys((path, to_there(path, shared))))
            if path and is_known.isdisjoint(paths):
                known.append(path_rewriter.KnownPath(paths, uri, has_name=False))
        hints = (job.link.tools.hints or {}).get(job.tool)
        schema = None if hints is None else hints.output_schema
        places = self._places(job.link)
        result = path_rewriter.reword_result(
            result, known, cwd=places.cwd, folders=places.folders, output_schema=schema, called=places.called
        )
        if not any(mark.encode() in result for mark in (job.link.workspace, *outside)):
            return result
        return self._session_paths(job.link, known, outside).removed(result, has_schema=schema is not None)

    def without_paths(self, link: Link, message: bytes) -> bytes:
        """Returns the JSON of a message of a server with `files: auto` without paths of the session's folders."""
        auto = link.plan.auto_files
        if auto is None or not auto.rewrite_text or link.workspace.encode() not in message:
            return message
        return self._session_paths(link).removed(message)

    def with_path(self, link: Link, uri: str) -> str:
        """Returns the URI that the server knows in place of one that a result had without its path."""
        auto = link.plan.auto_files
        if not ((auto is not None and auto.rewrite_text) or any(each.rewrite_text for each in link.plan.producers)):
            return uri
        for path, shown in self._places(link).shown.items():
            if uri.startswith(f"file://{shown}/"):
                return f"file://{quote(path)}{uri.removeprefix('file://' + shown)}"
        return uri

    def _session_paths(
        self, link: Link, known: Sequence[path_rewriter.KnownPath] = (), outside: Sequence[str] = ()
    ) -> SessionPaths:
        places = self._places(link)
        reworder = path_rewriter.Reworder(known, places.cwd, places.folders, places.called)
        return SessionPaths(places.shown, reworder, tuple(outside))

    def _places(self, link: Link) -> _Places:
        shared, prefix = link.plan.shared, self._context.plan.tmp_prefix
        base = f"{self._context.plan.workspaces_path}/{link.workspace}"
        folders = {name: f"{base}/{name}" for name in AREAS}
        tmp = f"{prefix}{link.workspace}"
        return _Places(
            cwd=cwd_of(self._context.plan, link),
            folders=tuple(to_there(folder, shared) for folder in (*folders.values(), base)),
            called={tmp: "tmp"} if prefix else path_rewriter.NO_NAMES,
            shown={**({tmp: f"{ROOT}/tmp"} if prefix else {}), to_there(base, shared): ROOT, base: ROOT},
        )


class _Places(NamedTuple):
    """The folders of a session.

    Attributes:
        cwd: the working directory of the server as it sees it; "" if that is not known.
        folders: the session's own folders as it sees them.
        called: others, and what paths below them begin with in texts.
        shown: what stands for each elsewhere, the most special first.
    """

    cwd: str
    folders: tuple[str, ...]
    called: Mapping[str, str]
    shown: Mapping[str, str]


def folders_of(plan: Plan, job: FileCall) -> dict[str, str]:
    """Returns the folders of a call's session in which changed files count as output, by name."""
    base = f"{plan.workspaces_path}/{job.link.workspace}"
    return {name: f"{base}/{name}" for name in AREAS}


def cwd_of(plan: Plan, link: Link) -> str:
    """Returns the working directory of the server, where it sees it; "" if it is not an absolute path."""
    cwd = link.plan.cwd or "{ws}"
    for name in AREAS:
        folder = f"{plan.workspaces_path}/{link.workspace}/{name}"
        cwd = cwd.replace("{" + name + "}", folder)
    return to_there(posixpath.normpath(cwd), link.plan.shared) if cwd.startswith("/") else ""
