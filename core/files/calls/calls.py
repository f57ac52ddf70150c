"""Tool calls that carry files: uploads become paths before the call, as `inputs` tells, and what the tool wrote becomes
artifacts after it, as `outputs` does.

Storage takes time, so a call waits in a `Job` until its orders are answered.
"""

from __future__ import annotations

from typing import Protocol

from ...base.effects import Allocate, Allocated, StorageAnswer, Survey, Surveyed
from ...base.plan import LocatorMode, OutputLocator, ServerPlan
from ...bridge.content import tool_error
from ...jsonrpc import envelope
from ...state.context import Desk
from ...state.exchange import Exchange, ExchangeKey
from ...state.link import Link
from ...state.storage_orders import Waiting, reason_of
from ..store.filenames import safe_filename
from ..store.store import Shelf
from ..store.workspaces import Folders
from . import arguments as delivery
from . import claims, tool_hints
from .inputs import Inputs
from .job import Job, Way, way_of
from .outputs import CLOCK_SLACK_S, Outputs
from .path_mapping import to_here, to_there
from .result_rewriter import AREAS, Retelling
from .workspace_files import Ledger


class Onward(Protocol):
    """Where the file plane sends what it is done with."""

    def forward(self, link: Link, exchange: Exchange) -> None: ...

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None: ...

    def learn(self, link: Link, exchange: Exchange) -> None:
        """Read the server's list of tools; the call goes up afterwards."""


class Calls:
    """The calls under way of all sessions."""

    def __init__(self, desk: Desk, shelf: Shelf, waiting: Waiting, folders: Folders) -> None:
        self.onward: Onward
        self._desk = desk
        self._shelf = shelf
        self._waiting = waiting
        self._folders = folders
        self._inputs = Inputs(desk, shelf, waiting, folders, self._answered)
        self._retelling = Retelling(desk, shelf)
        self.outputs = Outputs(desk, shelf, waiting, self._retelling, self._finish)
        self._jobs: dict[ExchangeKey, Job] = {}
        self._ledgers: dict[str, Ledger] = {}  # by workspace

    # --- Into tools -------------------------------------------------------------------------------------------------

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        """A `tools/call` is about to go up. False if its files are nobody's business.

        Raises:
            RemoteProtocolError: its params have a member twice. Nothing has changed.
        """
        params = exchange.params or b"{}"
        tool = envelope.text_of(envelope.member_of(params, "name")) or ""
        consumers = [c for c in link.plan.consumers if delivery.tool_named(c.tools, tool)]
        way = self._way(link.plan, tool)
        if not consumers and way is None and link.plan.auto_files is None:
            return False
        job = Job(link, exchange, tool, self._ledger(link))
        job.consumers, job.way = consumers, way
        exchange.params = params
        try:
            self._inputs.find(job)
        except delivery.ArgumentProblem as problem:
            job.problem = str(problem)
        if not job.inputs and way is None and job.problem is None:
            return False
        self._jobs[exchange.key] = job
        self._ledgers[link.workspace] = job.ledger
        link.is_furnished = True
        job.open_orders += 1  # until all that is to be ordered is
        if job.problem is None:
            self._inputs.order(job)
            self._place_output(job)
            self._look_before(job)
        self._answered(job)
        return True

    def _way(self, plan: ServerPlan, tool: str) -> Way | None:
        if not self._desk.plan.artifacts_enabled:
            return None
        producer = next((p for p in plan.producers if delivery.tool_named(p.tools, tool)), None)
        if producer is not None:
            return way_of(producer) if producer.persist else None
        auto = plan.auto_files
        if auto is None:
            return None
        return Way(
            auto, auto.expose_as_resource, rewrite_text=auto.rewrite_text, inline_text_bytes=auto.inline_text_bytes
        )

    def _ledger(self, link: Link) -> Ledger:
        found = self._ledgers.get(link.workspace)
        limits = self._desk.limits
        return Ledger(2 * limits.files_known_max, limits.files_awaited_max) if found is None else found

    def _place_output(self, job: Job) -> None:
        way = job.way
        if way is None or way.output_path_argument is None:
            return
        assert job.exchange.params is not None
        job.aid = self._desk.mint()
        wanted = delivery.requested_filename(job.exchange.params, way.output_path_argument)
        filename = safe_filename(wanted or "", f"artifact-{job.aid[:8]}")
        workspace = job.link.workspace

        def allocated(answer: StorageAnswer) -> None:
            if isinstance(answer, Allocated):
                job.allocated = answer.path
            else:
                job.problem = f"No place could be made for the tool's output: {reason_of(answer)}."
            self._answered(job)

        job.open_orders += 1
        self._folders.order(
            workspace,
            lambda ticket: Allocate(ticket=ticket, workspace=workspace, artifact=job.aid, filename=filename),
            allocated,
        )

    def _look_before(self, job: Job) -> None:
        """Where output is told by what changes, see how things are before the call."""
        way, link = job.way, job.link
        if way is None or not (
            way.modes is None or {LocatorMode.ARGUMENT, LocatorMode.CHANGED}.intersection(way.modes)
        ):
            return
        areas = () if job.ledger.is_begun else AREAS
        names = way.rules.path_arguments if isinstance(way.rules, OutputLocator) else ()
        arguments = envelope.member_of(job.exchange.params, "arguments") or b"{}"
        paths = claims.argument_paths(arguments, names, self._desk.limits.arguments_read_max)
        if not areas and not paths:
            return
        named = tuple(tuple(to_here(path, link.plan.shared) for path in spellings) for spellings in paths)
        ordered_at_unix = self._desk.now_unix

        def seen(answer: StorageAnswer) -> None:
            if isinstance(answer, Surveyed):
                if areas and not job.ledger.is_begun:  # a call beside this one may have begun it, and written since
                    job.ledger.begin(answer.listed, ordered_at_unix - CLOCK_SLACK_S if answer.is_cut else 0.0)
                for sighting in answer.named:
                    job.baseline.update({file.path: file.stamp for file in sighting.files})
            self._answered(job)  # a disk that cannot be looked at is said when something is to be taken from it

        job.open_orders += 1
        self._waiting.order(
            lambda ticket: Survey(
                ticket=ticket,
                server=link.plan.id,
                workspace=link.workspace,
                named=named,
                areas=areas,
                entries_max=self._desk.limits.files_known_max,
            ),
            seen,
        )

    def _answered(self, job: Job) -> None:
        """Send the call up once everything it needs is in place, or answer it with what is wrong."""
        job.open_orders -= 1
        if job.is_over or job.open_orders:
            return
        if job.problem is not None:
            self._finish(job, tool_error(job.problem))
        else:
            job.begun_at, job.begun_after = self._desk.now, job.ledger.last_number
            self.onward.forward(job.link, job.exchange)

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """A call is about to be written, to a server that is ready. True if it waits, or is answered."""
        job = self._jobs.get(exchange.key)
        if job is None or job.is_placed:
            return False
        if job.mentions and link.hints is None:
            self.onward.learn(link, exchange)
            return True
        known = (link.hints or {}).get(job.tool)
        try:
            params = self._inputs.write(job, known)
            if job.allocated is not None:
                assert job.way is not None
                assert job.way.output_path_argument is not None
                path = to_there(job.allocated, link.plan.shared)
                params = delivery.place_output(params, job.way.output_path_argument, path)
        except delivery.ArgumentProblem as problem:
            self._finish(job, tool_error(str(problem)))
            return True
        job.is_placed = True
        job.said, exchange.params = exchange.params, params
        return False

    # --- Out of tools -----------------------------------------------------------------------------------------------

    def wants_again(self, link: Link, exchange: Exchange, result: bytes) -> bool:
        """Whether a tool refused what it was given only because it takes URIs, and may be called again with those: one
        that says of itself that a call changes nothing, or nothing more than one call."""
        job = self._jobs.get(exchange.key)
        if job is None or not job.mentions:
            return False
        paths = [given.path for given in job.inputs.values() if given.path is not None]
        known = (link.hints or {}).get(job.tool)
        if not tool_hints.says_uri(result, paths) or not self._inputs.learn(job, known):
            return False
        if known is None or not known.is_harmless:
            return False
        job.is_placed, exchange.params = False, job.said
        return True

    def receive_result(self, exchange: Exchange, result: bytes) -> bool:
        """A result came. True if it is answered here, now or once its files are taken in."""
        job = self._jobs.get(exchange.key)
        if job is None:
            return False
        if job.way is None:
            auto = job.link.plan.auto_files
            if auto is None or not auto.rewrite_text or not job.mentions:
                return False
            self._finish(job, self._retelling.reworded(job, result))  # nothing is taken in, and no path of ours shown
            return True
        self.outputs.take(job, job.way, result)
        return True

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, exchange: Exchange) -> None:
        """The exchange is over, however it ended."""
        job = self._jobs.pop(exchange.key, None)
        if job is not None:
            job.is_over = True
            self._inputs.release(job)

    def sweep(self, workspace: str) -> None:
        """Nothing works in the folders of a session any more: they go."""
        self._ledgers.pop(workspace, None)
        self._folders.sweep(workspace)

    def _finish(self, job: Job, result: bytes) -> None:
        self.onward.finish(job.link, job.exchange, envelope.encode_result(job.exchange.id_raw, result))
