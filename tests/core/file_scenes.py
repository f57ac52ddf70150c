"""One client, one server and a disk, for tests of files through the engine."""

from __future__ import annotations

import json
from typing import Any

from disk import Disk
from driving import Client, Driver, SentMessage, connect, driver, upload
from inside import Inside
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan

BOTH = '{"tools":{},"resources":{}}'


class Scene:
    """One client of the server `plan`, whose responses the test gives, and a disk that carries out every order."""

    def __init__(
        self,
        plan: ServerPlan,
        *,
        limits: Limits | None = None,
        roots: tuple[str, ...] = (),
        capabilities: str = BOTH,
        revision: str = "2025-11-25",
        **more: Any,
    ) -> None:
        self.world: Driver = driver(plan, limits=limits, **more)
        self.disk = Disk(self.world, roots=roots)
        self.id = plan.id
        listens = plan.kind is Kind.HTTP
        self.client: Client = connect(
            self.world, "http", plan.id, capabilities=capabilities, revision=revision, listens=listens
        )
        self.received: SentMessage
        self._ids = 10

    def only_message(self, channel: ChannelId) -> dict[str, Any]:
        found = self.world.only_message(channel)["result"]
        assert isinstance(found, dict)
        return found

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Returns the response to a request that the proxy answers itself."""
        self._ids += 1
        channel = self.client.request(str(self._ids), method, json.dumps(params))
        self.disk.settle()
        return self.world.only_message(channel)

    def list_resources(self) -> None:
        """Reads the list of resources, so that its changes are told."""
        self._ids += 1
        channel = self.client.request(str(self._ids), "resources/list", "{}")
        self.world.answer(self.world.take_sent("resources/list"), '{"resources":[]}')
        self.only_message(channel)

    def begin(self, tool: str, **arguments: object) -> tuple[ChannelId, dict[str, Any]]:
        """Calls a tool. Returns the channel of the response, and the arguments that the server got."""
        self._ids += 1
        params = json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False)
        channel = self.client.request(str(self._ids), "tools/call", params)
        self.disk.settle()
        if not self.world.was_sent("tools/call"):
            return channel, {}
        self.received = self.world.take_sent("tools/call")
        got = self.received.frame["params"]["arguments"]
        assert isinstance(got, dict)
        return channel, got

    def end(self, channel: ChannelId, text: str, **more: Any) -> dict[str, Any]:
        """Answers the tool call. Returns the result that its caller gets."""
        result = {"content": [{"type": "text", "text": text}], **more}
        self.world.answer(self.received, json.dumps(result, ensure_ascii=False))
        self.disk.settle()
        return self.only_message(channel)

    def call(
        self, tool: str, text: str = "done", *, writes: dict[str, bytes] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Calls a tool that writes files, at paths relative to its working directory or absolute. Returns the
        result."""
        arguments = more.pop("arguments", {})
        channel, _ = self.begin(tool, **arguments)
        for path, data in (writes or {}).items():
            self.disk.write(path if path.startswith("/") else f"{self.ws}/{path}", data)
        return self.end(channel, text, **more)

    def upload(self, name: str, data: bytes) -> str:
        """Uploads a file to the client's session. Returns its handle."""
        before = set(self.disk.records)
        (handle,) = upload(self.client, f"{self.id}_get_upload_url", (name, len(data)))
        self.disk.settle()
        (key,) = set(self.disk.records) - before
        self.disk.blobs[json.loads(self.disk.records[key])["blob"]] = data
        return handle

    @property
    def ws(self) -> str:
        return f"{self.base}/ws"

    @property
    def base(self) -> str:
        """The path of the session's own folder."""
        (session,) = Inside(self.world.engine).sessions.sessions.values()
        return f"/w/{session.workspace}"


def artifacts(result: dict[str, Any]) -> list[dict[str, Any]]:
    meta = result.get("_meta", {})
    return list(meta.get("artifacts") or ([meta["artifact"]] if "artifact" in meta else []))


def names(result: dict[str, Any]) -> list[str]:
    return [artifact["filename"] for artifact in artifacts(result)]


def texts(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])
