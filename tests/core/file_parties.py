"""Clients of both eras, their servers and a disk, for tests of files over many calls; the proxy can be started again.

`run` lets everybody do what does itself. What servers answer to calls is for the test to say.
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
from driving import GONE, LATEST, LINK_KEY, NO_STREAM, UNIX_AT_ZERO, Client, Driver, Heard
from isthmus.core.base.effects import (
    Allocate,
    Collect,
    Connected,
    Delete,
    Discard,
    DownloadOpening,
    Effect,
    Fetch,
    Listen,
    Materialize,
    Save,
    Serve,
    Spawn,
    StorageAnswer,
    StorageFailed,
    Survey,
)
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Eviction, Plan, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.engine import Engine
from isthmus.core.files.store.records import StoredArtifact, StoredUpload
from stateless_driving import Modern, settle

FALLIBLE = (Allocate, Collect, Fetch, Materialize, Survey, Save)
CAPABILITIES = '{"tools":{},"resources":{}}'


@dataclass
class UneasyDisk(Disk):
    """Attributes:
    failing: so many of the next orders fail; a record is written all the same.
    is_late: orders are carried out, and not answered until `catch_up`.
    troubles: how many orders failed or were late so far.
    drafts: what there is of uploads that go on after a break.
    served: what was handed out on each channel.
    """

    failing: int = 0
    is_late: bool = False
    troubles: int = 0
    drafts: dict[str, bytes] = field(default_factory=dict)
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
            self.drafts.pop(order.blob, None)
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
        """Answer what has waited."""
        held, self.held = self.held, []
        for ticket, answer in held:
            self.world.store(ticket, answer)

    def start(self, world: Driver) -> tuple[list[StoredArtifact], list[StoredUpload]]:
        """Another process takes over what there is: records with their blobs, and nothing else."""
        self._read, self.held, self.is_late, self.failing = 0, [], False, 0
        self.files, self.drafts, self.served = {}, {}, {}
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
class Asked:
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

    def ask(self, method: str, **params: Any) -> Asked:
        self._ids += 1
        if self.is_modern:
            channel = self._stateless.request(method, id_raw=str(self._ids), **params)
        else:
            channel = self._handshake.request(str(self._ids), method, json.dumps(params))
        self.scene.run()
        return Asked(self, channel, self._ids)

    def cancel(self, asked: Asked) -> None:
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
        """What an upload needs: the query of its link, and the session it is for."""
        said = self.ask("tools/call", name=f"{self.server}_get_upload_url", arguments={}).result["structuredContent"]
        return {"query": dict(parse_qsl(urlsplit(said["upload_url"]).query)), "sid": said["session_id"]}


class Scene:
    """Servers that are answered for, but for their calls.

    Attributes:
        calls: those that servers were sent and no test has taken, by the `tag` among their arguments.
    """

    def __init__(
        self,
        servers: Sequence[ServerPlan],
        tools: dict[str, list[dict[str, Any]]],
        *,
        limits: Limits,
        eviction: Eviction,
    ) -> None:
        assert all(server.era is Era.HANDSHAKE for server in servers)
        self.tools = tools
        self.limits = limits
        self.calls: dict[str, Heard] = {}
        self._plan = Plan(
            servers=tuple(servers), link_key=LINK_KEY, workspaces_path="/w", eviction=eviction, state_keys=(LINK_KEY,)
        )
        self._seed = 1
        self._dials = self._closes = 0
        self.world = Driver(self._engine([], []))
        self.disk = UneasyDisk(self.world)

    def _engine(self, artifacts: Sequence[StoredArtifact], uploads: Sequence[StoredUpload]) -> Engine:
        self._seed += 1
        return Engine(
            self._plan,
            entropy=random.Random(self._seed).randbytes,
            unix_at_zero=UNIX_AT_ZERO,
            limits=self.limits,
            stored=artifacts,
            stored_uploads=uploads,
        )

    def restart(self) -> None:
        """Another process goes on with what is stored; clients have to come anew."""
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
        before = len(world.log), len(world.heard)
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
        for heard in list(world.heard):
            self._hear(heard)
        settle(world)
        return bool(new) or (len(world.log), len(world.heard)) != before

    def _hear(self, heard: Heard) -> None:
        world, frame = self.world, heard.frame
        if heard not in world.heard:
            return
        world.heard.remove(heard)
        method = frame.get("method", "")
        if method == "initialize":
            said = f'{{"protocolVersion":"{LATEST}","capabilities":{CAPABILITIES}}}'
            world.answer(heard, said, session=f"S{heard.channel}")
        elif method == "tools/list":
            server = heard.post.server if heard.post is not None else self._server_of(heard.channel)
            world.answer(heard, json.dumps({"tools": self.tools[server]}))
        elif method == "resources/list":
            world.answer(heard, '{"resources":[]}')
        elif method == "tools/call":
            self.calls[frame["params"]["arguments"]["tag"]] = heard
        else:
            assert "id" not in frame, method
            world.acknowledge(heard)

    def _server_of(self, channel: ChannelId) -> str:
        return next(dial.target.server for dial in self.world.dials if dial.channel == channel)

    def wait(self, seconds: float) -> None:
        """Time passes, and everybody goes on meanwhile."""
        self.run()
        end = self.world.now + seconds
        while (deadline := self.world.engine.next_timeout()) is not None and deadline.at <= end:
            self.world.wait(max(0.0, deadline.at - self.world.now))
            self.run()
        self.world.wait(end - self.world.now)
        self.run()

    def download(self, url: str) -> bytes | int:
        """What a link gives: bytes, or the status of a refusal."""
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
