"""Clients that use files and tasks, and check that the proxy keeps its promises.

They upload files, hand them to tools, read the tools' output, begin tasks and come back for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from filing_servers import MISSING
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import Cause, DownloadOpening, DraftOpening, End, RawFile, UploadOpening, Verb
from lasting_network import LastingNetwork
from promises import Handle, Promise, Promises
from simulated_clients import (
    ABLE,
    Client,
    EventPipeClient,
    HttpClient,
    ModernHttpClient,
    ModernPipeClient,
    Owed,
    PipeClient,
)
from simulated_network import Channel, Wrong

TASKS: Final = "io.modelcontextprotocol/tasks"
NAMES: Final = re.compile(rb"fl\d+:([a-z0-9]*):")
UPLOAD_TTL_S: Final = 150.0
LINK_TTL_S: Final = 40.0
TASK_TTL_S: Final = 400.0
UNKNOWN: Final = (-32002, -32602)

Then = Callable[[dict[str, Any]], None]


class Filing(Client):
    """The actions with files and tasks that any kind of client has in addition to its own.

    Attributes:
        sid: the id of its session, once the proxy has named it.
        thens: callbacks for answers, in addition to the usual handling.
        used: the promised files that it was able to use.
        is_auto: True if its server's tools have no adapters.
        likes_tasks: it uses tasks more than others do, and cancels some.
    """

    likes_tasks = False

    network: LastingNetwork
    promises: Promises

    def __init__(self, network: LastingNetwork, number: int, server: str, principal: str) -> None:
        super().__init__(network, number, server, principal)
        self.sid: str | None = None
        self.knows_tasks = self.is_modern
        self.able = {**ABLE, "extensions": {TASKS: {}}} if self.is_modern else ABLE
        self.is_auto = False
        self.thens: dict[Owed, Then] = {}
        self.used: set[Promise] = set()

    def begin(self) -> None:
        if not self.is_modern and not self.is_ready:
            self.sid = None
        super().begin()

    # --- Actions ----------------------------------------------------------------------------------------------------

    def call(self) -> int:
        """Makes one of the requests that concern tools or stored files."""
        files = [promise for promise in self.promises.files if promise.server == self.server]
        tasks = [handle for handle in self.promises.tasks if handle.server == self.server]
        roll = self.rng.random()
        if self.likes_tasks and self.knows_tasks and self.rng.random() < 0.4:
            return self.look(self.rng.choice(tasks)) if tasks and roll < 0.7 else self.begin_task()
        if roll < 0.2:
            return self.echo()
        if roll < 0.4:
            return self.ask_link()
        if roll < 0.55:
            return self.make()
        if roll < 0.65 and self.knows_tasks:
            return self.begin_task()
        if roll < 0.75 and tasks and self.knows_tasks:
            return self.look(self.rng.choice(tasks))
        return self.use(self._one_of(files)) if files else self.echo()

    def echo(self) -> int:
        return super().call()

    def _one_of(self, files: list[Promise]) -> Promise:
        own = [promise for promise in files if self.promises.may_have(promise, self)]
        return self.rng.choice(own if own and self.rng.random() < 0.8 else files)

    def ask(self, method: str, params: dict[str, Any], then: Then) -> int:
        number = self.request(method, params)
        self.thens[self.owed[number]] = then
        return number

    # --- Messages to it ---------------------------------------------------------------------------------------------

    def receive(self, channel: Channel, send: Send) -> None:
        for principal in NAMES.findall(send.message):
            if principal.decode() != self.principal:
                raise Wrong(f"{self.principal!r} was sent a file of another's: {send.message!r}")
        super().receive(channel, send)

    def _take_answer(self, channel: Channel, frame: dict[str, Any]) -> None:
        number = frame.get("id")
        owed = self.owed.get(number) or self.unwanted.get(number)
        super()._take_answer(channel, frame)
        if owed is None or number not in self.settled:
            return
        then = self.thens.pop(owed, None)
        result = frame.get("result", {})
        if owed.text == "initialize" and "result" in frame:
            self.knows_tasks = "tasks" in result["capabilities"]
        self._note_artifacts(result)
        if result.get("resultType") == "task":
            self._note_task(owed, result["taskId"])
        elif "task" in result and "taskId" in result["task"]:
            self._note_task(owed, result["task"]["taskId"])
        elif then is not None and result.get("resultType") == "input_required":
            self.thens[self.owed[self.last]] = then  # the client repeats the call with its answers
        elif then is not None:
            then(frame)

    def _judge(self, owed: Owed, result: dict[str, Any]) -> None:
        """Checks a result. It also names the files that the proxy stored, or could not, while the call ran."""
        if owed in self.thens or result.get("resultType") == "task" or "task" in result:
            self.outcomes["result"] += 1
        elif owed.text is not None and {"artifact", "artifact_error"} & result.get("_meta", {}).keys():
            first = result["content"][0]
            text = first["text"].partition("\nFile: artifact://")[0]
            super()._judge(owed, {**result, "content": [{**first, "text": text}]})
        else:
            super()._judge(owed, result)

    # --- Uploads ----------------------------------------------------------------------------------------------------

    def ask_link(self) -> int:
        return self.ask("tools/call", {"name": _helper(self.server), "arguments": {}}, self._take_link)

    def _take_link(self, frame: dict[str, Any]) -> None:
        result = frame.get("result", {})
        if "structuredContent" not in result:
            return
        upload = result["structuredContent"]
        self.sid = upload["session_id"]
        query = dict(parse_qsl(urlsplit(upload["upload_url"]).query))
        roll = self.rng.random()
        request = Tus(self, query) if roll < 0.4 else Upload(self, query, is_raw=roll < 0.6)
        request.begin()
        if self.network.strikes("rude", 0.2, self.rng):  # two uploads use one link
            request.is_alone = False
            other = Upload(self, query, is_raw=True)
            other.is_alone = False
            other.begin()

    def promise(self, uri: str, data: bytes, *, since_unix: float, sid: str) -> None:
        self.promises.files.append(
            Promise(
                uri=uri,
                data=data,
                server=self.server,
                principal=self.principal,
                sid=sid,
                run=self.network.runs,
                until_unix=since_unix + UPLOAD_TTL_S,
                is_artifact=False,
            )
        )

    # --- Artifacts --------------------------------------------------------------------------------------------------

    def make(self) -> int:
        data, troubles = self.promises.fresh(self), self.network.disk.troubles
        tool = self.rng.choice(("make", "show"))

        def made(frame: dict[str, Any]) -> None:
            result = frame.get("result", {})
            if "result" not in frame or self.network.disk.troubles != troubles or not self.promises.is_roomy:
                return
            if self.network.is_tried or (tool == "show" and self.is_auto):
                return
            if data not in self._artifacts(result).values():
                raise Wrong(f"{tool} has written {data!r}, and its caller got {result}")

        return self.ask("tools/call", {"name": tool, "arguments": {"say": data.decode()}}, made)

    def _artifacts(self, result: dict[str, Any]) -> dict[str, bytes]:
        """Returns the contents that a result links to, by URI."""
        meta = result.get("_meta", {})
        artifacts = meta.get("artifacts") or ([meta["artifact"]] if "artifact" in meta else [])
        return {artifact["artifact_uri"]: self.promises.by_sha256(artifact["sha256"]) for artifact in artifacts}

    def _note_artifacts(self, result: dict[str, Any]) -> None:
        meta = result.get("_meta", {})
        if not isinstance(meta, dict):
            return
        for artifact in meta.get("artifacts") or ([meta["artifact"]] if "artifact" in meta else []):
            uri = artifact["artifact_uri"]
            if any(promise.uri == uri for promise in self.promises.files):
                continue
            data = self.promises.by_sha256(artifact["sha256"])
            self.sid = uri.split("/")[3]
            if self.promises.made[data] != (self.server, self.principal):
                raise Wrong(f"{self.principal!r} was told of what another's call wrote: {artifact}")
            self.promises.files.append(
                Promise(
                    uri=uri,
                    data=data,
                    server=self.server,
                    principal=self.principal,
                    sid=self.sid,
                    run=self.network.runs,
                    until_unix=_unix(artifact["expires_at"]),
                    is_artifact=True,
                    url=artifact.get("download_url", ""),
                )
            )

    # --- Using stored files -----------------------------------------------------------------------------------------

    def use(self, promise: Promise) -> int:
        """Hands the file to a tool, or reads it."""
        promises, disk = self.promises, self.network.disk
        might, must, troubles = promises.may_have(promise, self), promises.must_have(promise, self), disk.troubles
        if promise.url and self.rng.random() < 0.3:
            Download(self, promise).begin()
        is_read = promise.is_artifact and self.rng.random() < 0.5

        def used(frame: dict[str, Any]) -> None:
            may = might or promises.may_have(promise, self)
            result, error = frame.get("result", {}), frame.get("error", {})
            if is_read and "contents" in result:
                found: str | None = result["contents"][0].get("text")
            else:
                found = None if result.get("isError") or "content" not in result else result["content"][0]["text"]
                found = found and found.partition("\nFile: artifact://")[0]  # the call may have found another file
            if found is not None and not may:
                raise Wrong(f"{self.principal!r} in {self.sid} was given {promise}")
            if found is not None and found.encode() != promise.data:
                raise Wrong(f"{promise} was given as {found!r}")
            if found is not None:
                self.used.add(promise)
            is_refused = bool(result.get("isError")) or (is_read and error.get("code") in UNKNOWN)
            if is_refused and must and promises.must_have(promise, self) and disk.troubles == troubles:
                raise Wrong(f"{promise} was refused: {frame}")

        if is_read:
            return self.ask("resources/read", {"uri": promise.uri}, used)
        tool = self.rng.choice(("eat", "read"))
        return self.ask("tools/call", {"name": tool, "arguments": {"file": promise.uri}}, used)

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def begin_task(self) -> int:
        say = self.promises.fresh(self).decode()
        params: dict[str, Any] = {"name": "echo", "arguments": {"say": say}}
        if not self.is_modern:
            params["task"] = {"ttl": int(TASK_TTL_S * 1000)}
        return self.request("tools/call", params, say)

    def _note_task(self, owed: Owed, id: str) -> None:
        if owed.text is not None and owed.text.startswith("fl"):
            until_unix = self.network.now_unix + TASK_TTL_S - 120.0
            self.promises.tasks.append(
                Handle(id, owed.text, self.server, self.principal, self.is_modern, self.network.runs, until_unix)
            )

    def look(self, handle: Handle) -> int:
        """Asks for a task's status, or fetches its result."""
        promises = self.promises
        if self.likes_tasks and self.rng.random() < 0.2:
            return self.cancel_task(handle)
        must, is_fetch = promises.must_see(handle, self), not self.is_modern and self.rng.random() < 0.3
        whose, was_over = (handle.server, handle.principal, handle.is_modern), bool(handle.status)

        def seen(frame: dict[str, Any]) -> None:
            result, error = frame.get("result", {}), frame.get("error", {})
            if must and promises.must_see(handle, self) and error.get("code") == -32602 and not is_fetch:
                raise Wrong(f"{handle} is not known any more: {frame}")
            if "result" in frame and whose != (self.server, self.principal, self.is_modern):
                raise Wrong(f"{self.principal!r} was told of {handle}")
            if "status" in result:
                promises.receive_status(handle, result["status"], was_over=was_over)
            outcome = result if is_fetch else result.get("result")
            if outcome and "content" in outcome:
                meta = {key: value for key, value in outcome.get("_meta", {}).items() if "related-task" not in key}
                promises.receive_outcome(handle, {**outcome, "_meta": meta})

        if is_fetch:
            return self.ask("tasks/result", {"taskId": handle.id}, seen)
        return self.ask("tasks/get", {"taskId": handle.id}, seen)

    def cancel_task(self, handle: Handle) -> int:
        whose, was_over = (handle.server, handle.principal, handle.is_modern), bool(handle.status)

        def seen(frame: dict[str, Any]) -> None:
            if "result" in frame and whose != (self.server, self.principal, self.is_modern):
                raise Wrong(f"{self.principal!r} has cancelled {handle}")
            status = frame.get("result", {}).get("status")
            if status is not None:
                self.network.counts["task cancelled"] += 1
                self.promises.receive_status(handle, status, was_over=was_over)
                if status != "cancelled":
                    raise Wrong(f"{handle} was cancelled, and is {status}")

        return self.ask("tasks/cancel", {"taskId": handle.id}, seen)


class Request:
    """A request over plain HTTP, made for a client.

    Attributes:
        troubles: the disk's count of troubles when the request began.
        is_alone: True if no other request uses its link.
    """

    def __init__(self, client: Filing) -> None:
        self.client, self.network = client, client.network
        self.name = f"{client.name} {type(self).__name__}"
        self.files: list[tuple[str, bytes]] = []
        self.is_breaking, self.is_alone = False, True
        self.since_unix = self.network.now_unix
        self.sid = client.sid or ""
        self.run, self.troubles = self.network.runs, self.network.disk.troubles
        self.answered: Channel | None = None

    @property
    def is_safe(self) -> bool:
        """True if a refusal would have no reason now: nothing that concerns the request has gone wrong."""
        network, client = self.network, self.client
        return (
            client.promises.is_roomy
            and self.is_alone
            and (network.runs, network.disk.troubles) == (self.run, self.troubles)
            and network.now_unix < self.since_unix + LINK_TTL_S - 20.0
            and not network.is_tried
        )

    def refused(self, status: int) -> None:
        self.network.counts[f"of files: {type(self).__name__} {status}"] += 1
        if self.is_safe and not self.is_breaking:
            raise Wrong(f"{type(self).__name__} was refused with {status}, for nothing")

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        if channel is self.answered:
            return
        if close is not None and close.status >= 400:
            self.refused(close.status)
        elif close is None:
            self.network.counts[f"of files: {type(self).__name__} lost"] += 1


class Upload(Request):
    """An upload by a form, or by a file that is the whole body."""

    def __init__(self, client: Filing, query: dict[str, str], *, is_raw: bool) -> None:
        super().__init__(client)
        count = 1 if is_raw else client.rng.choice((1, 1, 2))
        self.files = [(f"f{number}.txt", client.promises.fresh(client)) for number in range(count)]
        self.is_breaking = self.network.strikes("leaves", 0.2, client.rng)
        self.query, self.is_raw = query, is_raw

    def begin(self) -> None:
        raw = RawFile(self.files[0][0], "text/plain") if self.is_raw else None
        size = sum(len(data) for _, data in self.files)
        opening = UploadOpening(server=self.client.server, query=self.query, size_bytes=size, raw=raw)
        self.network.open(self, opening)

    def receive(self, channel: Channel, send: Send) -> None:
        self.answered = channel
        if send.status != 200:
            self.refused(send.status)
            return
        handles = json.loads(send.message)["upload_handles"]
        if len(handles) != len(self.files):
            raise Wrong(f"{len(self.files)} files were sent, and {handles} are there")
        self.network.counts["of files: uploaded"] += len(handles)
        self.client.promises.use_link(self.query, self)
        for uri, (_, data) in zip(handles, self.files, strict=True):
            self.client.promise(uri, data, since_unix=self.since_unix, sid=self.sid)


class Tus(Request):
    """An upload that continues after an interruption.

    Attributes:
        kept: the offset that the proxy has confirmed.
    """

    STEPS_MAX = 12

    def __init__(self, client: Filing, query: dict[str, str]) -> None:
        super().__init__(client)
        self.data = client.promises.fresh(client)
        self.query, self.upload_id = query, ""
        self.link = query
        self.kept = self.steps = 0
        self.verb = Verb.CREATE
        self.is_over = False

    def begin(self) -> None:
        file = RawFile("d.txt", "text/plain")
        opening = DraftOpening(
            server=self.client.server,
            verb=Verb.CREATE,
            query=self.query,
            length=len(self.data),
            file=file,
            base_url="http://here",
        )
        self.network.open(self, opening)

    def go_on(self, verb: Verb) -> None:
        self.steps += 1
        if self.steps > self.STEPS_MAX or self.is_over or not self.upload_id:
            return
        self.verb = verb
        self.since_unix = self.network.now_unix
        more = self.data[self.kept :]
        if self.client.rng.random() < 0.4:
            more = more[: len(more) // 2]
        self.files = [("d.txt", more if verb is Verb.APPEND else b"")]
        self.is_breaking = self.network.strikes("leaves", 0.2, self.client.rng) and verb is Verb.APPEND
        opening = DraftOpening(
            server=self.client.server,
            verb=verb,
            query=self.query,
            draft=self.upload_id,
            offset=self.kept if verb is Verb.APPEND else 0,
            size_bytes=len(self.files[0][1]),
        )
        self.network.open(self, opening)

    def receive(self, channel: Channel, send: Send) -> None:
        self.answered = channel
        headers = dict(send.headers)
        if send.status == 201:
            parts = urlsplit(headers["Location"])
            self.upload_id, self.query = unquote(parts.path.rpartition("/")[2]), dict(parse_qsl(parts.query))
        elif send.status not in (200, 204):
            self._fail(send.status)
            return
        if "Upload-Handle" in headers:
            self.is_over = True
            self.network.counts["of files: uploaded in pieces"] += 1
            self.client.promises.use_link(self.link, self)
            self.client.promise(headers["Upload-Handle"], self.data, since_unix=self.since_unix, sid=self.sid)
            return
        offset = int(headers["Upload-Offset"])
        if self.verb is Verb.APPEND and offset != self.kept + len(self.files[0][1]):
            raise Wrong(f"{len(self.files[0][1])} bytes were taken after {self.kept}, and {offset} are there")
        if not self.kept <= offset <= len(self.data):
            raise Wrong(f"{self.kept} bytes were there, and now {offset} are")
        self.kept = offset
        pause = self.client.rng.expovariate(1.0)
        self.network.later(pause, self.go_on, Verb.APPEND)

    def _fail(self, status: int) -> None:
        if status in (409, 423, 503, 507) and self.upload_id:
            self.network.counts[f"of files: Tus {status}"] += 1
            self.network.later(1.0, self.go_on, Verb.RESUME)
        else:
            self.refused(status)
            self.is_over = True

    def receive_end(self, channel: Channel, close: Close | None) -> None:
        if channel is self.answered:
            return
        if close is None and self.upload_id and not self.is_over:
            self.network.counts["of files: Tus broken"] += 1
            self.network.later(self.client.rng.expovariate(1.0), self.go_on, Verb.RESUME)
        elif close is not None and close.status >= 400:
            self._fail(close.status)


class Download(Request):
    def __init__(self, client: Filing, promise: Promise) -> None:
        super().__init__(client)
        self.promise = promise
        self.must = client.promises.is_kept(promise)

    def begin(self) -> None:
        parts = urlsplit(self.promise.url)
        _, _, server, sid, id, name = parts.path.split("/")
        query = dict(parse_qsl(parts.query))
        self.network.open(self, DownloadOpening(unquote(server), sid, id, unquote(name), query))

    def receive_file(self, data: bytes) -> None:
        self.network.counts["of files: downloaded"] += 1
        if data != self.promise.data:
            raise Wrong(f"{self.promise} was downloaded as {data!r}")

    def receive(self, channel: Channel, send: Send) -> None:
        self.answered = channel
        self.refused(send.status)

    def refused(self, status: int) -> None:
        self.network.counts[f"of files: Download {status}"] += 1
        network = self.network
        is_spared = (network.runs, network.disk.troubles) == (self.run, self.troubles)
        if self.must and self.client.promises.is_kept(self.promise) and is_spared and status in (403, 404):
            raise Wrong(f"{self.promise} was refused with {status}")


def _helper(server: str) -> str:
    return re.sub("[^A-Za-z0-9]+", "_", server) + "_get_upload_url"


def _unix(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


class FilingPipe(Filing, PipeClient):
    pass


class FilingModernPipe(Filing, ModernPipeClient):
    is_modern = True


class FilingEventPipe(Filing, EventPipeClient):
    pass


class FilingHttp(Filing, HttpClient):
    pass


class FilingModernHttp(Filing, ModernHttpClient):
    is_modern = True

    def echo(self) -> int:
        """Makes no such call. All clients of one principal have one session, and would all get its questions."""
        say = f"{self.mark}{self.last + 1}"
        return self.request("tools/call", {"name": "echo", "arguments": {"say": say}}, say)


FILING_KINDS: Final = (FilingPipe, FilingModernPipe, FilingEventPipe, FilingHttp, FilingHttp, FilingModernHttp)
GONE: Final = Cause(End.GONE)
__all__ = ["FILING_KINDS", "MISSING", "Filing"]
