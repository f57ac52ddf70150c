"""What tools wrote becomes artifacts: the files that a result names are looked at, what is new of them is taken in, and
the result tells of it.

A good result is never lost over a file that could not be taken in.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from ...base.effects import (
    Collect,
    Collected,
    CollectedFile,
    Discard,
    Fetch,
    Fetched,
    FileSource,
    Forget,
    InlineSource,
    Remove,
    Save,
    Saved,
    SeenFile,
    Source,
    StorageAnswer,
    Survey,
    Surveyed,
)
from ...base.plan import LocatorMode
from ...bridge.content import tool_error
from ...jsonrpc import envelope as rpc
from ...state.context import Desk
from ...state.storage_orders import Waiting, reason_of
from ..store.filenames import is_text, mime_type_of, safe_filename, with_suffix
from ..store.store import Hold, Shelf, StoredArtifact
from .artifact import attach_error
from .claims import Claims, claims_of
from .job import Job, Way
from .path_mapping import to_here
from .result_rewriter import AREAS, Retelling, folders_of
from .uris import uri_of
from .workspace_files import is_finished

CLOCK_SLACK_S: Final = 2.0
"""How much older than the call a file may seem that the call wrote: file systems count in up to two seconds."""
_UNNAMED: Final = frozenset({LocatorMode.NONE, LocatorMode.ARGUMENT, LocatorMode.CHANGED})
"""Where these find nothing, nothing is missing: the tool has written no file this time."""


class Reader(Protocol):
    """Reads resources of the server itself."""

    def read(self, job: Job, uris: Sequence[str], then: Callable[[list[InlineSource], list[str]], None]) -> None:
        """Call `then` with what could be read, and with what is wrong with the others."""


class _Outcome:
    """One result, on its way to be answered.

    Attributes:
        files: what is to be taken from the disk.
        awaited: under which name an earlier call awaits some of these, by their real paths.
        inline: what came in messages.
        names_inputs: it tells of files that the call was given.
        shown_bytes: how much content of its files is put into it.
    """

    __slots__ = ("awaited", "claims", "files", "inline", "job", "names_inputs", "result", "shown_bytes", "way")

    def __init__(self, job: Job, way: Way, result: bytes, claims: Claims) -> None:
        self.job = job
        self.way = way
        self.result = result
        self.claims = claims
        self.inline: list[InlineSource] = list(claims.inline)
        self.files: list[SeenFile] = []
        self.awaited: dict[str, str] = {}
        self.names_inputs = False
        self.shown_bytes = 0


class Outputs:
    """Args:
    finish: called with a call and its result, once all that the result names is dealt with.
    """

    def __init__(
        self,
        desk: Desk,
        shelf: Shelf,
        waiting: Waiting,
        retelling: Retelling,
        finish: Callable[[Job, bytes], None],
    ) -> None:
        self.reader: Reader
        self._retelling = retelling
        self._desk = desk
        self._shelf = shelf
        self._waiting = waiting
        self._finish = finish

    def take(self, job: Job, way: Way, result: bytes) -> None:
        """Take in what a result tells of, and answer the call."""
        arguments = rpc.member_of(job.exchange.params, "arguments")
        limit = self._desk.limits.artifacts_per_call_max
        claims = claims_of(result, way.rules, arguments=arguments, allocated=job.allocated, limit=limit)
        outcome = _Outcome(job, way, result, claims)
        if claims.links:

            def read(contents: list[InlineSource], problems: list[str]) -> None:
                outcome.inline += contents
                job.problems += problems
                self._look(outcome)

            self.reader.read(job, claims.links, read)
        else:
            self._look(outcome)

    # --- What is there ----------------------------------------------------------------------------------------------

    def _look(self, outcome: _Outcome) -> None:
        job, claims, limits = outcome.job, outcome.claims, self._desk.limits
        awaited = [(path,) for path in job.ledger.awaited()] if self._may_take(outcome) else []
        shared = job.link.plan.shared
        named = [tuple(dict.fromkeys(to_here(path, shared) for path in paths)) for paths in claims.named]
        if (
            named and job.allocated is not None
        ):  # some tools choose the suffix themselves: what else is in its folder is meant
            named[0] = (job.allocated, posixpath.dirname(job.allocated))
        areas = AREAS if claims.wants_areas else ()
        if not named and not awaited and not areas:
            self._collect(outcome)
            return

        def seen(answer: StorageAnswer) -> None:
            if isinstance(answer, Surveyed):
                self._judge(outcome, named, awaited, answer)
            else:
                job.problems.append(reason_of(answer))
            self._collect(outcome)

        self._waiting.order(
            lambda ticket: Survey(
                ticket=ticket,
                server=job.link.plan.id,
                workspace=job.link.workspace,
                named=(*named, *awaited),
                areas=areas,
                entries_max=limits.files_known_max,
                folder_max=limits.artifacts_per_call_max,
            ),
            seen,
        )

    def _may_take(self, outcome: _Outcome) -> bool:
        return rpc.member_of(outcome.result, "isError") != b"true"

    def _judge(
        self, outcome: _Outcome, named: Sequence[tuple[str, ...]], awaited: Sequence[tuple[str]], answer: Surveyed
    ) -> None:
        """Decide what is taken: what was named first, in the order it was named, then what else has changed."""
        job, ledger = outcome.job, outcome.job.ledger
        chosen: dict[str, SeenFile] = {}
        missing: list[tuple[str, str]] = []
        for index, sighting in enumerate(answer.named[: len(named)]):
            is_guess = outcome.claims.is_guess[index]
            if sighting.problem:
                if not is_guess:
                    missing.append((named[index][0], sighting.problem))
                continue
            if sighting.is_cut:
                job.problems.append(f"{posixpath.basename(named[index][0])} has more files than are taken at once")
            for file in sighting.files:
                self._choose(outcome, file, chosen, if_changed=outcome.claims.if_changed[index])
        for path, problem in missing:
            if path != job.allocated or not chosen:  # it stands in for a file that is named elsewhere
                self._await(job, path, problem)
        for (path,), sighting in zip(awaited, answer.named[len(named) :], strict=True):
            for file in sighting.files:
                if not is_finished(file):
                    continue
                if ledger.knows(file):
                    ledger.settle(path)
                    self._choose(outcome, file, chosen, if_changed=True)
                else:  # it is awaited until it is taken in, and is no older than the call that named it
                    chosen.setdefault(file.path, file)
                    outcome.awaited[file.path] = path
        if outcome.claims.wants_areas:
            folders = folders_of(self._desk.plan, job)
            for file in ledger.changed(answer.listed, [folders[name] for name in AREAS]):
                self._choose(outcome, file, chosen, if_changed=True)
            if answer.is_cut:
                job.problems.append("there are more files in the session's folders than are watched")
        limit = self._desk.limits.artifacts_per_call_max
        if len(chosen) > limit:
            job.problems.append(
                f"{len(chosen) - limit} of {len(chosen)} files are left for later calls: {limit} at most"
            )
        outcome.files = list(chosen.values())[:limit]

    def _choose(self, outcome: _Outcome, file: SeenFile, chosen: dict[str, SeenFile], *, if_changed: bool) -> None:
        job, ledger = outcome.job, outcome.job.ledger
        if file.path in chosen:
            return
        entry = ledger.find(file.path)
        is_known = ledger.knows(file)
        if outcome.way.rewrite_text and is_known and entry is not None and entry.uri and not entry.aid:
            outcome.names_inputs = True
            return  # the copy of a stored file, as it was laid down: it is told of by the handle that it came by
        if if_changed and is_known and entry is not None and entry.aid and entry.number > job.begun_after:
            self._share(job, entry.aid)  # a call beside this one has just taken it
            return
        if if_changed and not self._is_new(job, file, is_known=is_known):
            return
        if not file.size_bytes or file.is_busy:
            self._await(job, file.path, "it is not complete yet" if file.size_bytes else "it is empty so far")
            return
        chosen[file.path] = file

    def _share(self, job: Job, aid: str) -> None:
        record = self._shelf.find_artifact(job.link.session_of(job.exchange).sid, aid)
        if record is not None and record not in job.artifacts:
            job.artifacts.append(record)

    def _is_new(self, job: Job, file: SeenFile, *, is_known: bool) -> bool:
        """Whether the call may have written it."""
        if self._is_in_session(job, file.path) or is_known:
            return job.ledger.is_new(file)
        before = job.baseline.get(file.path)
        if before is not None:
            return before != file.stamp
        return file.changed_at_unix >= self._desk.unix_at_zero + job.begun_at - CLOCK_SLACK_S

    def _await(self, job: Job, path: str, why: str) -> None:
        name = posixpath.basename(path) or path
        job.problems.append(f"{name[:160]}: {why}")
        if not why.startswith("not permitted"):
            job.ledger.awaits(path)

    def _is_in_session(self, job: Job, path: str) -> bool:
        return any(path.startswith(folder + "/") for folder in folders_of(self._desk.plan, job).values())

    # --- Taking in --------------------------------------------------------------------------------------------------

    def _collect(self, outcome: _Outcome) -> None:
        job, limits = outcome.job, self._desk.limits
        if job.is_over:
            return
        left = limits.artifacts_per_call_max - len(outcome.files)
        sources: list[Source] = [FileSource((file.path,), file.stamp) for file in outcome.files]
        sources += outcome.inline[:left]
        if not sources:
            self._deliver(outcome)
            return
        blobs = tuple(self._desk.mint() for _ in sources)
        session = job.link.session_of(job.exchange)
        room = self._shelf.room(session.sid)

        def late(answer: StorageAnswer) -> None:
            for blob, file in zip(blobs, answer.files if isinstance(answer, Collected) else (), strict=False):
                if not file.problem:
                    self._desk.order(Discard(blob=blob))

        def collected(answer: StorageAnswer) -> None:
            if isinstance(answer, Collected):
                self._take_in(outcome, blobs, answer.files)
            elif not job.is_over:
                job.problems.append(reason_of(answer))
                self._deliver(outcome)

        self._waiting.order(
            lambda ticket: Collect(
                ticket=ticket,
                server=session.server,
                workspace=job.link.workspace,
                sources=tuple(sources),
                blobs=blobs,
                size_max_bytes=limits.artifact_size_max_bytes,
                total_size_max_bytes=room,
            ),
            collected,
            late=late,
        )

    def _take_in(self, outcome: _Outcome, blobs: tuple[str, ...], files: tuple[CollectedFile, ...]) -> None:
        job = outcome.job
        session = job.link.session_of(job.exchange)
        seen: set[str] = set()
        taken: list[tuple[StoredArtifact, Hold, SeenFile | None]] = []
        for index, (blob, file) in enumerate(zip(blobs, files, strict=True)):
            source = outcome.files[index] if index < len(outcome.files) else None
            if file.problem:
                if not job.is_over:
                    self._note_problem(job, file.problem, source)
                continue
            is_twice = bool(file.path) and file.path in seen
            has_slot = self._shelf.artifact_slots(session.sid) > 0
            is_over_limit = not has_slot or file.size_bytes > self._shelf.room(session.sid)
            if job.is_over or is_twice or is_over_limit:
                self._desk.order(Discard(blob=blob))
                if is_over_limit and not is_twice:
                    job.problems.append("this session's storage is full")
                continue
            seen.add(file.path)
            record = self._record(outcome, blob, file)
            job.artifacts.append(record)
            taken.append((record, self._shelf.hold(session.sid, file.size_bytes, artifacts=1), source))
        if job.is_over:
            return
        job.open_orders += 1  # until all are ordered
        for record, hold, source in taken:
            self._save(outcome, record, hold, source)
        self._saved(outcome)

    def _note_problem(self, job: Job, problem: str, source: SeenFile | None) -> None:
        if source is not None and problem == "unfinished":
            self._await(job, source.path, "it is still being written")
            return
        job.problems.append(problem)
        if source is not None and source.size_bytes > self._desk.limits.artifact_size_max_bytes:
            job.ledger.note(source)  # said once: no later call can take it either

    def _record(self, outcome: _Outcome, blob: str, file: CollectedFile) -> StoredArtifact:
        job = outcome.job
        session = job.link.session_of(job.exchange)
        is_allocated = job.allocated is not None and file.path == job.allocated
        aid = job.aid if is_allocated and not job.artifacts else self._desk.mint()
        name = safe_filename(file.filename, f"artifact-{aid[:8]}")
        mime_type = mime_type_of(name, file.head, None)
        return StoredArtifact(
            server=session.server,
            sid=session.sid,
            aid=aid,
            principal=session.principal,
            blob=blob,
            filename=with_suffix(name, mime_type) if is_allocated or not file.path else name,
            mime_type=mime_type,
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            tool=job.tool,
            is_exposed=outcome.way.is_exposed and self._desk.plan.expose_as_resources,
            is_bearer=session.is_stateless,
            stored_at_unix=self._desk.now_unix,
            expires_at_unix=self._desk.now_unix + self._desk.limits.artifact_ttl_s,
        )

    def _save(self, outcome: _Outcome, record: StoredArtifact, hold: Hold, source: SeenFile | None) -> None:
        job = outcome.job

        def saved(answer: StorageAnswer) -> None:
            self._shelf.release(hold)
            twin = None if job.is_over or source is None else self._twin(job, source)
            if twin is not None:
                self._undo(job, record)
                if twin not in job.artifacts:
                    job.artifacts.append(twin)
                    self._show(outcome, twin)
            elif isinstance(answer, Saved) and not job.is_over:
                self._shelf.add_artifact(record)
                if source is not None:
                    job.ledger.note(source, aid=record.aid, uri=uri_of(record))
                    job.ledger.settle(outcome.awaited.get(source.path, source.path))
                    if outcome.way.moves:
                        self._remove(job, source)
            else:  # what failed may have been written all the same; of a call that was cancelled nobody is told
                job.problems.append(reason_of(answer))
                self._undo(job, record)
            self._saved(outcome)

        value = msgspec.json.encode(record)
        job.open_orders += 1
        self._waiting.order(
            lambda ticket: Save(ticket=ticket, key=record.key, value=value, expires_at_unix=record.expires_at_unix),
            saved,
        )
        self._show(outcome, record)

    def _twin(self, job: Job, source: SeenFile) -> StoredArtifact | None:
        """What a call beside this one has made of the same file, if it was the first to."""
        entry = job.ledger.find(source.path)
        if entry is None or not entry.aid or entry.stamp != source.stamp or entry.number <= job.begun_after:
            return None
        return self._shelf.find_artifact(job.link.session_of(job.exchange).sid, entry.aid)

    def _undo(self, job: Job, record: StoredArtifact) -> None:
        job.artifacts.remove(record)
        self._desk.order(Forget(key=record.key))
        self._desk.order(Discard(blob=record.blob))

    def _show(self, outcome: _Outcome, record: StoredArtifact) -> None:
        if self._is_shown(outcome, record):
            outcome.shown_bytes += record.size_bytes
            self._fetch(outcome, record)

    def _remove(self, job: Job, file: SeenFile) -> None:
        """It is an artifact now, whatever happens."""
        link = job.link
        self._desk.order(Remove(server=link.plan.id, workspace=link.workspace, path=file.path, stamp=file.stamp))

    def _is_shown(self, outcome: _Outcome, record: StoredArtifact) -> bool:
        """Whether its content is put into the result, beside that of others."""
        way = outcome.way
        if outcome.shown_bytes + record.size_bytes > self._desk.limits.inline_size_max_bytes:
            return False
        if way.allow_raw_output:
            return True
        return record.size_bytes <= way.inline_text_bytes and is_text(record.mime_type)

    def _fetch(self, outcome: _Outcome, record: StoredArtifact) -> None:
        limit = self._desk.limits.inline_size_max_bytes

        def fetched(answer: StorageAnswer) -> None:
            if isinstance(answer, Fetched):
                outcome.job.contents[record.aid] = answer.data
            self._saved(outcome)

        outcome.job.open_orders += 1
        self._waiting.order(lambda ticket: Fetch(ticket=ticket, blob=record.blob, size_max_bytes=limit), fetched)

    def _saved(self, outcome: _Outcome) -> None:
        job = outcome.job
        job.open_orders -= 1
        if not job.is_over and not job.open_orders:
            self._deliver(outcome)

    # --- The answer -------------------------------------------------------------------------------------------------

    def _deliver(self, outcome: _Outcome) -> None:
        """Answer with the result and what was taken in; say what was not, and why."""
        job, way, result = outcome.job, outcome.way, outcome.result
        assert not job.is_over
        problem = "; ".join(dict.fromkeys(job.problems))
        if not job.artifacts and self._may_take(outcome):
            if not problem and not outcome.names_inputs and not _UNNAMED.issuperset(way.modes or ()):
                problem = "the result names no file"
            if way.required:
                text = f"The tool ran, but its output file was not found: {problem or 'nothing was found'}."
                job.exchange.is_native = False  # it is not the server's, which may speak as the client does
                self._finish(job, tool_error(text))
                return
        if way.rewrite_text:
            result = self._retelling.reworded(job, result)
        if job.artifacts:
            result = self._retelling.attached(job, way, result)
        if problem and self._may_take(outcome):
            result = attach_error(result, problem)
        self._finish(job, result)
