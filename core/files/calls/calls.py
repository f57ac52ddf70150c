"""Tool calls that carry files: `inputs` turns uploads into paths before the call, and `outputs` turns what the tool
wrote into artifacts after it.

Storage takes time, so a call waits in a `FileCall` until its orders are answered.
"""

from __future__ import annotations

from ...base.path_mapping import to_here, to_there
from ...base.plan import LocatorMode, OutputLocator, ServerPlan
from ...base.storage import StorageAnswer, Survey, Surveyed
from ...bridge.content import tool_error
from ...jsonrpc import envelope
from ...state.context import Context
from ...state.exchange import Exchange, ExchangeKey
from ...state.link import Link
from ...state.storage_orders import StorageOrders
from ..store.room import Room
from ..store.store import FileStore
from ..store.workspaces import WorkspaceOrders
from . import arguments, claims, mentions, tool_hints
from .absolute_names import AbsoluteNames
from .inline_inputs import InlineInputs
from .inputs import Inputs
from .job import FileCall, OutputRule, rule_of
from .linked_resources import LinkedResources
from .missing_inputs import MissingInputs
from .output_paths import OutputPaths
from .outputs import Outputs
from .result_rewriter import AREAS, ResultRewriter, cwd_of
from .selection import CLOCK_SLACK_S
from .workspace_files import KnownFiles


class Calls:
    """The calls under way that carry files, of all sessions."""

    def __init__(
        self,
        context: Context,
        file_store: FileStore,
        storage_orders: StorageOrders,
        workspaces: WorkspaceOrders,
        linked_resources: LinkedResources,
        inline_inputs: InlineInputs,
        room: Room,
    ) -> None:
        self._context = context
        self._file_store = file_store
        self._storage_orders = storage_orders
        self._workspaces = workspaces
        self._inputs = Inputs(context, file_store, storage_orders, workspaces, self._answered, inline_inputs)
        self._absolute_names = AbsoluteNames()
        self._output_paths = OutputPaths(context, workspaces, self._answered)
        self._result_rewriter = ResultRewriter(context, file_store)
        self._outputs = Outputs(
            context, file_store, storage_orders, self._result_rewriter, linked_resources, room, self._finish
        )
        self._missing_inputs = MissingInputs(context, storage_orders)
        self._jobs: dict[ExchangeKey, FileCall] = {}
        self._known_files_by_workspace: dict[str, KnownFiles] = {}

    # --- Before a call ----------------------------------------------------------------------------------------------

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        """Receives a `tools/call` before it is sent. True if it waits or is answered here, False if no files are
        involved.

        Raises:
            RemoteProtocolError: its params have a member twice. Nothing has changed.
        """
        params = exchange.params or b"{}"
        tool = envelope.text_of(envelope.member_of(params, "name")) or ""
        consumers = [c for c in link.plan.consumers if arguments.tool_named(c.tools, tool)]
        rule = self._rule_for(link.plan, tool)
        has_rules = consumers or rule is not None or link.plan.auto_files is not None
        if not has_rules and not mentions.names_new_file(params):
            return False
        job = FileCall(link, exchange, tool, self._known_files(link), consumers=consumers, rule=rule)
        exchange.replace_params(params)
        try:
            self._inputs.find(job)
        except arguments.ArgumentProblem as problem:
            job.fail(str(problem))
        if not (job.inputs or job.inline or job.new_files) and rule is None and job.problem is None:
            return False
        job.collect_new_files()
        self._jobs[exchange.key] = job
        self._known_files_by_workspace[link.workspace] = job.known_files
        link.furnish()
        job.expect_answer()  # keeps the call waiting until all orders are given
        if job.problem is None:
            self._inputs.order(job)
            try:
                self._output_paths.order(job)
            except arguments.ArgumentProblem as problem:
                job.fail(str(problem))
            self._survey_before(job)
        self._answered(job)
        return True

    def _rule_for(self, plan: ServerPlan, tool: str) -> OutputRule | None:
        if not self._context.plan.artifacts_enabled:
            return None
        producer = next((p for p in plan.producers if arguments.tool_named(p.tools, tool)), None)
        if producer is not None:
            return rule_of(producer) if producer.persist else None
        auto = plan.auto_files
        if auto is None:
            return None
        return OutputRule(
            auto,
            auto.expose_as_resource,
            rewrite_text=auto.rewrite_text,
            inline_text_bytes=auto.inline_text_bytes,
            links=auto.links,
        )

    def _known_files(self, link: Link) -> KnownFiles:
        found = self._known_files_by_workspace.get(link.workspace)
        limits = self._context.limits
        return KnownFiles(2 * limits.files_known_max, limits.files_awaited_max) if found is None else found

    def _survey_before(self, job: FileCall) -> None:
        """Surveys the files before the call, if its output is recognised by what changes."""
        rule, link = job.rule, job.link
        if rule is None or not (
            rule.modes is None or {LocatorMode.ARGUMENT, LocatorMode.CHANGED}.intersection(rule.modes)
        ):
            return
        areas = () if job.known_files.is_begun else AREAS
        names = rule.rules.path_arguments if isinstance(rule.rules, OutputLocator) else ()
        raw_arguments = envelope.member_of(job.exchange.params, "arguments") or b"{}"
        paths = claims.argument_paths(raw_arguments, names, self._context.limits.arguments_read_max)
        if not areas and not paths:
            return
        named = tuple(tuple(to_here(path, link.plan.shared) for path in spellings) for spellings in paths)
        ordered_at_unix = self._context.now_unix

        def seen(answer: StorageAnswer) -> None:
            if isinstance(answer, Surveyed):
                # A concurrent call may have begun it meanwhile, and its tool may have written files since.
                if areas and not job.known_files.is_begun:
                    oldest_at_unix = ordered_at_unix - CLOCK_SLACK_S if answer.is_cut else 0.0
                    job.known_files.begin(answer.listed, oldest_at_unix, ordered_at_unix)
                for sighting in answer.named:
                    job.receive_baseline(sighting.files if sighting.left is None else (sighting.left,))
            self._answered(job)  # a survey that failed is reported when files are to be collected

        job.expect_answer()
        self._storage_orders.order(
            lambda ticket: Survey(
                ticket=ticket,
                server=link.plan.id,
                workspace=link.workspace,
                named=named,
                areas=areas,
                entries_max=self._context.limits.files_known_max,
            ),
            seen,
        )

    def _answered(self, job: FileCall) -> None:
        """Sends the call once everything it needs is in place, or answers it with its problem."""
        if not job.receive_answer():
            return
        if job.problem is not None:
            self._finish(job, tool_error(job.problem))
        else:
            job.begin(self._context.now)
            job.link.router.forward(job.link, job.exchange, after="files")

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """Writes the params of a call that is about to be sent to a ready server. True if it waits, or is answered."""
        job = self._jobs.get(exchange.key)
        if job is None or job.is_placed:
            return False
        if job.mentions and link.tools.hints is None:
            link.router.read_tools(link, exchange)
            return True
        known = (link.tools.hints or {}).get(job.tool)
        try:
            params = self._inputs.write(job, known)
            params = self._output_paths.write(job, params)
            params = self._absolute_names.write(job, params, cwd_of(self._context.plan, link))
        except arguments.ArgumentProblem as problem:
            self._finish(job, tool_error(str(problem)))
            return True
        job.place(params)
        return False

    # --- After a call -----------------------------------------------------------------------------------------------

    def wants_again(self, link: Link, exchange: Exchange, refusal: bytes) -> bool:
        """True if the call is to be sent once more, with URIs in place of paths, or absolute paths in place of names.

        That is the case if the tool refused what it was given only because it takes these, and sending it once more is
        safe.

        Args:
            refusal: the JSON of a result, or of an error.
        """
        job = self._jobs.get(exchange.key)
        if job is None:
            return False
        if cwd_of(self._context.plan, link) and self._absolute_names.learn(job, refusal):
            job.undo_place()
            return True
        return bool(job.mentions) and self._wants_uris(link, job, refusal)

    def _wants_uris(self, link: Link, job: FileCall, result: bytes) -> bool:
        paths = [given.path for given in job.inputs.values() if given.path is not None]
        paths += [to_there(path, link.plan.shared) for path in job.new_files.values()]
        known = (link.tools.hints or {}).get(job.tool)
        if not tool_hints.says_uri(result, paths) or not self._inputs.learn(job, known):
            return False
        if known is None or not known.is_harmless:
            return False
        job.undo_place()
        return True

    def receive_result(self, exchange: Exchange, result: bytes) -> bool:
        """Receives a result. True if it is answered here, now or once its files are collected."""
        job = self._jobs.get(exchange.key)
        if job is None:
            return False
        if job.rule is None:
            auto = job.link.plan.auto_files
            if auto is None or not auto.rewrite_text or not job.mentions:
                return False
            # Nothing is collected, but the paths of the files that the call was given must not be shown.
            self._finish(job, self._result_rewriter.reworded(job, result))
            return True
        rule = job.rule
        if not self._missing_inputs.look(job, result, lambda advised: self._outputs.take(job, rule, advised)):
            self._outputs.take(job, rule, result)
        return True

    def without_paths(self, link: Link, message: bytes) -> bytes:
        """See `ResultRewriter`."""
        return self._result_rewriter.without_paths(link, message)

    def with_path(self, link: Link, uri: str) -> str:
        """See `ResultRewriter`."""
        return self._result_rewriter.with_path(link, uri)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, exchange: Exchange) -> None:
        """Drops the call of an exchange that is over, however it ended, and unpins its files."""
        job = self._jobs.pop(exchange.key, None)
        if job is not None:
            job.end()
            self._inputs.release(job)

    def sweep(self, workspace: str) -> None:
        """Removes the folders of a session in which no server process works any more."""
        self._known_files_by_workspace.pop(workspace, None)
        self._workspaces.sweep(workspace)

    def _finish(self, job: FileCall, result: bytes) -> None:
        job.link.router.finish(job.link, job.exchange, envelope.encode_result(job.exchange.id_raw, result))
