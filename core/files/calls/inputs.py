"""Input files of one call: checks the handles in its arguments, and gives the tool the files.

A handle that is unknown, expired or of another client is refused (`FileStore.find` decides). The file of a good one is
placed for the server, or read, and the handle is replaced by what the tool takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from ...base.path_mapping import to_there
from ...base.plan import Deliver
from ...base.storage import Fetch, Fetched, Materialize, Materialized, StorageAnswer
from ...jsonrpc.splice import splice
from ...state.context import Context
from ...state.storage_orders import StorageOrders, reason_of
from ...state.tool_hints import Hints
from ..store.owners import user_of
from ..store.store import FileStore
from ..store.workspaces import WorkspaceOrders
from . import arguments, mentions, offers
from .arguments import ON_DISK, ArgumentProblem, Reference
from .inline_inputs import InlineInputs, find_data_uris
from .job import FileCall, FileInput
from .mentions import Mention
from .upload_tools import UploadTools
from .uris import link_to, uri_of

READ: Final = frozenset({Deliver.DATA_URI, Deliver.BASE64, Deliver.TEXT})
LEARNED_MAX: Final = 1024
"""Arguments known from a refusal to take URIs: those of some hundred tools, over all servers. At it: the oldest is
forgotten."""


class Inputs:
    """Hands files to calls.

    Args:
        answered: called with the call when one of its orders was answered.
    """

    def __init__(
        self,
        context: Context,
        file_store: FileStore,
        storage_orders: StorageOrders,
        workspaces: WorkspaceOrders,
        answered: Callable[[FileCall], None],
        inline_inputs: InlineInputs,
    ) -> None:
        self._inline_inputs = inline_inputs
        self._context = context
        self._file_store = file_store
        self._storage_orders = storage_orders
        self._workspaces = workspaces
        self._answered = answered
        self._learned: OrderedDict[tuple[str, str, str], None] = OrderedDict()  # server, tool, argument

    # --- Handles ----------------------------------------------------------------------------------------------------

    def find(self, job: FileCall) -> None:
        """Finds every handle in the arguments, and pins the file that it stands for.

        Raises:
            ArgumentProblem: a value is no handle, or stands for no file that the caller may use.
        """
        params, server = job.exchange.params, job.link.plan
        assert params is not None
        tools = offers.upload_tools(self._context, job.link.session_of(job.exchange), server.id)
        if not self._context.plan.uploads_enabled:
            self._check_no_files(job, params)
        references = arguments.find_references(params, job.consumers, how=tools.how)
        is_auto = not job.consumers and server.auto_files is not None
        mentioned: list[Mention] = []
        if is_auto or mentions.names_new_file(params):
            limit = arguments.REFERENCES_MAX
            found_anywhere = mentions.find_mentions(params, schemes=(server.upload_scheme,), limit=limit)
            # Where adapters say which arguments take files, other handles are the server's own business.
            mentioned = [
                one for one in found_anywhere if is_auto or (one.kind == "new" and not _is_in(one, references))
            ]
            hints = (job.link.tools.hints or {}).get(job.tool)
            if is_auto and hints is not None and self._context.plan.uploads_enabled:
                mentioned += find_data_uris(params, hints, limit=limit - len(mentioned))
        job.receive_found(references, mentioned)
        all_found: list[Reference | Mention] = [*references, *mentioned]
        self._inline_inputs.read(job, all_found, tools)
        for found in all_found:
            self._resolve(job, found, tools)

    def _check_no_files(self, job: FileCall, params: bytes) -> None:
        """Checks that the arguments that take files hold nothing but artifacts, since uploads are switched off.

        Raises:
            ArgumentProblem: there is anything else.
        """
        for consumer in job.consumers:
            try:
                found = arguments.find_references(params, [consumer], how="")
                has_uploads = any(reference.kind != "artifact" for reference in found)
            except ArgumentProblem:
                has_uploads = True
            if has_uploads:
                name = ", ".join(consumer.arguments)
                raise ArgumentProblem(f"Argument {name} is for uploads, and uploads are switched off here.")

    def _resolve(self, job: FileCall, found: Reference | Mention, tools: UploadTools) -> None:
        if found.kind == "new":
            if not self._context.plan.artifacts_enabled:
                raise ArgumentProblem(f"Got {found.text[:160]!r}, and new files are switched off here.")
            job.add_new_file(found.id)
            return
        key = _key(found)
        if key in job.inputs or found.kind == "inline":
            return
        session = job.link.session_of(job.exchange)
        user = user_of(self._context, session)
        entry = self._file_store.find(user, of_sid=found.sid, id=found.id, kind=found.kind)
        if entry is None:
            gone = self._file_store.gone(user, of_sid=found.sid, id=found.id, kind=found.kind)
            why = gone or "it has expired, or belongs to another client"
            if found.kind == "artifact":
                again = "Call the tool that made it again, or upload the file."
                raise ArgumentProblem(f"Unknown artifact {found.text[:160]}: {why}. {again}")
            raise ArgumentProblem(
                f"Unknown upload handle {found.text[:160]}: {why}. Upload the file again: {tools.how}."
            )
        self._file_store.pin(entry)
        job.add_input(key, entry)

    # --- Orders -----------------------------------------------------------------------------------------------------

    def order(self, job: FileCall) -> None:
        """Orders the files to be placed where the server sees them, or to be read, as their arguments need. Content in
        the arguments is stored before."""
        if not job.inline:
            self._order(job)
            return

        def stored() -> None:
            if not job.is_over and job.problem is None:
                self._order(job)
            self._answered(job)

        job.expect_answer()
        self._inline_inputs.store(job, stored)

    def _order(self, job: FileCall) -> None:
        on_disk: set[tuple[str, str, str]] = {_key(mention) for mention in job.mentions}
        on_disk |= {_key(reference) for reference in job.references if reference.deliver in ON_DISK}
        read = {_key(reference) for reference in job.references if reference.deliver in READ}
        if read and not self._fits(job):
            return
        for key, given in job.inputs.items():
            if key in on_disk:
                self._place(job, given, given.entry.record.id)
            if key in read:
                self._read(job, given)

    def _place(self, job: FileCall, given: FileInput, id: str) -> None:
        record, link, known_files = given.entry.record, job.link, job.known_files
        folder = f"{self._context.plan.workspaces_path}/{link.workspace}/{link.plan.stage}/{id}"

        def placed(answer: StorageAnswer) -> None:
            known_files.end_placing(folder)
            if isinstance(answer, Materialized):
                given.receive_placed(to_there(answer.path, link.plan.shared))
                known_files.place(answer.path, answer.stamp, uri_of(record, link.plan.upload_scheme))
            else:
                job.fail(f"The uploaded file {record.filename} cannot be handed to the tool: {reason_of(answer)}.")
            self._answered(job)

        job.expect_answer()
        known_files.begin_placing(folder)
        self._workspaces.order(
            link.workspace,
            lambda ticket: Materialize(
                ticket=ticket,
                workspace=link.workspace,
                blob=record.blob,
                upload=id,
                filename=record.filename,
                folder=link.plan.stage,
            ),
            placed,
        )

    def _fits(self, job: FileCall) -> bool:
        """True if the content put into the call is within `inline_size_max_bytes`; else sets `problem`. A file counts
        once for each place it is put."""
        limit = self._context.limits.inline_size_max_bytes
        records = [job.inputs[_key(r)].entry.record for r in job.references if r.deliver in READ]
        size = sum(record.size_bytes for record in records)
        if size > limit:
            what = f"The file {records[0].filename} has" if len(records) == 1 else "These files together have"
            job.fail(
                f"{what} {size} bytes, and this tool takes the content itself: at most {limit} bytes are put into a "
                "call."
            )
        return size <= limit

    def _read(self, job: FileCall, given: FileInput) -> None:
        record, limit = given.entry.record, self._context.limits.inline_size_max_bytes

        def fetched(answer: StorageAnswer) -> None:
            if isinstance(answer, Fetched):
                given.receive_data(answer.data)
            else:
                job.fail(f"The file {record.filename} cannot be handed to the tool: {reason_of(answer)}.")
            self._answered(job)

        job.expect_answer()
        self._storage_orders.order(lambda ticket: Fetch(ticket=ticket, blob=record.blob, size_max_bytes=limit), fetched)

    # --- Params -----------------------------------------------------------------------------------------------------

    def write(self, job: FileCall, hints: Hints | None) -> bytes:
        """Returns the params as the server is to have them.

        Raises:
            ArgumentProblem: a file cannot be passed in the form that its argument takes.
        """
        params = job.exchange.params
        assert params is not None
        delivered = arguments.deliveries([(found, self._text(job, found)) for found in job.references])
        placed = [(found, self._path(job, found)) for found in job.mentions]
        replaced = mentions.replacements(placed, lambda found: self._form(job, found, hints))
        return splice(params, [*delivered, *replaced])

    def _path(self, job: FileCall, found: Reference | Mention) -> str:
        if found.kind == "new":
            return to_there(job.new_files[found.id], job.link.plan.shared)
        path = job.inputs[_key(found)].path
        assert path is not None
        return path

    def _text(self, job: FileCall, found: Reference) -> str:
        if found.deliver in ON_DISK:
            return arguments.form(found.deliver, self._path(job, found))
        given = job.inputs[_key(found)]
        record = given.entry.record
        if found.deliver is Deliver.URL:
            url = link_to(self._context, job.link.session_of(job.exchange), record)
            if url is None:
                raise ArgumentProblem(
                    f"Argument {found.label}: {record.filename} is to be passed as a link, and there is no HTTP "
                    "listener, or downloads are switched off."
                )
            return url
        assert given.data is not None
        return arguments.embedded(found.deliver, given.data, record.mime_type, label=found.label)

    def _form(self, job: FileCall, found: Mention, hints: Hints | None) -> Deliver:
        is_learned = self._argument(job, found) in self._learned
        if found.is_whole and (is_learned or (hints is not None and hints.wants_uri(found.label, found.key))):
            return Deliver.FILE_URI
        return Deliver.PATH

    def learn(self, job: FileCall, hints: Hints | None) -> bool:
        """Learns from a refusal of paths which arguments take URIs. True if any is new, so that the same call would
        differ now."""
        bare = [one for one in job.mentions if one.is_whole and not one.has_prefix]
        as_paths = [self._argument(job, one) for one in bare if self._form(job, one, hints) is Deliver.PATH]
        for key in as_paths:
            self._learned[key] = None
            self._learned.move_to_end(key)
            if len(self._learned) > LEARNED_MAX:
                self._learned.popitem(last=False)
        return bool(as_paths)

    def _argument(self, job: FileCall, found: Mention) -> tuple[str, str, str]:
        return job.link.plan.id, job.tool, found.key

    def release(self, job: FileCall) -> None:
        """Unpins the files of a call that is over: they may expire again."""
        for given in job.inputs.values():
            self._file_store.unpin(given.entry)


def _is_in(mention: Mention, references: Sequence[Reference]) -> bool:
    return any(reference.start <= mention.start < reference.stop for reference in references)


def _key(found: Reference | Mention) -> tuple[str, str, str]:
    return found.kind, found.sid, found.id
