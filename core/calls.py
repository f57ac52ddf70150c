"""Tool calls that carry files: uploads become paths before the call, what the tool wrote becomes artifacts after it, as
`outputs` tells.

Storage takes time, so a call waits in a `Job` until its orders are answered.
"""

from __future__ import annotations

from typing import Protocol

from . import catalog, delivery
from . import jsonrpc as rpc
from .artifact import tool_error
from .desk import Desk
from .effects import (
    Allocate,
    Allocated,
    Materialize,
    Materialized,
    StorageAnswer,
)
from .exchange import Exchange, ExchangeKey
from .filename import safe_filename
from .job import Job
from .links import Link
from .outputs import Outputs
from .shelf import Shelf, Upload
from .waiting import Waiting, reason_of


class Onward(Protocol):
    """Where the file plane sends what it is done with."""

    def forward(self, link: Link, exchange: Exchange) -> None: ...

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None: ...


class Calls:
    """The calls under way of all sessions."""

    def __init__(self, desk: Desk, shelf: Shelf, waiting: Waiting) -> None:
        self.onward: Onward
        self._desk = desk
        self._shelf = shelf
        self._waiting = waiting
        self._outputs = Outputs(desk, shelf, waiting, self._finish)
        self._jobs: dict[ExchangeKey, Job] = {}

    # --- Into tools -------------------------------------------------------------------------------------------------

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        """A `tools/call` is about to go up. False if no adapter names the tool.

        Raises:
            RemoteProtocolError: its params have a member twice. Nothing has changed.
        """
        server, params = link.plan, exchange.params or b"{}"
        tool = rpc.text_of(rpc.member_of(params, "name")) or ""
        producers = server.producers if self._desk.plan.artifacts_enabled else ()
        job = Job(link, exchange, tool)
        job.consumers = [c for c in server.consumers if delivery.tool_named(c.tools, tool)]
        job.producer = next((p for p in producers if delivery.tool_named(p.tools, tool)), None)
        if not job.consumers and job.producer is None:
            return False
        self._jobs[exchange.key] = job
        exchange.params = params
        try:
            self._place_uploads(job)
            self._place_output(job)
        except delivery.ArgumentProblem as problem:
            job.problem = str(problem)
        self._go_on(job)
        return True

    def _place_uploads(self, job: Job) -> None:
        """Order every upload the call names to be made visible to the server."""
        session = job.link.session
        params = job.exchange.params
        assert params is not None
        if not self._desk.plan.uploads_enabled:
            self._check_no_files(job)
            return
        for consumer in job.consumers:
            for reference in delivery.find_references(params, consumer, helper=catalog.helper_name(session.server)):
                if reference.uid in job.pinned:
                    continue
                is_own = reference.sid == session.sid
                found = self._shelf.find_upload(session.server, session.sid, reference.uid) if is_own else None
                if found is None:
                    helper = catalog.helper_name(session.server)
                    raise delivery.ArgumentProblem(
                        f"Unknown upload handle {reference.text[:160]}: it has expired, or belongs to another session. "
                        f"Call {helper}, upload the file, and pass the handle from its response."
                    )
                self._shelf.pin(found)
                job.pinned[reference.uid] = found
                self._materialize(job, found)

    def _check_no_files(self, job: Job) -> None:
        """Uploads are switched off, so nothing can be in the arguments that are for uploaded files."""
        assert job.exchange.params is not None
        for consumer in job.consumers:
            try:
                has_files = bool(delivery.find_references(job.exchange.params, consumer, helper=""))
            except delivery.ArgumentProblem:
                has_files = True
            if has_files:
                name = consumer.file_path_argument
                raise delivery.ArgumentProblem(f"Argument {name} is for uploads, and uploads are switched off here.")

    def _materialize(self, job: Job, upload: Upload) -> None:
        record = upload.record
        workspace = job.link.session.workspace

        def placed(answer: StorageAnswer) -> None:
            if isinstance(answer, Materialized):
                upload.path = answer.path
            else:
                job.problem = f"The uploaded file {record.filename} cannot be handed to the tool: {reason_of(answer)}."
            self._answered(job)

        job.open_orders += 1
        self._waiting.order(
            lambda ticket: Materialize(
                ticket=ticket, workspace=workspace, blob=record.blob, upload=record.uid, filename=record.filename
            ),
            placed,
        )

    def _place_output(self, job: Job) -> None:
        producer = job.producer
        if producer is None or producer.output_path_argument is None or not producer.persist:
            return
        assert job.exchange.params is not None
        job.aid = self._desk.mint()
        wanted = delivery.requested_filename(job.exchange.params, producer.output_path_argument)
        filename = safe_filename(wanted or "", f"artifact-{job.aid[:8]}")
        workspace = job.link.session.workspace

        def allocated(answer: StorageAnswer) -> None:
            if isinstance(answer, Allocated):
                job.allocated = answer.path
            else:
                job.problem = f"No place could be made for the tool's output: {reason_of(answer)}."
            self._answered(job)

        job.open_orders += 1
        self._waiting.order(
            lambda ticket: Allocate(ticket=ticket, workspace=workspace, artifact=job.aid, filename=filename), allocated
        )

    def _answered(self, job: Job) -> None:
        job.open_orders -= 1
        self._go_on(job)

    def _go_on(self, job: Job) -> None:
        """Send the call up once everything it needs is in place, or answer it with what is wrong."""
        if job.is_over or job.open_orders:
            return
        if job.problem is None:
            try:
                job.exchange.params = self._rewritten(job)
            except delivery.ArgumentProblem as problem:
                job.problem = str(problem)
        if job.problem is not None:
            self._finish(job, tool_error(job.problem))
        else:
            self.onward.forward(job.link, job.exchange)

    def _rewritten(self, job: Job) -> bytes:
        params = job.exchange.params
        assert params is not None
        helper = catalog.helper_name(job.link.plan.id)
        for consumer in job.consumers:
            placed = []
            for reference in delivery.find_references(params, consumer, helper=helper):
                path = job.pinned[reference.uid].path
                assert path is not None
                placed.append((reference, path))
            params = delivery.deliver(params, consumer, placed)
        if job.allocated is not None:
            assert job.producer is not None
            assert job.producer.output_path_argument is not None
            params = delivery.place_output(params, job.producer.output_path_argument, job.allocated)
        return params

    # --- Out of tools -----------------------------------------------------------------------------------------------

    def receive_result(self, exchange: Exchange, result: bytes) -> bool:
        """A result came. True if it is answered here, now or once its files are taken in."""
        job = self._jobs.get(exchange.key)
        if job is None or job.producer is None or not job.producer.persist:
            return False
        return self._outputs.take(job, job.producer, result)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, exchange: Exchange) -> None:
        """The exchange is over, however it ended: what it used may expire again."""
        job = self._jobs.pop(exchange.key, None)
        if job is None:
            return
        job.is_over = True
        for upload in job.pinned.values():
            self._shelf.unpin(upload)

    def _finish(self, job: Job, result: bytes) -> None:
        self.onward.finish(job.link, job.exchange, rpc.encode_result(job.exchange.id_raw, result))
