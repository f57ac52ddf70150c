"""A model of files: the bytes that each client was promised, under which name, and for how long.

Clients of both eras, of two principals and two servers, put files in at once or piece by piece, call tools with handles
of their own and of others, of now, of long ago and of an earlier run; tools write, overwrite, move and leave half of a
file, and answer, fail, are cancelled or die; time passes, sessions end, room runs out, an operator deletes, the disk
fails or is late, and the proxy is started again. The model sees what clients, servers and a disk see. It holds that

- a name gives exactly the bytes it was given for, to those who may have them, and to no other client;
- files that tools have written are collected whole, once, by the first call of their session that ends well;
- a file goes when it expires, when its session has ended, when an operator deletes it, or when another needs its room,
  and never while a call uses it;
- every stored file can be found, and nothing else is on the disk;
- when all sessions and files are over, nothing is left.

`ISTHMUS_FILES_EXAMPLES` asks for more examples than usual.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from driving import GONE, UNIX_AT_ZERO, SentMessage
from file_clients import ClientRequest, Party, Scene
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from inside import Inside
from isthmus.core.base.events import DraftOpening, RawFile, UploadOpening, Verb
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Deliver,
    Eviction,
    FileScope,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.revisions import Era
from isthmus.core.base.storage import Append, Appended, Receive
from isthmus.core.state.records import FileStatus
from stateless_driving import assert_empty

SESSION_BYTES, ALL_BYTES, FILE_BYTES = 100, 160, 60
UPLOAD_S, ARTIFACT_S, RESUMABLE_S, STORAGE_S, LINK_S = 60, 45, 30, 20, 25
FILES_EACH, FILES_ALL = 6, 16
LIMITS = Limits(
    session_storage_max_bytes=SESSION_BYTES,
    storage_max_bytes=ALL_BYTES,
    upload_size_max_bytes=FILE_BYTES,
    artifact_size_max_bytes=FILE_BYTES,
    uploads_per_session_max=FILES_EACH,
    artifacts_per_session_max=FILES_EACH,
    stored_files_max=FILES_ALL,
    upload_files_max=2,
    artifact_page_max=2,
    upload_ttl_s=UPLOAD_S,
    artifact_ttl_s=ARTIFACT_S,
    upload_link_ttl_s=LINK_S,
    upload_draft_ttl_s=RESUMABLE_S,
    upload_draft_max_s=2 * RESUMABLE_S,
    storage_timeout_s=STORAGE_S,
    session_idle_ttl_s=1e6,
    reply_timeout_s=1e6,
    restart_backoff_s=0.001,
    restart_backoff_max_s=0.001,
    crash_loop_failures=10_000,
)


def consumer(tool: str, deliver: Deliver) -> UploadConsumer:
    return UploadConsumer(tools=(tool,), file_path_argument="files", deliver=deliver, accept_other=True)


def producer(tool: str, mode: LocatorMode, **more: Any) -> ArtifactProducer:
    key = "file" if mode is LocatorMode.STRUCTURED else None
    return ArtifactProducer(tools=(tool,), output_locator=OutputLocator(mode=mode, output_path_key=key), **more)


SERVERS = (
    ServerPlan(id="auto", kind=Kind.PIPE, era=Era.HANDSHAKE, auto_files=AutoFiles()),
    ServerPlan(
        id="box",
        kind=Kind.HTTP,
        era=Era.HANDSHAKE,
        consumers=(consumer("eat", Deliver.PATH), consumer("read", Deliver.BASE64), consumer("open", Deliver.URL)),
        producers=(
            producer("make", LocatorMode.NONE, output_path_argument="out"),
            producer("tell", LocatorMode.STRUCTURED),
            producer("show", LocatorMode.EMBEDDED, expose_as_resource=False),
        ),
    ),
)
NAMES = {"auto": ["run"], "box": ["eat", "read", "open", "make", "tell", "show"]}
TOOLS = {id: [{"name": name, "inputSchema": {"type": "object"}} for name in names] for id, names in NAMES.items()}
CLIENTS = [
    ("auto", "ann", False),
    ("auto", "ann", False),
    ("auto", "bob", False),
    ("box", "ann", False),
    ("auto", "ann", True),
    ("auto", "bob", True),
    ("box", "ann", True),
]
WRITES = ["new", "new", "new", "again", "input", "half", "empty", "hidden", "large", "move"]
WHO = st.sampled_from([0, 0, 0, 1, 2, 3, 3, 4, 4, 5, 6])
SIZES = st.sampled_from([20, 20, 35, FILE_BYTES])


@dataclass(eq=False)
class File:
    """A file that was promised to a client."""

    id: str
    kind: str
    uri: str
    blob: str
    data: bytes
    server: str
    sid: str
    principal: str
    is_bearer: bool
    is_exposed: bool
    ends_at: float
    added_at: float
    is_restored: bool = False
    pins: int = 0
    gone: str = ""
    url: str = ""

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(eq=False)
class Coming:
    """An upload under way.

    Attributes:
        reserved: bytes of its reservation.
        slots: the number of files in its reservation.
        files: the bytes that were sent, by blob.
        resume_query: the query of its address, if it is a resumable upload.
    """

    party: Party
    sid: str
    link: dict[str, str]
    channel: ChannelId
    reserved: int
    slots: int
    blobs: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    data: bytes = b""
    resume_query: dict[str, str] | None = None
    address: str = ""
    offset: int = 0
    ends_at: float = 0.0
    dies_at: float = 0.0
    is_sent: bool = False
    troubles: int = 0


@dataclass(eq=False)
class Space:
    """The folders of one session, and what its tools have done there.

    Attributes:
        dirty: finished files that no result has described, by path.
        written: the contents of all files that were ever whole.
        hidden: the contents of files that are collected only when they are named.
        touched: copies of inputs that tools have changed.
        is_begun: True once the files before the first call are known to be no outputs.
        doubtful: contents that were written before that was known, as the disk failed or was late: they may be
            collected, or not.
    """

    base: str
    dirty: dict[str, bytes] = field(default_factory=dict)
    written: set[bytes] = field(default_factory=set)
    hidden: set[bytes] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    is_begun: bool = False
    doubtful: set[bytes] = field(default_factory=set)


@dataclass(eq=False)
class Call:
    party: Party
    tag: str
    tool: str
    inputs: list[File]
    is_refused: bool
    space: Space
    troubles: int
    asked: ClientRequest | None = None
    received: SentMessage | None = None
    got: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    data: bytes = b""
    expected: dict[str, bytes] | None = None
    is_given_up: bool = False
    is_answered: bool = False


class FilesWorld(RuleBasedStateMachine):
    @initialize(eviction=st.sampled_from(Eviction), scope=st.sampled_from(FileScope))
    def begin(self, eviction: Eviction, scope: FileScope) -> None:
        self.eviction, self.scope = eviction, scope
        self.scene = Scene(SERVERS, TOOLS, limits=LIMITS, eviction=eviction, file_scope=scope)
        self.owners: dict[str, Party] = {}  # by session, those that are over included
        self.parties = [Party(self.scene, server, name, is_modern=modern) for server, name, modern in CLIENTS]
        self.files: dict[str, File] = {}
        self.coming: list[Coming] = []
        self.calls: list[Call] = []
        self.spaces: dict[str, Space] = {}
        self.deleted: set[str] = set()
        self.brought: dict[str, bytes] = {}
        self.spent: set[str] = set()
        self.released = 0
        # By files that were stored when the process ended, before others could be evicted for them.
        self.is_surprised = False
        self.count = 0
        self.troubles = 0

    # --- What the model knows ---------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.scene.world.now

    def fresh(self, size: int) -> bytes:
        """Bytes that no other file has."""
        self.count += 1
        return f"{self.count:05} ".encode().ljust(size, b"x")

    def there(self) -> list[File]:
        return [file for file in self.files.values() if not file.gone]

    def live(self) -> set[str]:
        return {party.sid for party in self.parties if party.is_there}

    def may_have(self, file: File, party: Party) -> bool:
        if (file.server, file.principal) != (party.server, party.principal):
            return False
        if self.scope is FileScope.PRINCIPAL:
            return True
        return file.sid == party.sid or file.is_bearer or (file.is_restored and file.sid not in self.live())

    def account(self, sid: str) -> str:
        """Returns what the files of a session count for: its principal, or itself."""
        return self.owners[sid].principal if self.scope is FileScope.PRINCIPAL else sid

    def used(self, file: File) -> None:
        if file.kind == "upload":
            file.ends_at = self.now + UPLOAD_S

    def reservations(self, sid: str | None = None) -> tuple[int, int]:
        found = [one for one in self.coming if sid is None or self.account(sid) == self.account(one.sid)]
        return sum(one.reserved for one in found), sum(one.slots for one in found)

    def bytes_of(self, sid: str | None = None) -> int:
        there = self.there() if sid is None else self.beside(sid)
        return sum(file.size for file in there) + self.reservations(sid)[0]

    def beside(self, sid: str) -> list[File]:
        """The files that count together with those of a session."""
        return [file for file in self.there() if self.account(file.sid) == self.account(sid)]

    def fits(self, sid: str, sizes: list[int]) -> bool:
        """True if there is room without an eviction."""
        slots = sum(file.kind == "artifact" for file in self.beside(sid)) + len(sizes)
        return (
            self.bytes_of(sid) + sum(sizes) <= SESSION_BYTES
            and self.bytes_of() + sum(sizes) <= ALL_BYTES
            and slots <= FILES_EACH
            and len(self.there()) + self.reservations()[1] + len(sizes) <= FILES_ALL
        )

    def party(self, index: int) -> Party:
        party = self.parties[index]
        if not party.is_there:
            party.begin()
        self.owners[party.sid] = party
        return party

    def space_of(self, party: Party) -> Space:
        session = Inside(self.scene.world.engine).sessions.by_sid(party.sid)
        assert session is not None
        return self.spaces.setdefault(party.sid, Space(f"/w/{session.workspace}"))

    def is_quiet(self) -> bool:
        disk = self.scene.disk
        return not (disk.is_late or disk.held or disk.failing)

    # --- Checking ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """All clients read what they got, and the storage is checked."""
        self.scene.run()
        shown = {status.id: status for status in self.scene.world.engine.files()}
        for status in shown.values():
            if status.id not in self.files:
                self.take_note(status)
        for one in list(self.coming):
            self.look_at_upload(one)
        for call in list(self.calls):
            self.look_at_call(call)
        shown = {status.id: status for status in self.scene.world.engine.files()}
        self.look_for_lost(shown)
        for file in self.there():
            status = shown[file.id]
            assert (status.pins, status.size_bytes) == (file.pins, file.size)
            assert status.expires_at_unix - UNIX_AT_ZERO == file.ends_at, file
        self.look_at_disk()

    def take_note(self, status: FileStatus) -> None:
        """A file is new: its bytes belong to a client of that session."""
        data = self.scene.disk.blobs[status.blob]
        if status.kind == "upload":
            assert self.brought[status.blob] == data
            ttl = UPLOAD_S
        else:
            space = self.spaces[status.session]
            assert data in space.written
            found = [path for path, dirty in space.dirty.items() if dirty == data]
            for path in (found := [path for path in found if path.rpartition("/")[2] == status.filename]):
                del space.dirty[path]
            is_named = status.tool != "run" or data in space.hidden
            assert found or is_named or not space.is_begun or data in space.doubtful, "each is collected once"
            space.doubtful.discard(data)
            ttl = ARTIFACT_S
        added_at = status.stored_at_unix - UNIX_AT_ZERO
        party = self.owners[status.session]
        is_bearer = party.is_modern or self.scope is FileScope.PRINCIPAL
        assert (status.server, status.principal, status.is_bearer) == (party.server, party.principal, is_bearer)
        assert status.sha256 == hashlib.sha256(data).hexdigest()
        assert status.expires_at_unix - status.stored_at_unix in (ttl, ttl + self.now - added_at)
        self.files[status.id] = File(
            status.id,
            status.kind,
            status.uri,
            status.blob,
            data,
            status.server,
            status.session,
            status.principal,
            status.is_bearer,
            status.tool != "show",
            status.expires_at_unix - UNIX_AT_ZERO,
            added_at,
        )

    def look_for_lost(self, shown: dict[str, FileStatus]) -> None:
        evicted: list[File] = []
        live = self.live()
        for file in self.there():
            is_over = file.ends_at <= self.now and not file.pins
            is_closed = file.kind == "upload" and not file.is_bearer and not file.is_restored and file.sid not in live
            is_closed &= self.scope is FileScope.SESSION
            if is_over or is_closed or file.id in self.deleted:
                assert file.id not in shown, file
                file.gone = "its time"
            elif file.id not in shown:
                evicted.append(file)
        if not evicted:
            return
        assert self.eviction is not Eviction.NONE
        for file in evicted:
            file.gone = "eviction"
            assert not file.pins
        if self.troubles != self.scene.disk.troubles:
            return  # the files that they made room for may not have been stored
        extra = sum(file.size for file in evicted) + self.released
        for file in evicted:
            gone = [other for other in evicted if self.account(other.sid) == self.account(file.sid)]
            own = sum(other.size for other in gone) + self.released
            is_own = self.bytes_of(file.sid) + own > SESSION_BYTES
            kinds = sum(other.kind == file.kind for other in [*gone, *self.beside(file.sid)])
            is_many = kinds > FILES_EACH or len(self.there()) + len(evicted) > FILES_ALL
            is_many &= file.sid not in live
            assert is_own or is_many or self.bytes_of() + extra > ALL_BYTES, (file, evicted)

    def look_at_disk(self) -> None:
        disk, there = self.scene.disk, self.there()
        blobs = {file.blob: file.data for file in there}
        keys = {f"{file.kind}/{file.sid}/{file.id}" for file in there}
        assert blobs.items() <= disk.blobs.items()
        assert keys <= disk.records.keys()
        if not disk.held:
            assert disk.records.keys() == keys
            assert disk.blobs.keys() == blobs.keys()

    # --- Uploading --------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.coming) < 3)
    @rule(index=WHO, form=st.sampled_from(["form", "form", "put", "tus"]), size=SIZES)
    def put_in(self, index: int, form: str, size: int) -> None:
        """Begins an upload: refused only where no eviction could make room."""
        party = self.party(index)
        link = party.link()
        assert link["sid"] == party.sid
        world = self.scene.world
        channel = world.engine.new_channel()
        room, slots = self.room(party.sid)
        one = Coming(party, party.sid, link["query"], channel, 0, 0, ())
        one.data = self.fresh(size)
        raw = RawFile("a.txt", "text/plain")
        if form == "tus":
            opening = DraftOpening(
                server=party.server, verb=Verb.CREATE, query=one.link, length=size, file=raw, base_url="http://here"
            )
            world.open(channel, opening)
            (sent,) = world.sent[channel]
            if sent.status == 201:
                parts = urlsplit(dict(sent.headers)["Location"])
                one.address, one.resume_query = parts.path.rpartition("/")[2], dict(parse_qsl(parts.query))
                one.reserved, one.slots = size, 1
                one.ends_at, one.dies_at = self.now + RESUMABLE_S, self.now + 2 * RESUMABLE_S
        else:
            is_raw = form == "put"
            opening_ = UploadOpening(server=party.server, query=one.link, size_bytes=size, raw=raw if is_raw else None)
            effects = world.open(channel, opening_)
            for order in effects:
                if isinstance(order, Receive):
                    one.reserved, one.slots, one.blobs = order.total_size_max_bytes, len(order.blobs), order.blobs
                    assert one.reserved <= size
        if self.is_quiet() and not any(one.is_sent for one in self.coming):
            assert bool(one.reserved) == (slots > 0 and room > 0 and (form == "form" or room >= size)), (room, slots)
        if one.reserved:
            self.coming.append(one)
        self.look()

    def room(self, sid: str) -> tuple[int, int]:
        """Bytes and uploads that a session may still have, with what could be evicted for them."""

        def sizes(files: list[File]) -> int:
            may_go = self.eviction is not Eviction.NONE
            return sum(file.size for file in files if may_go and not file.pins and file.added_at != self.now)

        live = self.live()
        own = sizes(self.beside(sid))
        loose = [
            file
            for file in self.there()
            if file not in self.beside(sid) and file.sid not in live and (file.is_bearer or file.is_restored)
            if file.principal == self.owners[sid].principal
        ]
        own_left, all_left = SESSION_BYTES - self.bytes_of(sid), ALL_BYTES - self.bytes_of()
        may_go = [
            file
            for file in self.beside(sid)
            if self.eviction is not Eviction.NONE and not file.pins and file.added_at != self.now
        ]
        closed = [file for file in [*may_go, *loose] if file.sid not in live]
        uploads = sum(file.kind == "upload" for file in self.beside(sid)) + self.reservations(sid)[1]
        uploads -= sum(file.kind == "upload" for file in closed if file in may_go)
        slots = min(FILES_EACH - uploads, FILES_ALL + len(closed) - len(self.there()) - self.reservations()[1])
        return min(own + own_left, own + sizes(loose) + all_left), slots

    @rule(index=WHO, form=st.sampled_from(["form", "form", "put", "tus"]), size=SIZES)
    def put_whole(self, index: int, form: str, size: int) -> None:
        before = len(self.coming)
        self.put_in(index, form, size)
        if len(self.coming) > before:
            self.send_one(self.coming[-1], hangs_up=False, is_whole=True)

    @precondition(lambda self: any(not one.is_sent for one in self.coming))
    @rule(data=st.data(), hangs_up=st.booleans(), is_whole=st.booleans())
    def send(self, data: st.DataObject, hangs_up: bool, is_whole: bool) -> None:
        """The body of an upload arrives, or its client is gone."""
        one = data.draw(st.sampled_from([one for one in self.coming if not one.is_sent]))
        self.send_one(one, hangs_up=hangs_up, is_whole=is_whole)

    def send_one(self, one: Coming, *, hangs_up: bool, is_whole: bool) -> None:
        one.troubles = self.scene.disk.troubles
        self.released = one.reserved
        if one.resume_query is not None:
            self.go_on(one, is_whole=is_whole, is_last=hangs_up)
        elif hangs_up and not is_whole:
            self.scene.world.end(one.channel, GONE)
            self.coming.remove(one)
        else:
            self.arrive(one, is_split=len(one.blobs) > 1 and hangs_up)
        self.look()

    def arrive(self, one: Coming, *, is_split: bool) -> None:
        whole = one.data[: one.reserved]
        cut = len(whole) // 2 if is_split else len(whole)
        parts = [part for part in (whole[:cut], whole[cut:]) if part]
        one.files = dict(zip(one.blobs, parts, strict=False))
        one.is_sent = True
        self.keep(one)
        stored = [
            {"filename": "a.txt", "size_bytes": len(part), "sha256": hashlib.sha256(part).hexdigest()} for part in parts
        ]
        self.scene.world.send(one.channel, json.dumps({"files": stored}).encode())

    def keep(self, one: Coming) -> None:
        self.scene.disk.blobs.update(one.files)
        self.brought.update(one.files)

    def go_on(self, one: Coming, *, is_whole: bool, is_last: bool) -> None:
        world = self.scene.world
        assert one.resume_query is not None
        common: dict[str, Any] = {"server": one.party.server, "query": one.resume_query, "draft": one.address}
        channel = world.engine.new_channel()
        if is_last and not is_whole:
            world.open(channel, DraftOpening(verb=Verb.END, **common))
            assert world.sent[channel][-1].status in self.statuses(one, 204)
            self.coming.remove(one)
            return
        left = len(one.data) - one.offset
        effects = world.open(channel, DraftOpening(verb=Verb.APPEND, offset=one.offset, size_bytes=left, **common))
        orders = [order for order in effects if isinstance(order, Append)]
        if not orders:
            assert world.sent[channel][-1].status in self.statuses(one, 0)
            self.coming.remove(one)
            return
        assert self.statuses(one, 0) == [0]
        (order,) = orders
        assert (order.offset, order.size_bytes) == (one.offset, len(one.data))
        count = left if is_whole else left // 2
        one.offset += count
        self.scene.disk.unfinished_uploads[order.blob] = one.data[: one.offset]
        one.channel, one.ends_at = channel, min(self.now + RESUMABLE_S, one.dies_at)
        if one.offset < len(one.data):
            world.send(channel, msgspec.json.encode(Appended(one.offset)))
            assert world.sent[channel][-1].status == 204
            return
        one.is_sent = True
        one.files = {order.blob: self.scene.disk.unfinished_uploads.pop(order.blob)}
        self.keep(one)
        report = Appended(one.offset, sha256=hashlib.sha256(one.data).hexdigest())
        world.send(channel, msgspec.json.encode(report))

    def statuses(self, one: Coming, fine: int) -> list[int]:
        """The statuses with which a request about a resumable upload may be answered."""
        if one.dies_at <= self.now:
            return [403, 404]
        if one.ends_at <= self.now or self.is_orphan(one) or one.link["grant"] in self.spent:
            return [404, 409]
        return [fine]

    def is_orphan(self, one: Coming) -> bool:
        return self.scope is FileScope.SESSION and not one.party.is_modern and one.sid not in self.live()

    def look_at_upload(self, one: Coming) -> None:
        """The client gets a handle for each file; or nothing is left of the upload."""
        if not one.is_sent:
            if (one.resume_query is not None and one.ends_at <= self.now) or (
                self.is_orphan(one) and one.resume_query is not None
            ):
                self.coming.remove(one)
            return
        found = self.scene.world.sent[one.channel]
        if not found:
            return
        self.coming.remove(one)
        sent = found[-1]
        blobs = {file.blob for file in self.files.values()}
        if sent.status in (200, 201, 204):
            if one.resume_query is None:
                handles = json.loads(sent.message)["upload_handles"]
            else:
                handles = [dict(sent.headers)["Upload-Handle"]]
            assert [f for f in self.files.values() if f.uri in handles and f.blob in one.files], "each handle is a file"
            assert len(handles) == len(one.files)
            assert blobs >= one.files.keys()
            self.spent.add(one.link["grant"])
        else:
            assert not blobs & one.files.keys()
            assert self.is_orphan(one) or one.troubles != self.scene.disk.troubles, sent

    # --- Calling ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.calls) < 4)
    @rule(data=st.data(), index=WHO, is_wild=st.booleans())
    def call(self, data: st.DataObject, index: int, is_wild: bool) -> None:
        """A call names some files: its server gets the bytes of each, or no call at all."""
        party = self.party(index)
        tool = data.draw(st.sampled_from(NAMES[party.server]), label="tool")
        own = [file for file in self.there() if self.may_have(file, party)]
        others = [file for file in self.there() if file not in own and file.server == party.server]
        known = (others or list(self.files.values())) if is_wild else own
        named = (
            data.draw(st.lists(st.sampled_from(known[-12:]), max_size=2, unique=True), label="named") if known else []
        )
        takes = tool in ("run", "eat", "read", "open")
        self.count += 1
        call = Call(party, f"c{self.count}", tool, [], False, self.space_of(party), self.scene.disk.troubles)
        for file in named if takes else []:
            if file.gone or not self.may_have(file, party):
                call.is_refused = True
                break
            self.used(file)
            file.pins += 1
            call.inputs.append(file)
        if tool == "run" and not call.is_refused and not call.space.is_begun:
            call.space.doubtful.update(call.space.dirty.values())
            call.space.dirty.clear()
        arguments: dict[str, Any] = {"tag": call.tag, "files": [file.uri for file in named] if takes else []}
        if tool == "make":
            arguments["out"] = "out.txt"
        self.calls.append(call)
        call.asked = party.ask("tools/call", name=tool, arguments=arguments)
        if tool == "run" and call.troubles == self.scene.disk.troubles and not call.is_refused:
            call.space.is_begun = True
        self.look()
        if call.is_refused:
            assert call.received is None
            assert call not in self.calls
        elif call.troubles == self.scene.disk.troubles:
            assert call.received is not None, (call, call.asked.reply)

    @rule(
        data=st.data(),
        index=WHO,
        writes=st.lists(st.tuples(st.sampled_from(WRITES), SIZES), min_size=1, max_size=3),
        how=st.sampled_from(["fine", "fine", "fine", "isError"]),
        size=SIZES,
    )
    def call_whole(self, data: st.DataObject, index: int, writes: list[tuple[str, int]], how: str, size: int) -> None:
        before = list(self.calls)
        self.call(data, index, False)
        for call in [call for call in self.calls if call not in before and call.received is not None]:
            for how_written, written in writes:
                self.write_in(data, call, written, how_written)
            self.answer_one(call, how, size)

    def look_at_call(self, call: Call) -> None:
        asked = call.asked
        assert asked is not None
        if call.received is None and call.tag in self.scene.calls:
            call.received = self.scene.calls[call.tag]
            call.got = call.received.frame["params"]["arguments"]
            assert not call.is_refused
            self.check_delivery(call)
        if asked.reply is None and not asked.is_over:
            return
        self.calls.remove(call)
        for file in call.inputs:
            file.pins -= 1
        if asked.reply is None:
            assert call.is_given_up
            return
        self.check_answer(call, asked.reply)

    def check_delivery(self, call: Call) -> None:
        for file, got in zip(call.inputs, call.got["files"], strict=True):
            if call.tool == "read":
                assert base64.b64decode(got) == file.data
            elif call.tool == "open":
                if file.ends_at > self.now:
                    assert self.scene.download(got) == file.data
                    self.used(file)
            else:
                assert got.startswith(call.space.base + "/in/")
                if got not in call.space.touched:
                    assert self.scene.disk.files[got].data == file.data

    def check_answer(self, call: Call, reply: dict[str, Any]) -> None:
        if "error" in reply:
            assert call.is_given_up, reply
            return
        result = reply["result"]
        text = json.dumps(result)
        assert call.tool != "run" or call.space.base not in text, "no path of the proxy leaks"
        meta = result.get("_meta", {})
        described = meta.get("artifacts") or ([meta["artifact"]] if "artifact" in meta else [])
        if call.is_refused or not call.is_answered:
            assert result["isError"] is True
            assert not described
            assert call.is_refused or call.troubles != self.scene.disk.troubles
            return
        ids = [artifact["artifact_id"] for artifact in described]
        assert len(set(ids)) == len(ids)
        for artifact in described:
            file = self.files[artifact["artifact_id"]]
            assert (artifact["artifact_uri"], file.sid) == (file.uri, call.party.sid)
            assert artifact["sha256"] == hashlib.sha256(file.data).hexdigest()
            file.url = artifact["download_url"]
        if call.expected is not None and call.troubles == self.scene.disk.troubles:
            shown = {status.id for status in self.scene.world.engine.files()}
            assert shown.issuperset(ids), "a file that was just accepted is not evicted"
            found = {self.files[id].data for id in ids}
            assert found >= set(call.expected.values()), (call.expected, meta)

    @precondition(lambda self: any(call.received and not call.is_answered for call in self.calls))
    @rule(
        data=st.data(),
        size=SIZES,
        how=st.sampled_from(WRITES),
    )
    def write(self, data: st.DataObject, size: int, how: str) -> None:
        """A tool works in its folders."""
        self.write_in(data, self.pick(data), size, how)

    def write_in(self, data: st.DataObject, call: Call, size: int, how: str) -> None:
        space, disk = call.space, self.scene.disk
        content = self.fresh(size)
        own = sorted(path for path in disk.files if path.startswith(space.base) and "/in/" not in path)
        path = f"{space.base}/ws/{call.tag}-{self.count}.txt"
        if call.tool == "make":
            path, how = call.got["out"], how if how in ("half", "empty") else "new"
        elif call.tool != "run" and how != "half":
            how = "new"
        if how in ("again", "move") and not own:
            return
        if how == "input":
            if not call.inputs:
                return
            path = call.got["files"][0]
            space.touched.add(path)
        elif how == "again":
            path = data.draw(st.sampled_from(own), label="path")
        elif how == "hidden":
            path = f"{space.base}/ws/.{call.tag}-{self.count}"
        elif how == "large":
            content = self.fresh(FILE_BYTES + 1)
        elif how == "empty":
            content = b""
        elif how == "move":
            old = data.draw(st.sampled_from(own), label="old")
            is_ready = disk.files[old].data and not disk.files[old].is_busy
            is_large = len(disk.files[old].data) > FILE_BYTES
            disk.move(old, path)
            space.dirty.pop(old, None)
            if is_ready and not is_large and not self.is_hidden(old):
                space.dirty[path] = disk.files[path].data
                space.written.add(disk.files[path].data)
            elif is_ready:
                space.written.add(disk.files[path].data)
                if not is_large:
                    space.dirty[path] = disk.files[path].data
            call.path = path
            return
        disk.write(path, content, is_busy=how == "half")
        if self.is_hidden(path):
            space.hidden.add(content)
        space.dirty.pop(path, None)
        if how not in ("half", "empty"):
            space.written.add(content)
            if how != "large" and not self.is_hidden(path):
                space.dirty[path] = content
        call.path, call.data = path, content if how not in ("half", "empty", "large") else b""

    def is_hidden(self, path: str) -> bool:
        return path.rpartition("/")[2].startswith(".")

    def pick(self, data: st.DataObject) -> Call:
        return data.draw(st.sampled_from([c for c in self.calls if c.received and not c.is_answered]), label="call")

    @precondition(lambda self: any(call.received and not call.is_answered for call in self.calls))
    @rule(data=st.data(), how=st.sampled_from(["fine", "fine", "fine", "isError", "error", "die"]), size=SIZES)
    def answer(self, data: st.DataObject, how: str, size: int) -> None:
        """A tool answers with the file that it has written, or fails."""
        self.answer_one(self.pick(data), how, size)

    def answer_one(self, call: Call, how: str, size: int) -> None:
        assert call.received is not None
        world = self.scene.world
        call.is_given_up = how in ("error", "die")
        if how == "die" and call.received.post is None:
            for other in self.calls:
                other.is_given_up |= other.received is not None and other.received.channel == call.received.channel
                other.is_given_up |= other.party is call.party
            world.end(call.received.channel, GONE)
            self.scene.wait(1)  # until it is started again
        elif call.is_given_up:
            world.reply(
                call.received,
                f'{{"jsonrpc":"2.0","id":{call.received.id},"error":{{"code":1,"message":"x"}}}}'.encode(),
            )
        else:
            self.end_well(call, size, is_error=how == "isError")
        self.look()

    def end_well(self, call: Call, size: int, *, is_error: bool) -> None:
        assert call.received is not None
        call.is_answered = True
        result: dict[str, Any] = {"content": [{"type": "text", "text": f"see {call.path or 'nothing'}"}]}
        expected: dict[str, bytes] = {}
        if call.tool == "run":
            expected = dict(call.space.dirty)
        elif call.tool == "tell" and call.path:
            result["structuredContent"] = {"file": call.path}
        elif call.tool == "show":
            shown = self.fresh(size)
            call.space.written.add(shown)
            expected["shown"] = shown
            resource = {"uri": "x:///a.txt", "blob": base64.b64encode(shown).decode()}
            result["content"].append({"type": "resource", "resource": resource})
        if call.tool in ("tell", "make") and call.path and call.data:
            file = self.scene.disk.files.get(call.path)
            if file is not None and file.data == call.data and not file.is_busy:
                expected[call.path] = call.data
        if is_error:
            result["isError"] = True
            expected = {}
        named = self.scene.disk.files.get(call.path)  # a hidden file that is named is collected as well
        sizes = [len(found) for found in expected.values()] + ([] if named is None else [len(named.data)])
        fits = self.fits(call.party.sid, sizes)
        call.expected = expected if fits and self.is_quiet() else None
        self.scene.world.answer(call.received, json.dumps(result))

    @precondition(lambda self: self.count % 3 == 0 and any(not call.is_given_up for call in self.calls))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from([call for call in self.calls if not call.is_given_up]))
        assert call.asked is not None
        call.is_given_up = True
        call.party.cancel(call.asked)
        self.look()
        assert call not in self.calls

    # --- Reading ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_quiet() and any(file.kind == "artifact" for file in self.files.values()))
    @rule(data=st.data(), index=WHO)
    def read(self, data: st.DataObject, index: int) -> None:
        party = self.party(index)
        artifacts = [file for file in self.files.values() if file.kind == "artifact"]
        file = data.draw(st.sampled_from(artifacts[-8:]), label="file")
        reply = party.ask("resources/read", uri=file.uri).reply
        assert reply is not None
        if file.is_exposed and not file.gone and self.may_have(file, party):
            (content,) = reply["result"]["contents"]
            found = content["text"].encode() if "text" in content else base64.b64decode(content["blob"])
            assert found == file.data
        else:
            assert reply["error"]["code"] == (-32602 if party.is_modern else -32002)
            assert self.may_have(file, party) or not re.search("ago|just now", reply["error"]["message"])
        self.look()

    @precondition(lambda self: self.is_quiet() and any(file.url for file in self.files.values()))
    @rule(data=st.data())
    def download(self, data: st.DataObject) -> None:
        """A link gives its file to any holder, and no other file."""
        linked = [file for file in self.files.values() if file.url]
        file = data.draw(st.sampled_from(linked[-8:]), label="file")
        found = self.scene.download(file.url)
        assert found == file.data if not file.gone and file.ends_at > self.now else found in (403, 404)
        for other in linked[-3:]:
            if other is not file:
                parts = urlsplit(file.url)
                assert self.scene.download(parts._replace(path=urlsplit(other.url).path).geturl()) == 403
        self.look()

    @precondition(lambda self: self.is_quiet())
    @rule(index=WHO)
    def list_all(self, index: int) -> None:
        """The pages have the artifacts of the client's own session, and nothing else."""
        party, found, cursor = self.party(index), [], None
        while True:
            params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
            page = party.ask("resources/list", **params).result
            found += [entry["uri"] for entry in page["resources"] if entry["uri"].startswith("artifact:")]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        own = [file for file in self.there() if file.sid == party.sid and file.kind == "artifact" and file.is_exposed]
        assert sorted(found) == sorted(file.uri for file in own if file.ends_at > self.now or file.pins)
        self.look()

    # --- Time, and ends ---------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 1, 7, 26]))
    def wait(self, seconds: int) -> None:
        self.scene.wait(seconds)
        self.look()

    @precondition(lambda self: self.count % 5 == 4 and any(p.is_there and not p.is_modern for p in self.parties))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        there = [party for party in self.parties if party.is_there and not party.is_modern]
        party = data.draw(st.sampled_from(there), label="party")
        for call in self.calls:
            call.is_given_up |= call.party is party
        party.leave()
        self.look()
        party.sid, old = "", party.sid
        self.spaces.pop(old, None)

    @precondition(lambda self: self.count % 4 == 3 and self.there())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(self.there()))
        if not file.pins:
            self.deleted.add(file.id)
            self.scene.world._note(self.scene.world.engine.receive_file_delete(file.id, self.now))
            self.look()

    @precondition(lambda self: self.count % 3 == 2 and self.is_quiet())
    @rule(failing=st.integers(0, 3))
    def break_disk(self, failing: int) -> None:
        """The next orders fail; with none of them, all are late."""
        self.scene.disk.failing, self.scene.disk.is_late = failing, not failing

    @precondition(lambda self: not self.is_quiet())
    @rule()
    def mend_disk(self) -> None:
        disk = self.scene.disk
        disk.failing, disk.is_late = 0, False
        if disk.held:
            self.troubles = -1  # orders under way may have timed out by now
        disk.catch_up()
        self.look()
        self.wait(1)  # files that are accepted at this moment are not evicted for others

    @precondition(lambda self: self.count % 6 == 5)
    @rule(is_graceful=st.booleans(), seconds=st.sampled_from([0, 5]))
    def restart(self, is_graceful: bool, seconds: int) -> None:
        """Promised files are there, until the expiry in their records."""
        if is_graceful:
            self.scene.world.stop()
            self.scene.run()
        self.calls.clear()
        self.coming.clear()
        self.spaces.clear()
        for party in self.parties:
            party.is_there = False
            party.sid = party.sid if party.is_modern else ""
        records = dict(self.scene.disk.records)
        self.scene.restart()
        for file in self.there():
            saved = json.loads(records[f"{file.kind}/{file.sid}/{file.id}"])["expires_at_unix"] - UNIX_AT_ZERO
            assert file.ends_at - UPLOAD_S / 4 <= saved <= file.ends_at
            file.ends_at, file.pins, file.is_restored, file.added_at = saved, 0, True, -1.0
        for id in {status.id for status in self.scene.world.engine.files()} - self.files.keys():
            self.adopt(id)
            self.is_surprised = True
        self.look()
        self.scene.wait(seconds)
        self.look()

    def adopt(self, id: str) -> None:
        """A file that was stored when the process ended, before its client got an answer."""
        (status,) = [status for status in self.scene.world.engine.files() if status.id == id]
        self.files[id] = File(
            id,
            status.kind,
            status.uri,
            status.blob,
            self.scene.disk.blobs[status.blob],
            status.server,
            status.session,
            status.principal,
            status.is_bearer,
            status.tool != "show",
            status.expires_at_unix - UNIX_AT_ZERO,
            -1.0,
            is_restored=True,
        )

    # --- What holds always ------------------------------------------------------------------------------------------

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "parties"):
            return
        self.released, self.troubles = 0, self.scene.disk.troubles
        there = self.there()
        excess = [there] if sum(file.size for file in there) > ALL_BYTES else []
        for sid in {file.sid for file in there}:
            own = self.beside(sid)
            if sum(file.size for file in own) > SESSION_BYTES:
                excess.append(own)
            for kind in ("upload", "artifact"):
                if sum(file.kind == kind for file in own) > FILES_EACH:
                    excess.append(own)  # one that was to give way is used by now
        self.is_surprised &= bool(excess)
        for files in excess:
            assert self.is_surprised or any(file.pins for file in files), files
        assert len(there) <= FILES_ALL or any(file.pins for file in there)

    def teardown(self) -> None:
        if not hasattr(self, "parties"):
            return
        self.scene.disk.failing, self.scene.disk.is_late = 0, False
        self.scene.disk.catch_up()
        self.scene.run()
        for one in self.coming:
            if one.resume_query is None and not one.is_sent:
                self.scene.world.end(one.channel, GONE)
        for party in self.parties:
            if party.is_there and not party.is_modern:
                party.leave()
        for call in self.calls:
            assert call.asked is not None
            if not call.asked.is_over:
                call.party.cancel(call.asked)
        self.scene.wait(2 * LIMITS.session_idle_ttl_s)
        engine: Any = self.scene.world.engine
        assert engine.files() == ()
        disk = self.scene.disk
        assert not (disk.blobs or disk.records or disk.files or disk.unfinished_uploads)
        assert not Inside(engine).file_store._quota._accounts
        assert (Inside(engine).file_store._quota._total_bytes, Inside(engine).file_store._quota._held_files) == (0, 0)
        assert not Inside(engine).file_store._loose
        assert not (Inside(engine).calls._jobs or Inside(engine).calls._known_files_by_workspace)
        assert not Inside(engine).resumable_uploads._uploads
        assert_empty(self.scene.world)


TestFiles = FilesWorld.TestCase
TestFiles.settings = settings(
    max_examples=int(os.environ.get("ISTHMUS_FILES_EXAMPLES", "25")), stateful_step_count=40, deadline=None
)
