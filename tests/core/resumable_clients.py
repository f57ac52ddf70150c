"""Clients of resumable uploads, as the engine sees them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from driving import Client, Driver, ask_link, connect, driver
from inside import Inside
from isthmus.core.base.effects import Send
from isthmus.core.base.events import DraftOpening, RawFile, Verb
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Kind, ServerPlan, UploadConsumer
from isthmus.core.base.storage import Appended, Save, Saved
from isthmus.core.files.store.owners import Account

HELPER = "f_get_upload_url"
CONSUMER = UploadConsumer(tools=("eat",), file_path_argument="path")
FILES = ServerPlan(id="f", kind=Kind.PIPE, consumers=(CONSUMER,))
OTHER = ServerPlan(id="g", kind=Kind.PIPE, consumers=(CONSUMER,))
HASH = "ab" * 32


def upload_world(**more: Any) -> tuple[Driver, Client]:
    world = driver(FILES, OTHER, **more)
    return world, connect(world, "http", "f")


class ResumableClient:
    """A client of resumable uploads, as the engine sees it.

    Attributes:
        link: the query of the upload link.
        upload: the id of the resumable upload; "" before there is one.
        query: the query of the address of the upload.
        sid: the id of the client's session.
    """

    def __init__(self, world: Driver, query: dict[str, str]) -> None:
        self.world = world
        self.link = query
        self.upload = ""
        self.query: dict[str, str] = {}
        self.sid = next((session.sid for session in Inside(world.engine).sessions.sessions.values()), "")

    def open(self, verb: Verb, **more: Any) -> ChannelId:
        given: dict[str, Any] = {"server": "f", "query": self.query, "draft": self.upload, "verb": verb, **more}
        channel = self.world.engine.new_channel()
        self.world.open(channel, DraftOpening(**given))
        return channel

    def create(self, length: int, **more: Any) -> ChannelId:
        more.setdefault("file", RawFile("a.txt", "text/plain"))
        return self.open(Verb.CREATE, query=self.link, draft="", length=length, base_url="http://here", **more)

    def begin(self, length: int = 10, **more: Any) -> str:
        """Creates a resumable upload. Returns its address."""
        return self.go_to(self.reply(self.create(length, **more)))

    def go_to(self, sent: Send) -> str:
        assert sent.status == 201
        location = dict(sent.headers)["Location"]
        url = urlsplit(location)
        self.upload, self.query = url.path.rpartition("/")[2], dict(parse_qsl(url.query))
        return location

    def append(self, offset: int, size: int | None = 5, **more: Any) -> ChannelId:
        return self.open(Verb.APPEND, offset=offset, size_bytes=size, **more)

    def tell(self, channel: ChannelId, size: int, **more: Any) -> list[Any]:
        return self.world.send(channel, msgspec.json.encode(Appended(size, **more)))

    def add(self, offset: int, size: int) -> Send:
        channel = self.append(offset, size)
        self.tell(channel, offset + size)
        return self.reply(channel)

    def complete(self, channel: ChannelId, size: int = 10) -> Send:
        (save,) = self.tell(channel, size, sha256=HASH)
        assert isinstance(save, Save)
        self.world.store(save.ticket, Saved())
        return self.reply(channel)

    def reply(self, channel: ChannelId) -> Send:
        (sent,) = self.world.sent[channel]
        assert sent.is_last
        return sent

    def refused(self, channel: ChannelId) -> tuple[int, str]:
        sent = self.reply(channel)
        return sent.status, json.loads(sent.message)["code"]

    def offset(self) -> int | None:
        sent = self.reply(self.open(Verb.RESUME))
        return int(dict(sent.headers)["Upload-Offset"]) if sent.status == 200 else None


def room(world: Driver, sid: str) -> int:
    """The room that there is for a session of an anonymous client."""
    return Inside(world.engine).file_store.room(Account("", sid))


def resumable_world(**more: Any) -> tuple[Driver, Client, ResumableClient]:
    world, client = upload_world(**more)
    return world, client, ResumableClient(world, ask_link(client, HELPER))


def upload_count(world: Driver) -> int:
    """The number of resumable uploads that the engine keeps."""
    return len(Inside(world.engine).resumable_uploads)
