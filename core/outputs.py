"""What tools wrote becomes artifacts: the files that a result names are taken in, and the result tells of them.

A good result is never lost over a file that could not be taken in.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from . import jsonrpc as rpc
from .artifact import attach, attach_error, locate, raw_block, tool_error
from .desk import Desk
from .effects import Collect, Collected, CollectedFile, Discard, Fetch, Fetched, Forget, Save, Saved, StorageAnswer
from .filename import mime_type_of, safe_filename, with_suffix
from .job import Job
from .labels import describe
from .plan import ArtifactProducer, LocatorMode
from .shelf import Hold, Shelf, StoredArtifact
from .waiting import Waiting, reason_of


class Outputs:
    """Args:
    finish: called with a call and its result, once all that the result names is dealt with.
    """

    def __init__(self, desk: Desk, shelf: Shelf, waiting: Waiting, finish: Callable[[Job, bytes], None]) -> None:
        self._desk = desk
        self._shelf = shelf
        self._waiting = waiting
        self._finish = finish

    def take(self, job: Job, producer: ArtifactProducer, result: bytes) -> bool:
        """Take in the files a result names. True if the call is answered here, now or once they are there."""
        limits = self._desk.limits
        sources = locate(result, producer, job.allocated, limits.artifacts_per_call_max)
        if not sources:
            is_error = rpc.member_of(result, "isError") == b"true"
            if is_error or producer.output_locator.modes == (LocatorMode.NONE,):
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
            is_bearer=session.is_stateless,
            stored_at_unix=self._desk.now_unix,
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
            self._finish(job, result)
            return
        shown = [describe(self._desk, job.link.session, record) for record in job.artifacts]
        raw = [
            raw_block(one.filename, one.mime_type, job.raw[one.artifact_id], one.artifact_uri)
            for one in shown
            if one.artifact_id in job.raw
        ]
        links = job.link.session.features.resource_links
        self._finish(job, attach(result, shown, resource_links=links, raw=raw))
