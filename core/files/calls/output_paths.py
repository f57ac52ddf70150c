"""Paths that a tool is told to write to, all in the session's folders.

An adapter's output argument gets a folder of its own for each call. An `artifact://new/` URI stands for the same path
in every call of the session, so that a tool can go on with the file that an earlier call wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from ...base.path_mapping import to_there
from ...base.storage import Allocate, Allocated, StorageAnswer
from ...state.context import Context
from ...state.storage_orders import reason_of
from ..store.filenames import safe_filename
from ..store.handles import NEW_FILE_PREFIX, HandleError, parse_new_file
from ..store.workspaces import WorkspaceOrders
from . import arguments
from .arguments import ArgumentProblem
from .job import FileCall


class OutputPaths:
    """Makes the folders of such paths, and writes the paths of output arguments."""

    def __init__(self, context: Context, workspaces: WorkspaceOrders, answered: Callable[[FileCall], None]) -> None:
        self._context = context
        self._workspaces = workspaces
        self._answered = answered

    def order(self, job: FileCall) -> None:
        """Orders the folders for the call's output argument and new files.

        Raises:
            ArgumentProblem: the URI of a new file has no name that can be used.
        """
        rule, params = job.rule, job.exchange.params
        assert params is not None
        if rule is not None and rule.output_path_argument is not None:
            wanted = arguments.requested_filename(params, rule.output_path_argument) or ""
            if wanted.startswith(NEW_FILE_PREFIX):
                job.name_output(wanted)
            else:
                aid = self._context.mint()
                job.name_artifact(aid)
                filename = safe_filename(wanted, f"artifact-{aid[:8]}")
                self._allocate(job, "out", (aid,), filename, job.receive_allocated)
        for uri in job.new_files:
            try:
                *folders, filename = parse_new_file(uri).split("/")
            except HandleError as error:
                raise ArgumentProblem(f"Got {uri[:160]!r}, {error}.") from None

            def allocated(path: str, uri: str = uri) -> None:
                job.receive_new_file(uri, path)

            # Where uploads are laid for it, the tool can write as well, except in the folder of uploads themselves.
            area = "out" if job.link.plan.stage == "in" else job.link.plan.stage
            self._allocate(job, area, tuple(folders), filename, allocated)

    def _allocate(
        self, job: FileCall, area: str, folders: tuple[str, ...], filename: str, then: Callable[[str], None]
    ) -> None:
        workspace = job.link.workspace

        def answered(answer: StorageAnswer) -> None:
            if isinstance(answer, Allocated):
                then(answer.path)
            else:
                job.fail(f"No place could be made for the tool's output: {reason_of(answer)}.")
            self._answered(job)

        job.expect_answer()
        self._workspaces.order(
            workspace,
            lambda ticket: Allocate(ticket=ticket, workspace=workspace, folders=folders, filename=filename, area=area),
            answered,
        )

    def write(self, job: FileCall, params: bytes) -> bytes:
        """Returns the params with the path in the output argument, if the call has one.

        Raises:
            ArgumentProblem: there is no place for it in the arguments.
        """
        path = job.output_path
        if path is None:
            return params
        assert job.rule is not None
        assert job.rule.output_path_argument is not None
        there = to_there(path, job.link.plan.shared)
        return arguments.place_output(params, job.rule.output_path_argument, there)
