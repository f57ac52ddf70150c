"""Tool calls that carry files: uploads become paths before the call, what the tool wrote becomes artifacts after it.

Storage takes time, so a call waits in a `Job` until its orders are answered. A good result is never lost over a file
that could not be taken in.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from . import catalog, delivery
from . import jsonrpc as rpc
from .artifact import attach, attach_error, locate, raw_block, tool_error
from .desk import Desk
from .effects import (
    Allocate,
    Allocated,
    Collect,
    Collected,
    CollectedFile,
    Discard,
    Fetch,
    Fetched,
    Forget,
    Materialize,
    Materialized,
    Save,
    Saved,
    StorageAnswer,
)
from .exchange import Exchange, ExchangeKey
from .filename import mime_type_of, safe_filename, with_suffix
from .labels import describe
from .links import Link
from .plan import ArtifactProducer, LocatorMode, UploadConsumer
from .shelf import Hold, Shelf, StoredArtifact, Upload
from .waiting import Waiting, reason_of


class Onward(Protocol):
    """Where the file plane sends what it is done with."""

    def forward(self, link: Link, exchange: Exchange) -> None: ...

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None: ...


class Job:
    """One call under way.

    Attributes:
        open_orders: storage orders it waits for.
        problem: why it cannot go on, once something failed.
    """

    __slots__ = (
        "aid",
        "allocated",
        "artifacts",
        "consumers",
        "exchange",
        "is_over",
        "link",
        "open_orders",
        "pinned",
        "problem",
        "producer",
        "raw",
        "tool",
    )

    def __init__(self, link: Link, exchange: Exchange, tool: str) -> None:
        self.link = link
        self.exchange = exchange
        self.tool = tool
        self.consumers: list[UploadConsumer] = []
        self.producer: ArtifactProducer | None = None
        self.pinned: dict[str, Upload] = {}
        self.aid = ""
        self.allocated: str | None = None
        self.open_orders = 0
        self.problem: str | None = None
        self.is_over = False
        self.artifacts: list[StoredArtifact] = []
        self.raw: dict[str, bytes] = {}


class Calls:
    """The calls under way of all sessions."""

    def __init__(self, desk: Desk, shelf: Shelf, waiting: Waiting) -> None:
        self.onward: Onward
        self._desk = desk
        self._shelf = shelf
        self._waiting = waiting
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
                found.pins += 1
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
            self._finish(job.link, job.exchange, tool_error(job.problem))
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
        return self._capture(job, job.producer, result)

    def _capture(self, job: Job, producer: ArtifactProducer, result: bytes) -> bool:
        """Take in the files a result names. A good result is never lost over it."""
        limits = self._desk.limits
        sources = locate(result, producer, job.allocated, limits.artifacts_per_call_max)
        if not sources:
            is_error = rpc.member_of(result, "isError") == b"true"
            if is_error or producer.output_locator.mode is LocatorMode.NONE:
                return False
            self._deliver(job, producer, result, "the result names no file")
            return True
        blobs = tuple(self._desk.mint() for _ in sources)
        session = job.link.session
        room = self._shelf.room(session.sid)

        def late(answer: StorageAnswer) -> None:
            for blob, file in zip(blobs, answer.files if isinstance(answer, Collected) else (), strict=False):
                if not file.problem:
                    self._desk.order(Discard(blob=blob))

        def collected(answer: StorageAnswer) -> None:
            if isinstance(answer, Collected):
                self._take_in(job, producer, result, blobs, answer.files)
            elif not job.is_over:
                self._deliver(job, producer, result, reason_of(answer))

        self._waiting.order(
            lambda ticket: Collect(
                ticket=ticket,
                server=session.server,
                workspace=session.workspace,
                sources=tuple(sources),
                blobs=blobs,
                size_max_bytes=limits.artifact_size_max_bytes,
                total_size_max_bytes=room,
            ),
            collected,
            late=late,
        )
        return True

    def _take_in(
        self,
        job: Job,
        producer: ArtifactProducer,
        result: bytes,
        blobs: tuple[str, ...],
        files: tuple[CollectedFile, ...],
    ) -> None:
        session = job.link.session
        problems: list[str] = []
        seen: set[str] = set()
        holds: list[Hold] = []
        for blob, file in zip(blobs, files, strict=True):
            if file.problem:
                problems.append(file.problem)
                continue
            is_twice = bool(file.path) and file.path in seen
            has_slot = self._shelf.artifact_slots(session.sid) > 0
            is_over_limit = not has_slot or file.size_bytes > self._shelf.room(session.sid)
            if job.is_over or is_twice or is_over_limit:
                self._desk.order(Discard(blob=blob))
                if is_over_limit and not is_twice:
                    problems.append("this session's storage is full")
                continue
            seen.add(file.path)
            job.artifacts.append(self._record(job, producer, blob, file))
            holds.append(self._shelf.hold(session.sid, file.size_bytes, artifacts=1))
        if job.is_over:
            return
        if not job.artifacts:
            self._deliver(job, producer, result, "; ".join(dict.fromkeys(problems)) or "nothing was found")
        for record, hold in zip(list(job.artifacts), holds, strict=True):
            self._save(job, producer, result, record, hold)

    def _record(self, job: Job, producer: ArtifactProducer, blob: str, file: CollectedFile) -> StoredArtifact:
        session = job.link.session
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
            is_exposed=producer.expose_as_resource and self._desk.plan.expose_as_resources,
            expires_at_unix=self._desk.now_unix + self._desk.limits.artifact_ttl_s,
        )

    def _save(self, job: Job, producer: ArtifactProducer, result: bytes, record: StoredArtifact, hold: Hold) -> None:
        def saved(answer: StorageAnswer) -> None:
            self._shelf.release(hold)
            if isinstance(answer, Saved) and not job.is_over:
                self._shelf.add_artifact(record)
            else:  # what failed may have been written all the same; of a call that was cancelled nobody is told
                job.problem = reason_of(answer)
                job.artifacts.remove(record)
                self._desk.order(Forget(key=record.key))
                self._desk.order(Discard(blob=record.blob))
            self._saved(job, producer, result)

        value = msgspec.json.encode(record)
        job.open_orders += 1
        self._waiting.order(
            lambda ticket: Save(ticket=ticket, key=record.key, value=value, expires_at_unix=record.expires_at_unix),
            saved,
        )
        if producer.allow_raw_output and record.size_bytes <= self._desk.limits.inline_size_max_bytes:
            self._fetch_raw(job, producer, result, record)

    def _fetch_raw(self, job: Job, producer: ArtifactProducer, result: bytes, record: StoredArtifact) -> None:
        limit = self._desk.limits.inline_size_max_bytes

        def fetched(answer: StorageAnswer) -> None:
            if isinstance(answer, Fetched):
                job.raw[record.aid] = answer.data
            self._saved(job, producer, result)

        job.open_orders += 1
        self._waiting.order(lambda ticket: Fetch(ticket=ticket, blob=record.blob, size_max_bytes=limit), fetched)

    def _saved(self, job: Job, producer: ArtifactProducer, result: bytes) -> None:
        job.open_orders -= 1
        if not job.is_over and not job.open_orders:
            self._deliver(job, producer, result, job.problem or "nothing was found")

    def _deliver(self, job: Job, producer: ArtifactProducer, result: bytes, problem: str) -> None:
        """Answer with the result and what was taken in; with none, say why."""
        if not job.artifacts:
            if producer.required:
                result = tool_error(f"The tool ran, but its output file was not found: {problem}.")
            else:
                result = attach_error(result, problem)
            self._finish(job.link, job.exchange, result)
            return
        shown = [describe(self._desk, job.link.session, record) for record in job.artifacts]
        raw = [
            raw_block(one.filename, one.mime_type, job.raw[one.artifact_id], one.artifact_uri)
            for one in shown
            if one.artifact_id in job.raw
        ]
        links = job.link.session.features.resource_links
        self._finish(job.link, job.exchange, attach(result, shown, resource_links=links, raw=raw))

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, exchange: Exchange) -> None:
        """The exchange is over, however it ended: what it used may expire again."""
        job = self._jobs.pop(exchange.key, None)
        if job is None:
            return
        job.is_over = True
        for upload in job.pinned.values():
            upload.pins -= 1

    def _finish(self, link: Link, exchange: Exchange, result: bytes) -> None:
        self.onward.finish(link, exchange, rpc.encode_result(exchange.id_raw, result))
