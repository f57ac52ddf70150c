"""Clients of both eras, their servers and a disk, for tests of files over many calls and restarts of the proxy.

`Scene.run` carries out everything that needs no decision. The test decides how servers respond to tool calls.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from disk import ORDERS, Disk
from driving import GONE, LATEST, LINK_KEY, NO_STREAM, UNIX_AT_ZERO, Client, Driver, SentMessage
from isthmus.core.base.effects import Delete, Effect, Listen, Spawn
from isthmus.core.base.events import Connected, DownloadOpening
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Eviction, FileScope, Plan, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.base.storage import (
    Allocate,
    Collect,
    Discard,
    Extend,
    Fetch,
    Materialize,
    Save,
    Serve,
    StorageAnswer,
    StorageFailed,
    Survey,
)
from isthmus.core.bulk import BulkEngine
from isthmus.core.state.records import StoredArtifact, StoredUpload
from stateless_driving import Modern, settle

FALLIBLE = (Allocate, Collect, Extend, Fetch, Materialize, Survey, Save)
CAPABILITIES = '{"tools":{},"resources":{}}'


@dataclass
class FailingDisk(Disk):
    """A disk that can fail or be late.

    Attributes:
    failing: the number of next orders that fail. A failing `Save` writes its record all the same.
    is_late: orders are carried out, but answered only by `catch_up`.
    troubles: the number of orders that failed or were late.
    unfinished_uploads: the bytes of resumable uploads, by blob.
    served: the bytes that were downloaded on each channel.
    """

    failing: int = 0
    is_late: bool = False
    troubles: int = 0
    unfinished_uploads: dict[str, bytes] = field(default_factory=dict)
    served: dict[ChannelId, bytes] = field(default_factory=dict)
    held: list[tuple[Ticket, StorageAnswer]] = field(default_factory=list)

    def settle(self) -> None:
        while self._read < len(self.world.log):
            effect = self.world.log[self._read]
            self._read += 1
            if isinstance(effect, Serve):
                self.served[effect.channel] = self.blobs[effect.blob]
                self.world.end(effect.channel)
            elif isinstance(effect, ORDERS):
                self._attend(effect)

    def _attend(self, order: Effect) -> None:
        answer: StorageAnswer | None
        is_failing = self.failing > 0 and isinstance(order, FALLIBLE)
        if is_failing and not isinstance(order, Save):
            answer = None
        else:
            answer = self._carry_out(order)
        if isinstance(order, Discard):
            self.unfinished_uploads.pop(order.blob, None)
        if is_failing:
            self.failing -= 1
            self.troubles += 1
            answer = StorageFailed(reason="the disk is broken")
        if answer is None:
            return
        ticket: Ticket = order.ticket  # type: ignore[attr-defined]
        if self.is_late:
            self.troubles += 1
            self.held.append((ticket, answer))
        else:
            self.world.store(ticket, answer)

    def catch_up(self) -> None:
        """Answers the orders that have waited."""
        held, self.held = self.held, []
        for ticket, answer in held:
            self.world.store(ticket, answer)

    def start(self, world: Driver) -> tuple[list[StoredArtifact], list[StoredUpload]]:
        """Restores the state of a new process: the records that have their blobs, and nothing else."""
        self._read, self.held, self.is_late, self.failing = 0, [], False, 0
        self.files, self.unfinished_uploads, self.served = {}, {}, {}
        artifacts: list[StoredArtifact] = []
        uploads: list[StoredUpload] = []
        for key, value in list(self.records.items()):
            record: StoredArtifact | StoredUpload
            if key.startswith("artifact/"):
                record = msgspec.json.decode(value, type=StoredArtifact)
                kept: Any = artifacts
            else:
                record = msgspec.json.decode(value, type=StoredUpload)
                kept = uploads
            if record.blob in self.blobs:
                kept.append(record)
            else:
                del self.records[key]
        owned = {record.blob for record in [*artifacts, *uploads]}
        self.blobs = {blob: data for blob, data in self.blobs.items() if blob in owned}
        self.world = world
        return artifacts, uploads


@dataclass(eq=False)
class ClientRequest:
    """One request of a client."""

    party: Party
    channel: ChannelId
    id: int

    @property
    def reply(self) -> dict[str, Any] | None:
        frames = [frame for frame in self.party.scene.world.frames(self.channel) if "method" not in frame]
        assert len(frames) <= 1, "answered once"
        return frames[0] if frames else None

    @property
    def is_over(self) -> bool:
        return self.channel in self.party.scene.world.over

    @property
    def result(self) -> dict[str, Any]:
        reply = self.reply
        assert reply is not None
        found = reply["result"]
        assert isinstance(found, dict)
        return found


class Party:
    """One client of one server."""

    def __init__(self, scene: Scene, server: str, principal: str, *, is_modern: bool) -> None:
        self.scene = scene
        self.server = server
        self.principal = principal
        self.is_modern = is_modern
        self.sid = ""
        self.is_there = False
        self._ids = 0

    def begin(self) -> None:
        world = self.scene.world
        self._handshake = Client(world, self.server, principal=self.principal)
        self._stateless = Modern(world, self.server, principal=self.principal)
        self.is_there = True
        if not self.is_modern:
            channel = self._handshake.initialize(f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}')
            self.scene.run()
            self._handshake.session = world.sent[channel][-1].session
            self._handshake.notify("notifications/initialized")
        self.sid = self.link()["sid"]

    def ask(self, method: str, **params: Any) -> ClientRequest:
        self._ids += 1
        if self.is_modern:
            channel = self._stateless.request(method, id_raw=str(self._ids), **params)
        else:
            channel = self._handshake.request(str(self._ids), method, json.dumps(params))
        self.scene.run()
        return ClientRequest(self, channel, self._ids)

    def cancel(self, asked: ClientRequest) -> None:
        if self.is_modern:
            self.scene.world.end(asked.channel, GONE)
        else:
            self._handshake.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
        self.scene.run()

    def leave(self) -> None:
        assert not self.is_modern
        self.is_there = False
        self._handshake.delete()
        self.scene.run()

    def link(self) -> dict[str, Any]:
        """Asks for an upload link. Returns its `query`, and the `sid` of its session."""
        link = self.ask("tools/call", name=f"{self.server}_get_upload_url", arguments={}).result["structuredContent"]
        return {"query": dict(parse_qsl(urlsplit(link["upload_url"]).query)), "sid": link["session_id"]}


class Scene:
    """An engine and its servers, which respond to everything but tool calls.

    Attributes:
        calls: tool calls that servers were sent and no test has taken, by the argument `tag`.
    """

    def __init__(
        self,
        servers: Sequence[ServerPlan],
        tools: dict[str, list[dict[str, Any]]],
        *,
        limits: Limits,
        eviction: Eviction,
        file_scope: FileScope,
    ) -> None:
        assert all(server.era is Era.HANDSHAKE for server in servers)
        self.tools = tools
        self.limits = limits
        self.calls: dict[str, SentMessage] = {}
        self._plan = Plan(
            servers=tuple(servers),
            link_keys=(LINK_KEY,),
            workspaces_path="/w",
            eviction=eviction,
            file_scope=file_scope,
            state_keys=(LINK_KEY,),
        )
        self._seed = 1
        self._dials = self._closes = 0
        self.world = Driver(self._engine([], []))
        self.disk = FailingDisk(self.world)

    def _engine(self, artifacts: Sequence[StoredArtifact], uploads: Sequence[StoredUpload]) -> BulkEngine:
        self._seed += 1
        return BulkEngine(
            self._plan,
            entropy=random.Random(self._seed).randbytes,
            unix_at_zero=UNIX_AT_ZERO,
            has_storage=True,
            limits=self.limits,
            stored=artifacts,
            stored_uploads=uploads,
        )

    def restart(self) -> None:
        """Replaces the engine by one that restores the stored state. Clients have to begin again."""
        world = self.world
        artifacts, uploads = self.disk.start(world)
        self.world = self.disk.world = Driver(self._engine(artifacts, uploads), now=world.now, has_disk=True)
        self.calls.clear()
        self._dials = self._closes = 0
        self.wait(0)

    def run(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        world = self.world
        before = len(world.log), len(world.unread)
        self.disk.settle()
        new, self._dials = world.dials[self._dials :], len(world.dials)
        for dial in new:
            if dial.channel in world.over:
                continue
            if isinstance(dial.target, Spawn):
                world.open(dial.channel, Connected())
            elif isinstance(dial.target, Listen):
                world.end(dial.channel, NO_STREAM)
            elif isinstance(dial.target, Delete):
                world.end(dial.channel)
        for received in list(world.unread):
            self._receive(received)
        settle(world)
        return bool(new) or (len(world.log), len(world.unread)) != before

    def _receive(self, received: SentMessage) -> None:
        world, frame = self.world, received.frame
        if received not in world.unread:
            return
        world.unread.remove(received)
        method = frame.get("method", "")
        if method == "initialize":
            text = f'{{"protocolVersion":"{LATEST}","capabilities":{CAPABILITIES}}}'
            world.answer(received, text, session=f"S{received.channel}")
        elif method == "tools/list":
            server = received.post.server if received.post is not None else self._server_of(received.channel)
            world.answer(received, json.dumps({"tools": self.tools[server]}))
        elif method == "resources/list":
            world.answer(received, '{"resources":[]}')
        elif method == "tools/call":
            self.calls[frame["params"]["arguments"]["tag"]] = received
        else:
            assert "id" not in frame, method
            world.acknowledge(received)

    def _server_of(self, channel: ChannelId) -> str:
        return next(dial.target.server for dial in self.world.dials if dial.channel == channel)

    def wait(self, seconds: float) -> None:
        """Advances the clock, and runs the scene at every deadline."""
        self.run()
        end = self.world.now + seconds
        while (deadline := self.world.engine.next_timeout()) is not None and deadline.at <= end:
            self.world.wait(max(0.0, deadline.at - self.world.now))
            self.run()
        self.world.wait(end - self.world.now)
        self.run()

    def download(self, url: str) -> bytes | int:
        """Follows a download link. Returns the bytes, or the status of a refusal."""
        parts = urlsplit(url)
        _, _, server, sid, id, name = parts.path.split("/")
        channel = self.world.engine.new_channel()
        query = dict(parse_qsl(parts.query))
        self.world.open(channel, DownloadOpening(server=server, sid=sid, artifact=id, filename=name, query=query))
        self.run()
        if channel in self.disk.served:
            return self.disk.served[channel]
        (sent,) = self.world.sent[channel]
        return sent.status
