"""A driver of one engine, with helpers for clients and servers that send exactly the messages of a test.

No helper answers on its own, unless its name says so. The driver asserts only two invariants: nothing is sent on a
channel after its end, and a handled deadline is not due again.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from checked_engine import CheckedEngine
from isthmus.core.base.effects import Close, Dial, Effect, Join, Listen, Note, Pass, Post, Send, Spawn
from isthmus.core.base.events import (
    Cause,
    Connected,
    DeleteOpening,
    End,
    GetOpening,
    Headers,
    Opening,
    PipeOpening,
    PostOpening,
    UploadOpening,
)
from isthmus.core.base.grants import NO_GRANTS, Grants
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.base.storage import (
    Conflicted,
    Forget,
    Save,
    Saved,
    SeenFile,
    Serve,
    Sighting,
    StorageAnswer,
    Survey,
    Surveyed,
)
from isthmus.core.bulk import BulkEngine
from isthmus.core.state.records import StoredArtifact, StoredUpload

LINK_KEY = b"0123456789abcdef"
UNIX_AT_ZERO = 1_000_000_000.0
LATEST = "2025-11-25"
DONE = Cause(End.DONE)
GONE = Cause(End.GONE)
FORGOTTEN = Cause(End.REFUSED, status=404)
NO_STREAM = Cause(End.REFUSED, status=405)

E = TypeVar("E", bound=Effect)


def request(id_raw: str, method: str, params: str | None = None) -> bytes:
    rest = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","id":{id_raw},"method":{json.dumps(method)}{rest}}}'.encode()


def notification(method: str, params: str | None = None) -> bytes:
    rest = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","method":{json.dumps(method)}{rest}}}'.encode()


def result(id_raw: str, text: str = "{}") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id_raw},"result":{text}}}'.encode()


def error(id_raw: str, text: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id_raw},"error":{text}}}'.encode()


@dataclass(frozen=True)
class SentMessage:
    """One message that a server was sent: on its stdin, or as the POST whose response is `channel`."""

    channel: ChannelId
    raw: bytes
    post: Post | None

    @property
    def frame(self) -> dict[str, Any]:
        frame = json.loads(self.raw)
        assert isinstance(frame, dict)
        return frame

    @property
    def id(self) -> int:
        number = self.frame["id"]
        assert type(number) is int
        return number


@dataclass
class Driver:
    """Feeds inputs to an engine and records its effects.

    Attributes:
        log: every effect so far.
        sent: messages to each channel.
        over: channels that have ended.
        unread: messages that servers were sent and no test has taken yet.
        children: channels to server processes and sockets.
        used_links: keys of the records of used upload links.
        answers_uses: carry out the orders about such records at once; they are not in the log.
    """

    engine: BulkEngine
    now: float = 100.0
    log: list[Effect] = field(default_factory=list)
    sent: dict[ChannelId, list[Send]] = field(default_factory=lambda: defaultdict(list))
    passed: dict[ChannelId, bytearray] = field(default_factory=dict)
    passing: dict[ChannelId, int] = field(default_factory=dict)
    primed: dict[ChannelId, Send] = field(default_factory=dict)
    closed: dict[ChannelId, Close] = field(default_factory=dict)
    over: set[ChannelId] = field(default_factory=set)
    dials: list[Dial] = field(default_factory=list)
    unread: list[SentMessage] = field(default_factory=list)
    children: set[ChannelId] = field(default_factory=set)
    opened: set[ChannelId] = field(default_factory=set)
    has_disk: bool = False
    surveyed: set[Ticket] = field(default_factory=set)
    used_links: set[str] = field(default_factory=set)
    answers_uses: bool = True

    # --- Inputs -----------------------------------------------------------------------------------------------------

    def open(self, channel: ChannelId, opening: Opening) -> list[Effect]:
        return self._note(self.engine.receive_open(channel, opening, self.now))

    def send(self, channel: ChannelId, message: bytes) -> list[Effect]:
        self._connect(channel)
        return self._note(self.engine.receive_message(channel, message, self.now))

    def _connect(self, channel: ChannelId) -> None:
        """Reports a POST, or a GET stream, as accepted, if it was not yet: its first message comes."""
        is_new = channel in self.engine._context.unopened
        if is_new and any(dial.channel == channel and isinstance(dial.target, Post | Listen) for dial in self.dials):
            self.open(channel, Connected())

    def send_pieces(self, channel: ChannelId, *pieces: bytes) -> list[Effect]:
        self._connect(channel)
        return self._note(self.engine.receive_pieces(channel, pieces, self.now))

    def send_part(self, channel: ChannelId, *pieces: bytes, size_bytes: int = 0, is_last: bool = False) -> list[Effect]:
        """Feeds one part of the response to a POST: the first with its size, the last with the end of its channel."""
        opening, cause = Connected() if size_bytes else None, DONE if is_last else None
        if is_last:
            self.over.add(channel)
        return self._note(
            self.engine.receive_part(channel, pieces, self.now, opening=opening, size_bytes=size_bytes, cause=cause)
        )

    def take(self, channel: ChannelId, size_bytes: int) -> list[Effect]:
        """Reports that `size_bytes` have been written to the client."""
        return self._note(self.engine.receive_sent(channel, size_bytes, self.now))

    def end(self, channel: ChannelId, cause: Cause = DONE) -> list[Effect]:
        """Closes a channel, and drops its unread messages."""
        self.over.add(channel)
        self.unread = [received for received in self.unread if received.channel != channel]
        return self._note(self.engine.receive_close(channel, cause, self.now))

    def store(self, ticket: Ticket, answer: StorageAnswer) -> list[Effect]:
        return self._note(self.engine.receive_answer(ticket, answer, self.now))

    def stop(self) -> list[Effect]:
        return self._note(self.engine.receive_stop(self.now))

    def wait(self, seconds: float) -> list[Effect]:
        """Advances the clock, deadline by deadline."""
        end, out = self.now + seconds, []
        while (deadline := self.engine.next_timeout()) is not None and deadline.at <= end:
            self.now = max(self.now, deadline.at)
            out += self._note(self.engine.handle_timeout(self.now))
            following = self.engine.next_timeout()
            assert following is None or following.at > self.now, "a deadline that was handled is due again"
        self.now = end
        return out

    def _note(self, effects: list[Effect]) -> list[Effect]:
        if self.answers_uses:
            effects = [more for effect in effects for more in self._without_use(effect)]
        for effect in effects:
            if isinstance(effect, Send | Close | Serve) and not (isinstance(effect, Close) and effect.drops):
                assert effect.channel not in self.over, f"ordered for a channel that is over: {effect}"
            if isinstance(effect, Send) and not effect.message and not effect.is_last:
                self.primed[effect.channel] = effect
            elif isinstance(effect, Send):
                self.sent[effect.channel].append(effect)
                if effect.is_last:
                    self.over.add(effect.channel)
                if effect.channel in self.children:
                    self.unread.append(SentMessage(effect.channel, effect.message, None))
            elif isinstance(effect, Pass):
                self._take_part(effect)
            elif isinstance(effect, Close):
                self.closed[effect.channel] = effect
                self.over.add(effect.channel)
            elif isinstance(effect, Dial):
                self.dials.append(effect)
                if isinstance(effect.target, Spawn | Join):
                    self.children.add(effect.channel)
                elif isinstance(effect.target, Post):
                    self.unread.append(SentMessage(effect.channel, effect.target.message, effect.target))
        self.log += effects
        return effects

    def _without_use(self, effect: Effect) -> list[Effect]:
        """Carries out the orders about the use of upload links. Returns what the engine orders then, or the effect."""
        if isinstance(effect, Save) and effect.key.startswith("used/"):
            is_there = effect.key in self.used_links
            self.used_links.add(effect.key)
            return self.engine.receive_answer(effect.ticket, Conflicted() if is_there else Saved(), self.now)
        if isinstance(effect, Forget) and effect.key in self.used_links:
            self.used_links.remove(effect.key)
            return []
        return [effect]

    def _take_part(self, part: Pass) -> None:
        """Records a part that is passed through; a whole message counts as sent."""
        channel = part.channel
        assert (channel in self.passing) is not bool(part.size_bytes), f"out of turn: {part}"
        assert channel not in self.over, f"ordered for a channel that is over: {part}"
        got = self.passed.setdefault(channel, bytearray())
        got += b"".join(part.pieces)
        size_bytes = self.passing.setdefault(channel, part.size_bytes)
        assert len(got) <= size_bytes
        if len(got) == size_bytes:
            self.sent[channel].append(Send(channel, bytes(got), is_last=True))
            self.over.add(channel)

    # --- Servers ----------------------------------------------------------------------------------------------------

    def take_sent(self, method: str) -> SentMessage:
        """Takes the oldest unread message with that method; "" for responses."""
        for received in self.unread:
            if received.frame.get("method", "") == method:
                self.unread.remove(received)
                return received
        raise AssertionError(f"no server was sent {method!r}; unread is {[h.raw for h in self.unread]}")

    def was_sent(self, method: str) -> bool:
        return any(received.frame.get("method", "") == method for received in self.unread)

    def answer(self, received: SentMessage, text: str = "{}", *, session: str | None = None) -> None:
        """Answers a request with a result; over HTTP that ends its POST."""
        self.reply(received, result(str(received.id), text), session=session)

    def reply(self, received: SentMessage, message: bytes, *, session: str | None = None) -> None:
        if received.post is None:
            self.send(received.channel, message)
        else:
            self.open(received.channel, Connected(session=session))
            self.send(received.channel, message)
            self.end(received.channel)
        if not self.has_disk:
            self.answer_surveys()

    def answer_surveys(self) -> None:
        """Answers each survey as if there were a file at the first spelling of each path."""
        for order in self.every(Survey):
            if order.ticket not in self.surveyed:
                self.surveyed.add(order.ticket)
                named = tuple(Sighting(files=(SeenFile(paths[0], 5, "s"),)) for paths in order.named)
                self.store(order.ticket, Surveyed(named))

    def acknowledge(self, received: SentMessage) -> None:
        """Accepts a notification or a response with 202, over HTTP."""
        if received.post is not None:
            self.end(received.channel)

    def last_dial(self, target: type[Spawn | Join | Post | Listen]) -> Dial:
        return next(dial for dial in reversed(self.dials) if isinstance(dial.target, target))

    def start_server(
        self, *, capabilities: str = "{}", revision: str = LATEST, session: str | None = "S1", listens: bool = False
    ) -> ChannelId | None:
        """Plays a server that starts and finishes the handshake. Returns its GET stream, if it has one."""
        spawned = isinstance(self.dials[-1].target, Spawn | Join)
        if spawned:
            self.open(self.dials[-1].channel, Connected())
        text = f'{{"protocolVersion":"{revision}","capabilities":{capabilities}}}'
        self.answer(self.take_sent("initialize"), text, session=session)
        if self.was_sent("server/discover"):  # without a session the server might be one of the stateless era
            self.end(self.take_sent("server/discover").channel, FORGOTTEN)
        self.acknowledge(self.take_sent("notifications/initialized"))
        if spawned:
            return None
        stream = self.last_dial(Listen).channel
        if not listens:
            self.end(stream, NO_STREAM)
            return None
        self.open(stream, Connected())
        return stream

    # --- Results ----------------------------------------------------------------------------------------------------

    def every(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.log if isinstance(effect, kind)]

    def only(self, kind: type[E]) -> E:
        (found,) = self.every(kind)
        return found

    def last(self, kind: type[E]) -> E:
        return self.every(kind)[-1]

    def messages(self, channel: ChannelId) -> list[bytes]:
        return [send.message for send in self.sent[channel]]

    def frames(self, channel: ChannelId) -> Iterator[dict[str, Any]]:
        return (json.loads(message) for message in self.messages(channel))

    def only_message(self, channel: ChannelId) -> dict[str, Any]:
        """Returns the only message on that channel."""
        (message,) = self.messages(channel)
        frame = json.loads(message)
        assert isinstance(frame, dict)
        return frame

    def event_ids(self, channel: ChannelId) -> list[str | None]:
        """Returns the event ids of the messages on that channel, without that of the priming event."""
        return [send.event_id for send in self.sent[channel]]

    def notes(self, level: str) -> list[str]:
        return [note.text for note in self.every(Note) if note.level == level]


@dataclass
class Client:
    """A client of one server, on a pipe or over HTTP."""

    driver: Driver
    server: str
    pipe: ChannelId | None = None
    session: str | None = None
    stream: ChannelId | None = None
    principal: str = ""
    headers: Headers = ()
    grants: Grants = NO_GRANTS

    def send(self, message: bytes, *, takes_events: bool = True) -> ChannelId:
        """Sends one message. Returns the channel that its response comes on."""
        channel = self.pipe or self.post(message, takes_events=takes_events)
        if self.pipe is not None:
            self.driver.send(channel, message)
        return channel

    def post(self, message: bytes, *, takes_events: bool = True, revision: str | None = None) -> ChannelId:
        channel = self.driver.engine.new_channel()
        opening = PostOpening(
            server=self.server,
            principal=self.principal,
            session=self.session,
            revision=revision,
            accepts_events=takes_events,
            base_url="http://here",
            headers=self.headers,
            grants=self.grants,
        )
        self.driver.open(channel, opening)
        self.driver.send(channel, message)
        return channel

    def request(self, id_raw: str, method: str, params: str | None = None) -> ChannelId:
        return self.send(request(id_raw, method, params))

    def notify(self, method: str, params: str | None = None) -> None:
        self.send(notification(method, params))

    def listen(self) -> ChannelId:
        """Opens the GET stream. Returns its channel."""
        channel = self.driver.engine.new_channel()
        self.driver.open(channel, GetOpening(self.server, self.principal, self.session, headers=self.headers))
        if channel not in self.driver.over:
            self.stream = channel
        return channel

    def resume(self, last_event_id: str | None) -> ChannelId:
        """Asks for the rest of the stream after an event. Returns the new channel."""
        assert last_event_id is not None
        channel = self.driver.engine.new_channel()
        opening = GetOpening(
            server=self.server, principal=self.principal, session=self.session, last_event_id=last_event_id
        )
        self.driver.open(channel, opening)
        return channel

    def delete(self) -> ChannelId:
        channel = self.driver.engine.new_channel()
        self.driver.open(channel, DeleteOpening(self.server, self.principal, self.session, headers=self.headers))
        return channel

    def initialize(self, params: str | None = None) -> ChannelId:
        params = params or f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}'
        return self.request("0", "initialize", params)


def driver(
    *servers: ServerPlan,
    limits: Limits | None = None,
    seed: int = 1,
    stored: Iterable[StoredArtifact] = (),
    stored_uploads: Iterable[StoredUpload] = (),
    is_checked: bool = True,
    **plan: Any,
) -> Driver:
    """Returns a driver of an engine with seeded entropy.

    Args:
        servers: by default one of each kind, "pipe" and "http".
        is_checked: the oracle checks all messages. False for peers whose messages no oracle can follow.
    """
    both = (ServerPlan(id="pipe", kind=Kind.PIPE), ServerPlan(id="http", kind=Kind.HTTP))
    whole = Plan(servers=servers or both, link_keys=(LINK_KEY,), workspaces_path="/w", **plan)
    entropy = random.Random(seed).randbytes
    kind = CheckedEngine if is_checked else BulkEngine
    engine = kind(
        whole,
        entropy=entropy,
        unix_at_zero=UNIX_AT_ZERO,
        has_storage=True,
        limits=limits,
        stored=stored,
        stored_uploads=stored_uploads,
    )
    return Driver(engine)


def new_client(world: Driver, down: str, server: str, principal: str = "", headers: Headers = ()) -> Client:
    """Returns a client that has sent nothing yet. `down` is "pipe" or "http"."""
    client = Client(world, server, principal=principal, headers=headers)
    if down == "pipe":
        client.pipe = world.engine.new_channel()
        world.open(client.pipe, PipeOpening(server, principal, "http://here", headers))
    return client


def initialized_client(world: Driver) -> tuple[Client, ChannelId]:
    """Returns a client whose HTTP server has finished the handshake, and the channel of the GET stream being opened."""
    client = new_client(world, "http", "http")
    init = client.initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    world.acknowledge(world.take_sent("notifications/initialized"))
    client.session = world.sent[init][-1].session
    return client, world.last_dial(Listen).channel


def connect(
    world: Driver,
    down: str,
    server: str,
    *,
    principal: str = "",
    capabilities: str = "{}",
    revision: str = LATEST,
    session: str | None = "S1",
    listens: bool = False,
    headers: Headers = (),
) -> Client:
    """Returns a client that has finished the handshake with its server. No message is left unread."""
    client = new_client(world, down, server, principal, headers)
    channel = client.initialize(f'{{"protocolVersion":"{revision}","capabilities":{{}}}}')
    world.start_server(capabilities=capabilities, revision=revision, session=session, listens=listens)
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    if client.pipe is not None:
        world.sent[client.pipe].clear()
    assert not world.unread
    return client


# --- Files ------------------------------------------------------------------------------------------------------------


def send_in(world: Driver, opening: UploadOpening) -> ChannelId:
    """Opens a request to the upload endpoint, whose body has not been received yet. Returns its channel."""
    channel = world.engine.new_channel()
    world.open(channel, opening)
    return channel


def manifest(*files: tuple[str, int]) -> bytes:
    """Returns the body of an upload that was stored. Each file is (name, size in bytes)."""
    stored = [{"filename": name, "size_bytes": size, "sha256": "0" * 64} for name, size in files]
    return json.dumps({"files": stored}).encode()


def ask_link(client: Client, helper: str) -> dict[str, str]:
    """Calls the helper tool of uploads. Returns the query of the link."""
    channel = client.request('"link"', "tools/call", f'{{"name":"{helper}"}}')
    url = json.loads(client.driver.messages(channel)[-1])["result"]["structuredContent"]["upload_url"]
    return dict(parse_qsl(urlsplit(url).query))


def upload(client: Client, helper: str, *files: tuple[str, int]) -> list[str]:
    """Uploads files to a client's session. Returns their handles."""
    world = client.driver
    channel = send_in(world, UploadOpening(server=client.server, query=ask_link(client, helper)))
    effects = world.send(channel, manifest(*files))
    for save in [effect for effect in effects if isinstance(effect, Save) and effect.if_version is None]:
        world.store(save.ticket, Saved())
    handles = world.only_message(channel)["upload_handles"]
    assert len(handles) == len(files)
    return list(handles)
