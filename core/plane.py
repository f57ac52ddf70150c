"""The file plane: what happens to calls and results of servers with adapters on their way through.

Before a call, upload handles become files that the server can open and output arguments become places it can write to.
After it, the files it made are taken in and named in the result. Everything else passes untouched.

Storage takes time, so a call waits in a `Job` until its orders are answered; `Waiting` pairs orders with what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote, urlencode

import msgspec

from . import catalog, delivery, handle
from . import jsonrpc as rpc
from .artifact import Artifact, attach, attach_error, locate, raw_block, tool_error
from .desk import Desk
from .effects import (
    Allocate,
    Allocated,
    Collect,
    Collected,
    CollectedFile,
    Discard,
    Effect,
    Fetch,
    Fetched,
    Materialize,
    Materialized,
    Save,
    Saved,
    StorageAnswer,
    StorageFailed,
    Sweep,
)
from .errors import INTERNAL_ERROR, INVALID_PARAMS, OVERLOADED, RESOURCE_NOT_FOUND, RemoteProtocolError
from .exchange import Exchange, ExchangeKey
from .filename import mime_type_of, safe_filename, with_suffix
from .ids import Ticket
from .links import Link
from .plan import ArtifactProducer, LocatorMode, ServerPlan, UploadConsumer
from .session import Session
from .shelf import Shelf, StoredArtifact, Upload

Then = Callable[[StorageAnswer], None]


class Waiting:
    """Storage orders that were given, and what to do with the answer to each. An order unanswered in time failed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._thens: dict[Ticket, Then] = {}

    def order(self, make: Callable[[Ticket], Effect], then: Then) -> None:
        ticket = self._desk.new_ticket()
        self._thens[ticket] = then
        at = self._desk.now + self._desk.limits.storage_timeout_s
        self._desk.timers.set(("storage", ticket), at, "storage order")
        self._desk.order(make(ticket))

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer) -> bool:
        """False if nothing waits for it (any more)."""
        then = self._thens.pop(ticket, None)
        if then is None:
            return False
        self._desk.timers.cancel(("storage", ticket))
        then(answer)
        return True

    def handle_timeout(self, ticket: Ticket) -> None:
        limit = self._desk.limits.storage_timeout_s
        self.receive_answer(ticket, StorageFailed(reason=f"storage did not answer within {limit:g} s"))


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


class FilePlane:
    """Decides for servers with adapters; see `servers.FileRules` for what is asked of it."""

    def __init__(self, desk: Desk, shelf: Shelf, nonces: handle.Nonces, waiting: Waiting) -> None:
        self.onward: Onward
        self._desk = desk
        self._shelf = shelf
        self._nonces = nonces
        self._waiting = waiting
        self._jobs: dict[ExchangeKey, Job] = {}

    def offers_uploads(self, server: ServerPlan) -> bool:
        return bool(server.consumers) and self._desk.plan.uploads_enabled

    def offers_resources(self, server: ServerPlan) -> bool:
        plan = self._desk.plan
        return (
            plan.artifacts_enabled and plan.expose_as_resources and any(p.expose_as_resource for p in server.producers)
        )

    # --- Handshake and roots ----------------------------------------------------------------------------------------

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        server = link.plan
        uploads = self.offers_uploads(server)
        return catalog.extend_capabilities(
            result, server, offers_uploads=uploads, offers_resources=self.offers_resources(server) or uploads
        )

    def roots_of(self, session: Session) -> bytes:
        """The session's own folders, the working one first: some servers take the first root as theirs."""
        base = f"{self._desk.plan.workspaces_path}/{session.workspace}"
        roots = [{"uri": "file://" + quote(f"{base}/{name}"), "name": name} for name in ("ws", "in", "out")]
        return msgspec.json.encode({"roots": roots})

    # --- Requests ---------------------------------------------------------------------------------------------------

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        try:
            if exchange.method == "tools/call":
                return self._receive_tool_call(link, exchange)
            if exchange.method == "resources/read":
                return self._receive_read(link, exchange)
        except RemoteProtocolError as error:
            self._fail(link, exchange, INVALID_PARAMS, error.message)
            return True
        capability = {"tools/list": "tools", "resources/list": "resources", "resources/templates/list": "resources"}
        missing = capability.get(exchange.method)
        if missing is None or missing in link.upstream.capabilities:
            return False
        empty = {"tools/list": b'{"tools":[]}', "resources/list": b'{"resources":[]}'}
        result = empty.get(exchange.method, b'{"resourceTemplates":[]}')
        self._finish(link, exchange, self._extended(link, exchange, result) or result)
        return True

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bool:
        extended = self._extended(link, exchange, result)
        if extended is not None:
            self._finish(link, exchange, extended)
            return True
        job = self._jobs.get(exchange.key)
        if job is None or job.producer is None or not job.producer.persist:
            return False
        return self._capture(job, job.producer, result)

    def _extended(self, link: Link, exchange: Exchange, result: bytes) -> bytes | None:
        """A list with our own entries in it; None where there is nothing to add."""
        server = link.plan
        if exchange.method == "tools/list" and server.consumers:
            is_first = rpc.member_of(exchange.params, "cursor") is None
            uploads = self.offers_uploads(server)
            return catalog.extend_tools(result, server, is_first_page=is_first, offers_uploads=uploads)
        if exchange.method == "resources/list" and rpc.member_of(result, "nextCursor") is None:
            entries = [catalog.workflow_entry()] if self.offers_uploads(server) else []
            if self.offers_resources(server):
                shown = [record for record in self._shelf.artifacts_of(link.session.sid) if record.is_exposed]
                entries += [catalog.resource_entry(self._describe(link, record), record.tool) for record in shown]
            return catalog.extend_resources(result, entries)
        return None

    def _receive_read(self, link: Link, exchange: Exchange) -> bool:
        uri = rpc.text_of(rpc.member_of(exchange.params, "uri")) or ""
        if uri == catalog.WORKFLOW_URI and self.offers_uploads(link.plan):
            text = catalog.workflow_text(catalog.helper_name(link.plan.id))
            self._finish(link, exchange, catalog.resource_contents(uri, "text/markdown", text.encode()))
            return True
        if not uri.startswith(handle.ARTIFACT_SCHEME):
            if "resources" not in link.upstream.capabilities:
                self._miss(link, exchange, uri)
                return True
            return False
        try:
            sid, aid = handle.parse_artifact(uri)
        except handle.HandleError:
            sid = aid = ""
        record = self._shelf.find_artifact(sid, aid)
        session = link.session
        if record is None or sid != session.sid or record.server != session.server or not record.is_exposed:
            self._miss(link, exchange, uri)
            return True
        limit = self._desk.limits.inline_size_max_bytes
        if record.size_bytes > limit:
            url = self._describe(link, record).download_url
            text = f"{uri} has {record.size_bytes} bytes, more than the {limit} that are put into a message"
            self._fail(link, exchange, OVERLOADED, text + (f": download it from {url}" if url else ""))
            return True

        job = self._begin(link, exchange, record.tool)

        def contents(answer: StorageAnswer) -> None:
            if job.is_over:
                return
            if isinstance(answer, Fetched):
                self._finish(link, exchange, catalog.resource_contents(uri, record.mime_type, answer.data))
            else:
                self._fail(link, exchange, INTERNAL_ERROR, f"{uri} could not be read: {_reason(answer)}")

        self._waiting.order(lambda ticket: Fetch(ticket=ticket, blob=record.blob, size_max_bytes=limit), contents)
        return True

    def _miss(self, link: Link, exchange: Exchange, uri: str) -> None:
        data = {"uri": uri}
        message = rpc.encode_error(exchange.id_raw, RESOURCE_NOT_FOUND, f"Resource not found: {uri}", data)
        self.onward.finish(link, exchange, message)

    # --- Into tools -------------------------------------------------------------------------------------------------

    def _receive_tool_call(self, link: Link, exchange: Exchange) -> bool:
        server, params = link.plan, exchange.params or b"{}"
        tool = rpc.text_of(rpc.member_of(params, "name")) or ""
        if tool == catalog.helper_name(server.id) and self.offers_uploads(server):
            self._offer_upload(link, exchange)
            return True
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

    def _begin(self, link: Link, exchange: Exchange, tool: str) -> Job:
        job = self._jobs[exchange.key] = Job(link, exchange, tool)
        return job

    def _place_uploads(self, job: Job) -> None:
        """Order every upload the call names to be made visible to the server."""
        session = job.link.session
        params = job.exchange.params
        assert params is not None
        for consumer in job.consumers:
            for reference in delivery.find_references(params, consumer, helper=catalog.helper_name(session.server)):
                if reference.uid in job.pinned:
                    continue
                found = self._shelf.find_upload(session.server, reference.sid, reference.uid)
                if found is None or reference.sid != session.sid:
                    helper = catalog.helper_name(session.server)
                    raise delivery.ArgumentProblem(
                        f"Unknown upload handle {reference.text[:160]}: it has expired, or belongs to another session. "
                        f"Call {helper}, upload the file, and pass the handle from its response."
                    )
                found.pins += 1
                job.pinned[reference.uid] = found
                self._materialize(job, found)

    def _materialize(self, job: Job, upload: Upload) -> None:
        record = upload.record
        workspace = job.link.session.workspace

        def placed(answer: StorageAnswer) -> None:
            if isinstance(answer, Materialized):
                upload.path = answer.path
            else:
                job.problem = f"The uploaded file {record.filename} cannot be handed to the tool: {_reason(answer)}."
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
                job.problem = f"No place could be made for the tool's output: {_reason(answer)}."
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

        def collected(answer: StorageAnswer) -> None:
            if isinstance(answer, Collected):
                self._take_in(job, producer, result, blobs, answer.files)
            elif not job.is_over:
                self._deliver(job, producer, result, _reason(answer))

        self._waiting.order(
            lambda ticket: Collect(
                ticket=ticket,
                server=session.server,
                workspace=session.workspace,
                sources=tuple(sources),
                blobs=blobs,
                size_max_bytes=min(limits.artifact_size_max_bytes, room),
            ),
            collected,
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
        count = len(self._shelf.artifacts_of(session.sid))
        room = self._shelf.room(session.sid)
        for blob, file in zip(blobs, files, strict=True):
            if file.problem:
                problems.append(file.problem)
                continue
            is_twice = bool(file.path) and file.path in seen
            is_over_limit = count >= self._desk.limits.artifacts_per_session_max or file.size_bytes > room
            if job.is_over or is_twice or is_over_limit:
                self._desk.order(Discard(blob=blob))
                if is_over_limit and not is_twice:
                    problems.append("this session's storage is full")
                continue
            seen.add(file.path)
            count += 1
            room -= file.size_bytes
            job.artifacts.append(self._record(job, producer, blob, file))
        if job.is_over:
            return
        if not job.artifacts:
            self._deliver(job, producer, result, "; ".join(dict.fromkeys(problems)) or "nothing was found")
        for record in list(job.artifacts):
            self._save(job, producer, result, record)

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
            filename=with_suffix(name, mime_type),
            mime_type=mime_type,
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            tool=job.tool,
            is_exposed=producer.expose_as_resource and self._desk.plan.expose_as_resources,
            expires_at_unix=self._desk.now_unix + self._desk.limits.artifact_ttl_s,
        )

    def _save(self, job: Job, producer: ArtifactProducer, result: bytes, record: StoredArtifact) -> None:
        def saved(answer: StorageAnswer) -> None:
            if isinstance(answer, Saved):
                self._shelf.add_artifact(record)
            else:
                job.problem = _reason(answer)
                job.artifacts.remove(record)
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
        shown = [self._describe(job.link, record) for record in job.artifacts]
        raw = [
            raw_block(one.filename, one.mime_type, job.raw[one.artifact_id], one.artifact_uri)
            for one in shown
            if one.artifact_id in job.raw
        ]
        links = job.link.session.features.resource_links
        self._finish(job.link, job.exchange, attach(result, shown, resource_links=links, raw=raw))

    def _describe(self, link: Link, record: StoredArtifact) -> Artifact:
        return Artifact(
            artifact_uri=handle.format_artifact(record.sid, record.aid, record.filename),
            artifact_id=record.aid,
            filename=record.filename,
            mime_type=record.mime_type,
            size_bytes=record.size_bytes,
            sha256=record.sha256,
            expose_as_resource=record.is_exposed,
            expires_at_unix=record.expires_at_unix,
            download_url=self._download_url(link, record),
        )

    def _download_url(self, link: Link, record: StoredArtifact) -> str | None:
        base = self._base_url(link.session)
        if not base or not self._desk.plan.downloads_enabled:
            return None
        query = handle.sign_download(
            self._desk.plan.link_key,
            server=record.server,
            sid=record.sid,
            artifact=record.aid,
            filename=record.filename,
            expires_at_unix=int(record.expires_at_unix),
        )
        path = f"/artifacts/{record.server}/{record.sid}/{record.aid}/{quote(record.filename, safe='')}"
        return f"{base}{path}?{urlencode(query)}"

    def _base_url(self, session: Session) -> str:
        plan = self._desk.plan
        return plan.public_base_url or session.base_url or plan.fallback_base_url

    # --- Uploads are offered ----------------------------------------------------------------------------------------

    def _offer_upload(self, link: Link, exchange: Exchange) -> None:
        session, limits = link.session, self._desk.limits
        base = self._base_url(session)
        if not base:
            self._finish(link, exchange, tool_error("Uploads need an HTTP listener, and this proxy has none."))
            return
        self._nonces.drop_expired(self._desk.now)
        ttl = limits.upload_link_ttl_s
        nonce = self._nonces.mint(
            self._desk.entropy, server=session.server, sid=session.sid, expires_at=self._desk.now + ttl
        )
        query = handle.sign_upload(
            self._desk.plan.link_key,
            server=session.server,
            sid=session.sid,
            nonce=nonce,
            expires_at_unix=int(self._desk.now_unix + ttl),
        )
        offer = catalog.upload_offer(
            server_id=session.server,
            upload_url=f"{base}/upload/{session.server}?{urlencode(query)}",
            sid=session.sid,
            ttl_seconds=int(ttl),
            max_file_bytes=limits.upload_size_max_bytes,
            sha256_required=self._desk.plan.require_sha256,
            max_files=limits.upload_files_max,
        )
        self._finish(link, exchange, offer)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, exchange: Exchange) -> None:
        job = self._jobs.pop(exchange.key, None)
        if job is None:
            return
        job.is_over = True
        for upload in job.pinned.values():
            upload.pins -= 1

    def close_session(self, session: Session) -> None:
        if self._desk.servers[session.server].has_files:
            self._shelf.close_session(session.sid)

    def sweep(self, session: Session) -> None:
        """Nothing works in the session's folders any more: they go."""
        if self._desk.servers[session.server].has_files:
            self._desk.order(Sweep(workspace=session.workspace))

    def _finish(self, link: Link, exchange: Exchange, result: bytes) -> None:
        self.onward.finish(link, exchange, rpc.encode_result(exchange.id_raw, result))

    def _fail(self, link: Link, exchange: Exchange, code: int, text: str) -> None:
        self.onward.finish(link, exchange, rpc.encode_error(exchange.id_raw, code, text))


def _reason(answer: StorageAnswer) -> str:
    return (
        answer.reason
        if isinstance(answer, StorageFailed)
        else f"got an answer of another kind: {type(answer).__name__}"
    )
