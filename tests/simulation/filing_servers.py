"""Servers whose tools read files that clients have sent, and write files for them."""

from __future__ import annotations

import base64
from typing import Any, Final

from disk import ROOT
from isthmus.core.base.effects import Dial, Spawn
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Deliver,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    TaskRules,
    UploadConsumer,
)
from isthmus.core.base.revisions import Era
from lasting_network import LastingNetwork
from simulated_network import Channel
from simulated_servers import LASTING, SCHEMA, TOOLS, Server, Session

FILE: Final = {"type": "object", "properties": {"file": {"type": "string"}}}
FILING_TOOLS: Final = [*TOOLS, *({"name": name, "inputSchema": FILE} for name in ("eat", "read"))]
FILING_TOOLS += [{"name": name, "inputSchema": SCHEMA} for name in ("make", "show")]
MISSING: Final = "there is no such file"

CONSUMERS: Final = tuple(
    UploadConsumer(tools=(tool,), file_path_argument="file", deliver=deliver)
    for tool, deliver in (("eat", Deliver.PATH), ("read", Deliver.TEXT))
)
PRODUCERS: Final = (
    ArtifactProducer(
        tools=("make",), output_path_argument="out", output_locator=OutputLocator(mode=LocatorMode.NONE), required=True
    ),
    ArtifactProducer(tools=("show",), output_locator=OutputLocator(mode=LocatorMode.EMBEDDED), required=True),
)


def filing_plan(id: str, kind: Kind, era: Era | None, *, is_auto: bool, tasks: TaskRules) -> ServerPlan:
    is_early = kind is Kind.PIPE
    if is_auto:
        return ServerPlan(id=id, kind=kind, era=era, auto_files=AutoFiles(), tasks=tasks, answers_early=is_early)
    return ServerPlan(
        id=id, kind=kind, era=era, consumers=CONSUMERS, producers=PRODUCERS, tasks=tasks, answers_early=is_early
    )


class FilingServer(Server):
    """A server with tools for files: `eat` returns the content of the file at a path, `read` returns its argument,
    `make` writes a file, `show` puts a file into its result."""

    network: LastingNetwork
    may_run_once = False

    def __init__(self, network: LastingNetwork, plan: ServerPlan, *, is_modern: bool) -> None:
        super().__init__(network, plan, is_modern=is_modern)
        self.workspaces: dict[Channel, str] = {}

    def dialled(self, channel: Channel, dial: Dial) -> None:
        if isinstance(dial.target, Spawn):
            self.workspaces[channel] = dial.target.workspace
        super().dialled(channel, dial)

    def _answer(self, channel: Channel, session: Session, id: Any, method: str, params: dict[str, Any]) -> None:
        if method == "tools/list":
            self.reply(channel, session, id, {"tools": FILING_TOOLS, **(LASTING if self.is_modern else {})})
        elif method == "resources/list":
            self.reply(channel, session, id, {"resources": [], **(LASTING if self.is_modern else {})})
        else:
            super()._answer(channel, session, id, method, params)

    def _call(self, channel: Channel, session: Session, id: Any, params: dict[str, Any]) -> None:
        if params["name"] == "echo":
            super()._call(channel, session, id, params)
            return
        network, given, disk = self.network, params["arguments"], self.network.disk
        result: dict[str, Any] = {}
        rng = network.rng_of(f"{self.name} {id} {channel.number} {sorted(given.items())}")
        if params["name"] == "eat" or (params["name"] == "read" and self.plan.auto_files is not None):
            file = disk.files.get(given["file"])
            result = _text(MISSING, isError=True) if file is None else _text(file.data.decode())
        elif params["name"] == "read":
            result = _text(given["file"])
        elif params["name"] == "make":
            path = given.get("out") or f"{ROOT}/{self.workspaces.get(channel, 'nowhere')}/ws/{id}.txt"
            disk.write(path, given["say"].encode())
            result = _text(f"see {path}")
        else:
            data = base64.b64encode(given["say"].encode()).decode()
            resource = {"uri": "x:///shown.txt", "mimeType": "text/plain", "blob": data}
            result = {"content": [{"type": "resource", "resource": resource}]}
        result |= {"resultType": "complete"} if self.is_modern else {}
        pause = rng.expovariate(4.0)
        if network.strikes("never", 0.05, rng):
            return
        if network.strikes("late", 0.1, rng):
            pause = rng.uniform(5.0, 60.0)
        is_error = network.strikes("errors", 0.1, rng)
        network.later(pause, self._settle, channel, session, id, result, is_error)

    def _settle(self, channel: Channel, session: Session, id: Any, result: dict[str, Any], is_error: bool) -> None:
        if is_error:
            self.reply(channel, session, id, error=-32602)
        else:
            self.reply(channel, session, id, result)


def _text(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}
