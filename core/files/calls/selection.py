"""Selection of the files that a finished call wrote, from those that it names and those that have changed.

A file that was written and cannot be taken is reported, so that the client learns of it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Final

from ...base.effects import Note
from ...base.path_mapping import to_here
from ...base.storage import InlineSource, SeenFile, StorageAnswer, Survey, Surveyed
from ...jsonrpc import envelope as rpc
from ...state.context import Context
from ...state.storage_orders import StorageOrders, reason_of
from ..store.store import FileStore
from .claims import ClaimedPaths, argument_paths
from .job import FileCall, OutputRule
from .left_files import LeftFile, left_files
from .result_rewriter import AREAS, folders_of
from .session_paths import ROOT
from .workspace_files import is_finished

CLOCK_SLACK_S: Final = 2.0
"""Seconds by which a file may seem older than the call that wrote it: file systems count in up to two seconds."""


class Outcome:
    """A result that is being processed, until its call is answered.

    Attributes:
        files: files to be collected from the disk.
        awaited: the paths under which an earlier call awaits some of these, by their real paths.
        inline: content that came in messages.
        names_inputs: the result names files that the call was given.
        shown_bytes: how much content of its files is put into the result.
    """

    __slots__ = ("awaited", "claims", "files", "inline", "job", "names_inputs", "result", "rule", "shown_bytes")

    def __init__(self, job: FileCall, rule: OutputRule, result: bytes, claims: ClaimedPaths) -> None:
        self.job = job
        self.rule = rule
        self.result = result
        self.claims = claims
        self.inline: list[InlineSource] = list(claims.inline)
        self.files: list[SeenFile] = []
        self.awaited: dict[str, str] = {}
        self.names_inputs = False
        self.shown_bytes = 0

    def add_inline(self, contents: Sequence[InlineSource]) -> None:
        """Adds content that was read from the server."""
        self.inline += contents

    def show(self, size_bytes: int) -> None:
        """Counts the content of a file that is put into the result."""
        self.shown_bytes += size_bytes

    @property
    def may_take(self) -> bool:
        """True if files may be taken: the result does not say that the call has failed."""
        return rpc.member_of(self.result, "isError") != b"true"


class Selection:
    """Selects the files of finished calls.

    Args:
        then: called with an outcome once its files are selected.
    """

    def __init__(
        self,
        context: Context,
        file_store: FileStore,
        storage_orders: StorageOrders,
        then: Callable[[Outcome], None],
    ) -> None:
        self._context = context
        self._file_store = file_store
        self._storage_orders = storage_orders
        self._then = then

    def look(self, outcome: Outcome) -> None:
        """Looks at the files that may be the output of the call, and selects those that are."""
        job, claims, limits = outcome.job, outcome.claims, self._context.limits
        awaited = [(path,) for path in job.known_files.awaited()] if outcome.may_take else []
        shared = job.link.plan.shared
        named = [tuple(dict.fromkeys(to_here(path, shared) for path in paths)) for paths in claims.named]
        # Some tools choose the suffix themselves, so the folder made for the output counts as well.
        if named and job.allocated is not None:
            named[0] = (job.allocated, posixpath.dirname(job.allocated))
        areas = AREAS if claims.wants_areas else ()
        if not named and not awaited and not areas:
            self._then(outcome)
            return

        def seen(answer: StorageAnswer) -> None:
            if isinstance(answer, Surveyed):
                self._select(outcome, named, awaited, answer)
            else:
                job.report(reason_of(answer))
            self._then(outcome)

        self._storage_orders.order(
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

    def _select(
        self, outcome: Outcome, named: Sequence[tuple[str, ...]], awaited: Sequence[tuple[str]], answer: Surveyed
    ) -> None:
        """Selects the files to collect: first what was named, in the order it was named, then what else has changed."""
        job, known_files = outcome.job, outcome.job.known_files
        chosen: dict[str, SeenFile] = {}
        missing: list[tuple[str, str]] = []
        left: dict[SeenFile, LeftFile] = {}
        claimed: list[tuple[SeenFile, str, str]] = []  # files that stay behind, which the result surely names
        for index, sighting in enumerate(answer.named[: len(named)]):
            if sighting.problem:
                if sighting.left is not None and self._was_written(job, sighting.left):
                    path = sighting.left.path.replace(self._folder_of(job), ROOT)
                    was_asked = self._was_asked(job, path, named[index]) or (
                        sighting.left in left and left[sighting.left].was_asked
                    )
                    left[sighting.left] = LeftFile(path, sighting.is_folder, was_asked)
                    if not outcome.claims.is_guess[index]:
                        claimed.append((sighting.left, named[index][0], sighting.problem))
                elif not outcome.claims.is_guess[index]:
                    missing.append((named[index][0], sighting.problem))
                continue
            if sighting.is_cut:
                job.report(f"{posixpath.basename(named[index][0])} has more files than are taken at once")
            for file in sighting.files:
                self._choose(outcome, file, chosen, if_changed=outcome.claims.if_changed[index])
        untold = {seen: file for seen, file in left.items() if known_files.tell(seen)}
        self._report_left(job, left_files(untold.values()))
        missing += [(path, problem) for seen, path, problem in claimed if seen not in untold]
        for (path,), sighting in zip(awaited, answer.named[len(named) :], strict=True):
            for file in sighting.files:
                if not is_finished(file):
                    continue
                if known_files.knows(file):
                    known_files.settle(path)
                    self._choose(outcome, file, chosen, if_changed=True)
                else:  # it stays awaited until it is collected, and is no older than the call that named it
                    chosen.setdefault(file.path, file)
                    outcome.awaited[file.path] = path
        if outcome.claims.wants_areas:
            folders = folders_of(self._context.plan, job)
            for file in known_files.changed(answer.listed, [folders[name] for name in AREAS]):
                self._choose(outcome, file, chosen, if_changed=True)
            if answer.is_cut:
                job.report("there are more files in the session's folders than are watched")
        uris = {path: uri for uri, path in job.new_files.items()}
        for path, problem in missing:
            if chosen and (path in uris or path == job.allocated):
                continue  # it is not missing if the tool wrote another file
            if path in uris:
                job.report(f"{uris[path][:160]}: no file is there")
                job.known_files.awaits(path)
            else:
                self.await_file(job, path, problem)
        limit = self._context.limits.artifacts_per_call_max
        if len(chosen) > limit:
            job.report(f"{len(chosen) - limit} of {len(chosen)} files are left for later calls: {limit} at most")
        outcome.files = list(chosen.values())[:limit]

    def _choose(self, outcome: Outcome, file: SeenFile, chosen: dict[str, SeenFile], *, if_changed: bool) -> None:
        job, known_files = outcome.job, outcome.job.known_files
        if file.path in chosen:
            return
        entry = known_files.find(file.path)
        is_known = known_files.knows(file)
        if outcome.rule.rewrite_text and is_known and entry is not None and entry.uri and not entry.aid:
            outcome.names_inputs = True
            return  # an unchanged copy of a stored file: the result names it by the handle it came by
        if if_changed and is_known and entry is not None and entry.aid and entry.number > job.begun_after:
            self._join(job, entry.aid)  # a concurrent call has just collected it
            return
        if if_changed and not self._is_new(job, file, is_known=is_known):
            return
        if not file.size_bytes or file.is_busy:
            self.await_file(job, file.path, "it is not complete yet" if file.size_bytes else "it is empty so far")
            return
        chosen[file.path] = file

    def _join(self, job: FileCall, aid: str) -> None:
        """Adds an artifact that another call made of the same file to this call."""
        record = self._file_store.find_artifact(job.link.session_of(job.exchange).files_sid, aid)
        if record is not None:
            job.add_artifact(record)

    def _is_new(self, job: FileCall, file: SeenFile, *, is_known: bool) -> bool:
        """True if the call may have written the file."""
        if self._is_in_session(job, file.path) or is_known:
            return job.known_files.is_new(file)
        before = job.baseline.get(file.path)
        if before is not None:
            return before != file.stamp
        return file.changed_at_unix >= self._begun_at_unix(job)

    def _begun_at_unix(self, job: FileCall) -> float:
        return self._context.unix_at_zero + job.begun_at - CLOCK_SLACK_S

    def await_file(self, job: FileCall, path: str, why: str) -> None:
        """Notes a problem with a file, which later calls look for again unless it is not permitted."""
        name = posixpath.basename(path) or path
        job.report(f"{name[:160]}: {why}")
        if not why.startswith("not permitted"):
            job.known_files.awaits(path)

    def _folder_of(self, job: FileCall) -> str:
        """Returns the path of the folder that the session's folders are in."""
        return f"{self._context.plan.workspaces_path}/{job.link.workspace}"

    def _is_in_session(self, job: FileCall, path: str) -> bool:
        return any(path.startswith(folder + "/") for folder in folders_of(self._context.plan, job).values())

    # --- Files that stay behind -------------------------------------------------------------------------------------

    def _was_written(self, job: FileCall, left: SeenFile) -> bool:
        """True if the session's server seems to have written what may not be taken.

        A tool may name a file later than it wrote it, as for a download. So it counts from the session's first call
        on. A file that was there before the call counts if it is another now.
        """
        if job.is_read_only or f"{self._folder_of(job)}/".startswith(left.path.rstrip("/") + "/"):
            return False  # a folder that the session's own are in changes with them
        before = job.baseline.get(left.path)
        if before is not None:
            return before != left.stamp
        begun_at_unix = min(job.known_files.begun_at_unix, self._begun_at_unix(job))
        return left.changed_at_unix >= begun_at_unix

    def _was_asked(self, job: FileCall, path: str, named: tuple[str, ...]) -> bool:
        """True if the path came in the arguments, with its suffix or without."""
        arguments = rpc.member_of(job.exchange.params, "arguments")
        shared, limit = job.link.plan.shared, self._context.limits.artifacts_per_call_max
        asked = {to_here(each, shared) for paths in argument_paths(arguments, (), limit) for each in paths}
        return not asked.isdisjoint(named) or any(path.startswith(f"{each}.") for each in asked if each.startswith("/"))

    def _report_left(self, job: FileCall, left: list[LeftFile]) -> None:
        """Tells the client and the operator of what stays behind."""
        for file in left:
            job.report(str(file))
            what = (
                f"{job.tool[:80]!r} wrote to {file.path[:400]!r}, outside of the session's folders and artifact_roots"
            )
            self._context.order(Note(level="info", text=f"{what}: it was not transferred", server=job.link.plan.id))
