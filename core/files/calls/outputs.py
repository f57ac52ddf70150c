"""Output files of tools become artifacts: the files that a result names are looked at, new ones are collected, and the
result describes them.

A good result is never lost over a file that could not be collected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ...base.plan import LocatorMode
from ...base.storage import (
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
)
from ...bridge.content import tool_error
from ...jsonrpc import envelope as rpc
from ...state.context import Context
from ...state.storage_orders import StorageOrders, reason_of
from ..store.filenames import is_text, mime_type_of, safe_filename, with_suffix
from ..store.owners import Account
from ..store.room import Room
from ..store.store import FileStore, Reservation, StoredArtifact
from .artifact import attach_error
from .claims import claims_of
from .job import FileCall, OutputRule
from .linked_resources import LinkedResources
from .result_rewriter import ResultRewriter
from .selection import Outcome, Selection
from .uris import uri_of

_UNNAMED: Final = frozenset({LocatorMode.NONE, LocatorMode.ARGUMENT, LocatorMode.CHANGED})
"""Modes that report nothing missing when they find nothing: the tool has written no file this time."""


class Outputs:
    """Collects the files that calls wrote.

    Args:
        finish: called with a call and its final result.
    """

    def __init__(
        self,
        context: Context,
        file_store: FileStore,
        storage_orders: StorageOrders,
        result_rewriter: ResultRewriter,
        linked_resources: LinkedResources,
        room: Room,
        finish: Callable[[FileCall, bytes], None],
    ) -> None:
        self._room = room
        self._result_rewriter = result_rewriter
        self._linked_resources = linked_resources
        self._context = context
        self._file_store = file_store
        self._storage_orders = storage_orders
        self._finish = finish
        self._selection = Selection(context, file_store, storage_orders, self._collect)

    def take(self, job: FileCall, rule: OutputRule, result: bytes) -> None:
        """Collects the files that a result names, and answers the call."""
        arguments = rpc.member_of(job.exchange.params, "arguments")
        claims = claims_of(
            result,
            rule.rules,
            arguments=arguments,
            allocated=job.allocated,
            new_files=job.new_files.values(),
            limit=self._context.limits.artifacts_per_call_max,
        )
        outcome = Outcome(job, rule, result, claims)
        if claims.links:

            def read(contents: list[InlineSource], problems: list[str]) -> None:
                outcome.add_inline(contents)
                job.report(*problems)
                self._selection.look(outcome)

            self._linked_resources.read(job, claims.links, read)
        else:
            self._selection.look(outcome)

    # --- Collection -------------------------------------------------------------------------------------------------

    def _collect(self, outcome: Outcome) -> None:
        job, limits = outcome.job, self._context.limits
        if job.is_over:
            return
        left = limits.artifacts_per_call_max - len(outcome.files)
        sources: list[Source] = [FileSource((file.path,), file.stamp) for file in outcome.files]
        sources += outcome.inline[:left]
        if not sources:
            self._deliver(outcome)
            return
        size_bytes = sum(file.size_bytes for file in outcome.files) + sum(
            len(one.data) for one in outcome.inline[:left]
        )

        def prepared(problem: str) -> None:
            if not problem:
                self._order_collect(outcome, tuple(sources))
            elif not job.is_over:
                job.report(problem)
                self._deliver(outcome)

        self._room.prepare(self._account(job), size_bytes, prepared, artifacts=len(sources))

    def _account(self, job: FileCall) -> Account:
        session = job.link.session_of(job.exchange)
        return self._file_store.account(session.principal, session.files_sid)

    def _order_collect(self, outcome: Outcome, sources: tuple[Source, ...]) -> None:
        job, limits = outcome.job, self._context.limits
        if job.is_over:
            return
        blobs = tuple(self._context.mint() for _ in sources)
        session = job.link.session_of(job.exchange)
        room = self._file_store.room(self._account(job))

        def late(answer: StorageAnswer) -> None:
            for blob, file in zip(blobs, answer.files if isinstance(answer, Collected) else (), strict=False):
                if not file.problem:
                    self._context.order(Discard(blob=blob))

        def collected(answer: StorageAnswer) -> None:
            if isinstance(answer, Collected):
                self._prepare_to_take_in(outcome, blobs, answer.files)
            elif not job.is_over:
                job.report(reason_of(answer))
                self._deliver(outcome)

        self._storage_orders.order(
            lambda ticket: Collect(
                ticket=ticket,
                server=session.server,
                workspace=job.link.workspace,
                sources=sources,
                blobs=blobs,
                size_max_bytes=limits.artifact_size_max_bytes,
                total_size_max_bytes=room,
            ),
            collected,
            late=late,
        )

    def _prepare_to_take_in(self, outcome: Outcome, blobs: tuple[str, ...], files: tuple[CollectedFile, ...]) -> None:
        """Gets room for what the files have turned out to be. If the storage fails to give it, none is kept: others
        would be evicted for it although the limits may have room."""
        taken = [file for file in files if not file.problem]

        def prepared(problem: str) -> None:
            if problem:
                for blob, file in zip(blobs, files, strict=True):
                    if not file.problem:
                        self._context.order(Discard(blob=blob))
                refused = [file if file.problem else msgspec.structs.replace(file, problem=problem) for file in files]
                self._take_in(outcome, blobs, tuple(refused))
            else:
                self._take_in(outcome, blobs, files)

        size_bytes = sum(file.size_bytes for file in taken)
        self._room.prepare(self._account(outcome.job), size_bytes, prepared, artifacts=len(taken))

    def _take_in(self, outcome: Outcome, blobs: tuple[str, ...], files: tuple[CollectedFile, ...]) -> None:
        job = outcome.job
        account = self._account(job)
        seen: set[str] = set()
        taken: list[tuple[StoredArtifact, Reservation, SeenFile | None]] = []
        for index, (blob, file) in enumerate(zip(blobs, files, strict=True)):
            source = outcome.files[index] if index < len(outcome.files) else None
            if file.problem:
                if not job.is_over:
                    self._note_problem(job, file.problem, source)
                continue
            is_twice = bool(file.path) and file.path in seen
            has_slot = self._file_store.slots(account, "artifact") > 0
            is_over_limit = not has_slot or file.size_bytes > self._file_store.room(account)
            if job.is_over or is_twice or is_over_limit:
                self._context.order(Discard(blob=blob))
                if is_over_limit and not is_twice:
                    job.report("this session's storage is full")
                continue
            seen.add(file.path)
            record = self._record(outcome, blob, file)
            job.add_artifact(record)
            taken.append((record, self._file_store.hold(account, file.size_bytes, artifacts=1), source))
        if job.is_over:
            return
        job.expect_answer()  # keeps the call waiting until all orders are given
        for record, reservation, source in taken:
            self._save(outcome, record, reservation, source)
        self._order_done(outcome)

    def _note_problem(self, job: FileCall, problem: str, source: SeenFile | None) -> None:
        if source is not None and problem == "unfinished":
            self._selection.await_file(job, source.path, "it is still being written")
            return
        job.report(problem)
        if source is not None and source.size_bytes > self._context.limits.artifact_size_max_bytes:
            job.known_files.note(source)  # reported once: no later call can collect it either

    def _record(self, outcome: Outcome, blob: str, file: CollectedFile) -> StoredArtifact:
        job = outcome.job
        session = job.link.session_of(job.exchange)
        is_allocated = job.allocated is not None and file.path == job.allocated
        aid = job.aid if is_allocated and not job.artifacts else self._context.mint()
        name = safe_filename(file.filename, f"artifact-{aid[:8]}")
        mime_type = mime_type_of(name, file.head, None)
        return StoredArtifact(
            server=session.server,
            sid=session.files_sid,
            aid=aid,
            principal=session.principal,
            blob=blob,
            filename=with_suffix(name, mime_type) if is_allocated or not file.path else name,
            mime_type=mime_type,
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            tool=job.tool,
            is_exposed=outcome.rule.is_exposed and self._context.plan.expose_as_resources,
            is_bearer=session.is_stateless,
            stored_at_unix=self._context.now_unix,
            expires_at_unix=self._context.now_unix + self._context.limits.artifact_ttl_s,
        )

    def _save(
        self, outcome: Outcome, record: StoredArtifact, reservation: Reservation, source: SeenFile | None
    ) -> None:
        job = outcome.job

        def saved(answer: StorageAnswer) -> None:
            self._file_store.release(reservation)
            duplicate = None if job.is_over or source is None else self._duplicate(job, source)
            if duplicate is not None:
                self._undo(job, record)
                if job.add_artifact(duplicate):
                    self._show(outcome, duplicate)
            elif isinstance(answer, Saved) and not job.is_over:
                self._file_store.add_artifact(record)
                if source is not None:
                    job.known_files.note(source, aid=record.aid, uri=uri_of(record))
                    job.known_files.settle(outcome.awaited.get(source.path, source.path))
                    if outcome.rule.moves:
                        self._remove(job, source)
            else:  # undone although it failed, since it may have been written; or because the call was cancelled
                job.report(reason_of(answer))
                self._undo(job, record)
            self._order_done(outcome)

        value = msgspec.json.encode(record)
        job.expect_answer()
        self._storage_orders.order(
            lambda ticket: Save(ticket=ticket, key=record.key, value=value, expires_at_unix=record.expires_at_unix),
            saved,
        )
        self._show(outcome, record)

    def _duplicate(self, job: FileCall, source: SeenFile) -> StoredArtifact | None:
        """Returns the artifact that a concurrent call made of the same file, if that call was first."""
        entry = job.known_files.find(source.path)
        if entry is None or not entry.aid or entry.stamp != source.stamp or entry.number <= job.begun_after:
            return None
        return self._file_store.find_artifact(job.link.session_of(job.exchange).files_sid, entry.aid)

    def _undo(self, job: FileCall, record: StoredArtifact) -> None:
        job.remove_artifact(record)
        self._context.order(Forget(key=record.key))
        self._context.order(Discard(blob=record.blob))

    def _show(self, outcome: Outcome, record: StoredArtifact) -> None:
        if self._is_shown(outcome, record):
            outcome.show(record.size_bytes)
            self._fetch(outcome, record)

    def _remove(self, job: FileCall, file: SeenFile) -> None:
        """Removes the source of an artifact, whatever becomes of the call."""
        link = job.link
        self._context.order(Remove(server=link.plan.id, workspace=link.workspace, path=file.path, stamp=file.stamp))

    def _is_shown(self, outcome: Outcome, record: StoredArtifact) -> bool:
        """True if the artifact's content is put into the result, beside that of others."""
        rule = outcome.rule
        if outcome.shown_bytes + record.size_bytes > self._context.limits.inline_size_max_bytes:
            return False
        if rule.allow_raw_output:
            return True
        return record.size_bytes <= rule.inline_text_bytes and is_text(record.mime_type)

    def _fetch(self, outcome: Outcome, record: StoredArtifact) -> None:
        limit = self._context.limits.inline_size_max_bytes

        def fetched(answer: StorageAnswer) -> None:
            if isinstance(answer, Fetched):
                outcome.job.keep_content(record, answer.data)
            self._order_done(outcome)

        outcome.job.expect_answer()
        self._storage_orders.order(lambda ticket: Fetch(ticket=ticket, blob=record.blob, size_max_bytes=limit), fetched)

    def _order_done(self, outcome: Outcome) -> None:
        if outcome.job.receive_answer():
            self._deliver(outcome)

    # --- The answer -------------------------------------------------------------------------------------------------

    def _deliver(self, outcome: Outcome) -> None:
        """Answers with the result and what was collected; says what was not, and why."""
        job, rule, result = outcome.job, outcome.rule, outcome.result
        assert not job.is_over
        problem = "; ".join(dict.fromkeys(job.problems))
        if not job.artifacts and outcome.may_take:
            if not problem and not outcome.names_inputs and not _UNNAMED.issuperset(rule.modes or ()):
                problem = "the result names no file"
            if rule.required:
                text = f"The tool ran, but its output file was not found: {problem or 'nothing was found'}."
                job.exchange.mark_native(False)  # made here: it still has to be translated to the client's era
                self._finish(job, tool_error(text))
                return
        if rule.rewrite_text:
            result = self._result_rewriter.reworded(job, result)
        if job.artifacts:
            result = self._result_rewriter.attached(job, rule, result)
        if problem and outcome.may_take:
            result = attach_error(result, problem, is_told=bool(job.problems))
        self._finish(job, result)
