"""Tests with random clients and servers of both eras that make, follow and drop tasks in any order.

The storage is late, fails, and forgets nothing by itself. Nothing raises; each request is answered once; no client is
shown a task of another; a client gets a task only after its record is stored; an outcome never changes; a server gets
one cancellation of a task at most; and after its time nothing is left of any task.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from checked_engine import CheckedEngine
from driving import LINK_KEY, UNIX_AT_ZERO, Driver, SentMessage
from inside import Inside
from isthmus.core.base.effects import Delete, Dial, Effect, Join, Post, Send, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Connected, DeleteOpening, End, GetOpening, PipeOpening, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, Offer, Plan, ServerPlan, Sharing, TaskRules
from isthmus.core.base.revisions import LATEST_MODERN, Era
from isthmus.core.base.storage import (
    Collect,
    Collected,
    CollectedFile,
    Discard,
    Fetch,
    Fetched,
    Forget,
    InlineSource,
    Save,
    Saved,
    StorageAnswer,
    StorageFailed,
)
from isthmus.core.oracle import Role
from isthmus.core.state.records import StoredTask
from isthmus.core.status import Command
from isthmus.core.wire.http.mcp_headers import headers_for
from stateless_driving import ANSWERS, FORM, QUESTIONS, K, assert_empty

SEEDS = range(20)
STEPS = 800

TASKS = K + "tasks"
RELATED = K + "related-task"
ALL = TaskRules(offer=Offer.AUTO)
SERVERS = (
    ServerPlan(id="pipe", kind=Kind.PIPE, tasks=ALL),
    ServerPlan(id="http", kind=Kind.HTTP, tasks=ALL),
    ServerPlan(id="modern pipe", kind=Kind.PIPE, era=Era.STATELESS, tasks=ALL),
    ServerPlan(id="modern http", kind=Kind.HTTP, era=Era.STATELESS, tasks=ALL),
    ServerPlan(id="shared", kind=Kind.PIPE, sharing=Sharing.CONCURRENT, tasks=TaskRules(offer=Offer.OWN)),
    ServerPlan(id="serial", kind=Kind.SOCKET, sharing=Sharing.SERIAL, idle_stop_s=30.0, tasks=ALL),
    ServerPlan(id="modern shared", kind=Kind.PIPE, sharing=Sharing.CONCURRENT, era=Era.STATELESS, tasks=ALL),
    ServerPlan(id="bare pipe", kind=Kind.PIPE, tasks=TaskRules(offer=Offer.ALWAYS, tools=(("u", Offer.NEVER),))),
    ServerPlan(id="bare http", kind=Kind.HTTP, tasks=TaskRules(offer=Offer.AUTO)),
    ServerPlan(id="strict", kind=Kind.HTTP, tasks=TaskRules(offer=Offer.AUTO, strict=True)),
)
LIMITS = Limits(
    suspended_calls_per_session_max=2,
    questions_per_session_max=6,
    exchanges_per_session_max=12,
    held_per_session_max=3,
    suspended_call_ttl_s=40.0,
    session_idle_ttl_s=90.0,
    reply_timeout_s=60.0,
    question_timeout_s=30.0,
    storage_timeout_s=20.0,
    task_ttl_s=80.0,
    task_ttl_max_s=150.0,
    task_after_s=1.0,
    task_look_s=2.0,
    tasks_max=14,
    tasks_per_principal_max=9,
    tasks_per_session_max=6,
    task_inline_max_bytes=200,
    task_questions_max=2,
    task_page_max=2,
)
"""Small limits, so that a short run reaches them."""

ABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
TASK_ABLE = {**ABLE, "extensions": {TASKS: {}}}
STATUSES = (*("working",) * 3, *("input_required",) * 5, "completed", "failed", "cancelled")
OVER = ("completed", "failed", "cancelled")
ENDS = (
    *(Cause(End.DONE), Cause(End.GONE), Cause(End.BROKEN, "died"), Cause(End.UNREACHABLE)),
    *(Cause(End.REFUSED, status=status) for status in (400, 401, 404, 500, 503)),
)
TOOLS = [
    {"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
    {"name": "r", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
    {"name": "u", "inputSchema": {"type": "object"}},
]


class Storage:
    """A storage that carries out its orders at random times, in order or not, or fails."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.records: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.orders: list[Save | Collect | Fetch] = []
        self.lasting: set[str] = set()
        self.lost: set[str] = set()

    def note(self, effect: Effect) -> None:
        if isinstance(effect, Save | Collect | Fetch):
            self.orders.append(effect)
        elif isinstance(effect, Forget):
            self.records.pop(effect.key, None)
        elif isinstance(effect, Discard):
            self.blobs.pop(effect.blob, None)

    def restart(self) -> None:
        """Drops the orders under way, and the blobs that no record names."""
        self.orders.clear()
        kept = {msgspec.json.decode(value, type=StoredTask).blob for value in self.records.values()}
        self.blobs = {blob: data for blob, data in self.blobs.items() if blob in kept}

    def carry_out(self, order: Save | Collect | Fetch, *, is_late: bool) -> StorageAnswer:
        self.orders.remove(order)
        if self.rng.random() < 0.08 or (is_late and isinstance(order, Save)):
            if isinstance(order, Save):
                self.lost.add(order.key)
            return StorageFailed(reason="full")
        if isinstance(order, Save):
            self.records[order.key] = order.value
            self.lasting.add(order.key)
            return Saved()
        if isinstance(order, Collect):
            (source,), (blob,) = order.sources, order.blobs
            assert isinstance(source, InlineSource)
            self.blobs[blob] = source.data
            return Collected(files=(CollectedFile(filename="o", size_bytes=len(source.data)),))
        data = self.blobs.get(order.blob)
        return StorageFailed(reason="gone") if data is None else Fetched(data=data)


class RandomPeers:
    """One proxy, its storage, and its clients and servers. The proxy may be restarted."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.servers = [SERVERS[seed % len(SERVERS)].id, self.rng.choice(SERVERS).id]
        self.storage = Storage(self.rng)
        self.plan = Plan(
            servers=SERVERS,
            link_keys=(LINK_KEY,),
            workspaces_path="/w",
            affinity=self.rng.choice(list(Affinity)),
            state_keys=(b"0123456789abcdef",),
        )
        self.patience = self.rng.choice((0.3, 0.9, 1.0))  # the probability that the storage answers soon
        self.oddity = self.rng.choice((0.0, 0.0, 0.1))
        self.upstream_task: dict[str, dict[str, Any]] = {}  # tasks of servers, by their id
        self.reused: set[str] = set()
        self.cancels: Counter[str] = Counter()
        self.known: dict[str, tuple[str, str, str]] = {}  # tasks that clients got: server, principal, era
        self.ends: dict[str, str] = {}
        self.last_id = 0
        self.start(100.0)

    def start(self, now: float) -> None:
        stored = [msgspec.json.decode(value, type=StoredTask) for value in self.storage.records.values()]
        entropy = random.Random(self.rng.random()).randbytes
        engine = CheckedEngine(
            self.plan, entropy=entropy, unix_at_zero=UNIX_AT_ZERO, has_storage=True, limits=LIMITS, stored_tasks=stored
        )
        # After a restart the name of a server is unknown until it is reached.
        engine.blame.left_out.add(("server-info", Role.SERVER))
        self.world = Driver(engine, now=now)
        for task in self.upstream_task.values():
            task["channel"] = None  # its process is gone; another channel may get the number
        self.seen = 0
        self.client_of: dict[ChannelId, tuple[str, str]] = {}  # server and principal of each client channel
        self.pipes: list[ChannelId] = []
        self.sessions: list[tuple[str, str, str]] = []
        self.asked: list[tuple[ChannelId, Any, str]] = []
        self.foreign: dict[tuple[ChannelId, str], str] = {}  # requests that must be refused
        self.connected: set[ChannelId] = set()
        self.received: list[SentMessage] = []

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def message(self, **members: Any) -> bytes:
        if self.chance(self.oddity):
            odd = self.rng.choice((None, [], {}, 1, "x", {"task": 1}, {"taskId": 3}, {"_meta": []}))
            name = self.rng.choice(sorted(set(members) - {"id", "method"}) or ["x"])
            members[name] = odd
        return json.dumps({"jsonrpc": "2.0", **members}).encode()

    def id(self) -> Any:
        self.last_id += 1
        return self.rng.choice((self.last_id, f"s{self.last_id}"))

    # --- Clients ----------------------------------------------------------------------------------------------------

    def request(self, server: str, principal: str, era: str) -> tuple[str, dict[str, Any], str]:
        """Returns a method, its params, and the task that they name."""
        rng = self.rng
        own = [id for id, owner in self.known.items() if owner == (server, principal, era)]
        kind = rng.random()
        if kind < 0.4 or not self.known:
            params: dict[str, Any] = {"name": rng.choice("ttru"), "arguments": {"who": principal}}
            if era == "legacy" and self.chance(0.7):
                params["task"] = rng.choice(({}, {"ttl": 60_000}, {"ttl": 5}, {"ttl": 10**9}))
            if self.chance(0.2):
                params["_meta"] = {"progressToken": rng.choice((1, "p"))}
            return "tools/call", params, ""
        if kind < 0.47:
            return rng.choice(("tools/list", "prompts/get", "ping")), {"name": "p"}, ""
        id = rng.choice(own) if own and self.chance(0.85) else rng.choice([*self.known, "none", ""])
        waits = "tasks/result" if era == "legacy" else "tasks/update"
        method = rng.choice((*("tasks/get",) * 3, *(waits,) * 4, "tasks/result", "tasks/update", "tasks/cancel"))
        if era == "legacy" and self.chance(0.1):
            return "tasks/list", rng.choice(({}, {"cursor": "after-1"}, {"cursor": "x"})), ""
        params = {"taskId": id}
        if method == "tasks/update":
            keys = [f"q{rng.randint(1, 3)}" for _ in range(2)]
            answers = list(ANSWERS.values())
            params["inputResponses"] = {key: rng.choice([answers[0]] * 5 + answers) for key in keys}
        if era == "modern" and self.chance(0.1):
            return "subscriptions/listen", {"notifications": {"taskIds": [id, "none"]}}, ""
        return method, params, id

    def legacy(self, server: str, principal: str, channel: ChannelId | None) -> bytes:
        rng = self.rng
        if self.chance(0.06):
            return self.message(
                method="notifications/cancelled", params={"requestId": rng.randint(1, self.last_id + 1)}
            )
        if self.chance(0.15):
            return self.message(id=rng.randint(1, 8), result=ANSWERS["elicitation/create"])
        method, params, task = self.request(server, principal, "legacy")
        id = self.id()
        self.expect(channel, id, server, principal, "legacy", task)
        return self.message(id=id, method=method, params=params)

    def modern(self, server: str, principal: str, channel: ChannelId | None) -> tuple[str, bytes]:
        method, params, task = self.request(server, principal, "modern")
        able = self.rng.choice((TASK_ABLE, TASK_ABLE, TASK_ABLE, ABLE, {}))
        meta = {K + "protocolVersion": LATEST_MODERN, K + "clientCapabilities": able}
        params["_meta"] = {**params.get("_meta", {}), **meta}
        id = self.id()
        self.expect(channel, id, server, principal, "modern", task)
        return method, self.message(id=id, method=method, params=params)

    def expect(self, channel: ChannelId | None, id: Any, server: str, principal: str, era: str, task: str) -> None:
        self.pending_foreign = None
        if task and self.known.get(task) != (server, principal, era):
            self.pending_foreign = json.dumps(id)
            if channel is not None:
                self.foreign[channel, json.dumps(id)] = task

    def step_client(self) -> None:
        rng, world = self.rng, self.world
        if self.asked and self.chance(0.4):
            channel, id, method = self.asked.pop(rng.randrange(len(self.asked)))
            if channel not in world.over and channel in self.pipes:
                world.send(channel, self.message(id=id, result=ANSWERS.get(method, {})))
            return
        self.pipes = [channel for channel in self.pipes if channel not in world.over]
        server, principal = rng.choice(self.servers), rng.choice(("ann", "ann", "bob", ""))
        kind = rng.random()
        if kind < 0.1 or not self.pipes:
            channel = world.engine.new_channel()
            self.client_of[channel] = server, principal
            world.open(channel, PipeOpening(server, principal, "http://here"))
            self.pipes.append(channel)
            if self.chance(0.7):
                self.greet(channel)
        elif kind < 0.13:
            world.end(rng.choice(self.pipes), Cause(End.GONE))
        elif kind < 0.5:
            channel = rng.choice(self.pipes)
            server, principal = self.client_of[channel]
            is_modern = self.chance(0.4)
            world.send(
                channel,
                self.modern(server, principal, channel)[1] if is_modern else self.legacy(server, principal, channel),
            )
        elif kind < 0.75:
            self.post_modern(server, principal)
        else:
            self.post_legacy(server, principal)
        posts = [channel for channel in self.client_of if channel not in world.over and channel not in self.pipes]
        if posts and self.chance(0.05):
            world.end(rng.choice(posts), Cause(End.GONE))

    def greet(self, channel: ChannelId) -> None:
        able = self.rng.choice((ABLE, ABLE, {}))
        revision = self.rng.choice(("2025-11-25", "2025-11-25", "2025-11-25", "2025-06-18"))
        params = {"protocolVersion": revision, "capabilities": able, "clientInfo": {"name": "c", "version": "1"}}
        self.world.send(channel, self.message(id=self.id(), method="initialize", params=params))
        if channel in self.pipes:
            self.world.send(channel, self.message(method="notifications/initialized"))

    def post_modern(self, server: str, principal: str) -> None:
        method, body = self.modern(server, principal, None)
        frame = json.loads(body)
        try:
            mirrored = headers_for(method, json.dumps(frame.get("params")).encode())
        except Exception:  # params that cannot be mirrored
            mirrored = ()
        channel = self.world.engine.new_channel()
        self.client_of[channel] = server, principal
        if self.pending_foreign is not None:
            self.foreign[channel, self.pending_foreign] = "foreign"
        opening = PostOpening(
            server=server,
            principal=principal,
            revision=LATEST_MODERN,
            accepts_events=self.chance(0.9),
            base_url="http://here",
            mirrored=mirrored,
        )
        self.world.open(channel, opening)
        self.world.send(channel, body)

    def post_legacy(self, server: str, principal: str) -> None:
        rng, world = self.rng, self.world
        channel = world.engine.new_channel()
        if not self.sessions or self.chance(0.15):
            self.client_of[channel] = server, principal
            world.open(channel, PostOpening(server=server, principal=principal, base_url="http://here"))
            self.greet(channel)
            return
        server, principal, session = rng.choice(self.sessions[-4:])
        kind = rng.random()
        if kind < 0.1:
            self.client_of[channel] = server, principal
            world.open(channel, GetOpening(server, principal, session))
        elif kind < 0.14:
            world.open(channel, DeleteOpening(server, principal, session))
        else:
            self.client_of[channel] = server, principal
            takes = self.chance(0.9)
            opening = PostOpening(
                server=server, principal=principal, session=session, accepts_events=takes, base_url="http://here"
            )
            world.open(channel, opening)
            world.send(channel, self.legacy(server, principal, channel))

    # --- Servers ----------------------------------------------------------------------------------------------------

    def open_dials(self) -> list[Dial]:
        return [dial for dial in self.world.dials if dial.channel not in self.world.over]

    def step_server(self) -> None:
        rng, world = self.rng, self.world
        self.take_unread()
        dials = self.open_dials()
        fresh = [dial for dial in dials if dial.channel not in self.connected and not isinstance(dial.target, Delete)]
        if fresh and self.chance(0.6):
            self.connect(rng.choice(fresh))
        elif self.upstream_task and dials and self.chance(0.3):
            self.speak(rng.choice(dials))
        elif self.received and self.chance(0.85):
            self.answer(self.received.pop(rng.randrange(len(self.received))))
        elif self.upstream_task and dials and self.chance(0.8):
            self.speak(rng.choice(dials))
        elif dials and self.chance(0.3):
            world.end(rng.choice(dials).channel, rng.choice(ENDS))

    def take_unread(self) -> None:
        for received in self.world.unread:
            frame = received.frame
            if frame.get("method") == "tasks/cancel":
                self.cancels[frame["params"]["taskId"]] += 1
        self.received += self.world.unread
        self.world.unread.clear()
        self.received = [received for received in self.received[-60:] if received.channel not in self.world.over]

    def connect(self, dial: Dial) -> None:
        if dial.channel not in self.connected:
            self.connected.add(dial.channel)
            self.last_id += 1
            self.world.open(dial.channel, Connected(session=f"S{self.last_id}"))

    def dial_of(self, channel: ChannelId) -> Dial:
        return next(dial for dial in self.world.dials if dial.channel == channel)

    def speak(self, dial: Dial) -> None:
        """Sends a message of a server of its own."""
        if isinstance(dial.target, Delete):
            return
        self.connect(dial)
        rng, server = self.rng, dial.target.server
        own = [
            task for task in self.upstream_task.values() if task["server"] == server and self.reaches_owner(dial, task)
        ]
        if not own:
            return
        task = rng.choice(own)
        meta = {RELATED: {"taskId": task["id"]}}
        kind = rng.random()
        if kind < 0.4 and "modern" not in server:
            params = {**json.loads(FORM), "message": f"for:{task['who']}:", "_meta": meta}
            if self.chance(0.3):
                params["_meta"] = {**meta, "progressToken": 5}
            message = self.message(id=f"q{rng.random()}", method="elicitation/create", params=params)
        elif kind < 0.6:
            params = {"level": "info", "data": f"for:{task['who']}:", "_meta": meta}
            message = self.message(method="notifications/message", params=params)
        elif kind < 0.7:
            progress = {"progressToken": rng.randint(1, 9), "progress": 1, "_meta": meta}
            message = self.message(method="notifications/progress", params=progress)
        else:
            method = "notifications/tasks" if "modern" in server else "notifications/tasks/status"
            message = self.message(method=method, params=self.shown(task, server))
        self.world.send(dial.channel, message)

    def reaches_owner(self, dial: Dial, task: dict[str, Any]) -> bool:
        """True if a message on this connection reaches the owner of the task, as far as its server knows."""
        target = dial.target
        if isinstance(target, Spawn | Join):
            return bool(dial.channel == task["channel"])
        if isinstance(target, Post) and task["id"] in str(target.message):
            return True
        return not isinstance(target, Delete) and target.session is not None and target.session == task["session"]

    def shown(self, task: dict[str, Any], server: str) -> dict[str, Any]:
        rng, is_modern = self.rng, "modern" in server
        is_asking = bool(task["asked"]) and self.chance(0.9)
        if (task["status"] not in OVER and not is_asking) or self.chance(self.oddity):
            task["status"] = rng.choice(STATUSES)
        status = task["status"]
        ttl, poll = ("ttlMs", "pollIntervalMs") if is_modern else ("ttl", "pollInterval")
        found = {"taskId": task["id"], "status": status, "createdAt": "", "lastUpdatedAt": "", ttl: task["ttl"]}
        found[poll] = rng.choice((10, 500, 60_000))
        if self.chance(0.3):
            found["statusMessage"] = rng.choice(("a", "b"))
        if is_modern:
            found["resultType"] = "complete"
            if status == "input_required":
                if not task["asked"]:
                    for method in rng.sample(["elicitation/create", *QUESTIONS], rng.randint(0, 3)):
                        question = {"method": method, "params": self.question(method, task)}
                        task["asked"][f"{method}{rng.randint(0, 5)}"] = question
                found["inputRequests"] = task["asked"]
            elif status == "completed":
                found["result"] = self.result(task)
            elif status == "failed":
                found["error"] = self.error()
        return found

    def question(self, method: str, task: dict[str, Any]) -> dict[str, Any]:
        params = json.loads(QUESTIONS[method])
        return {**params, "message": f"for:{task['who']}:"} if "message" in params else dict(params)

    def error(self) -> dict[str, Any]:
        code = self.rng.choice((-32603, -32020, -32021, -32022, -32042, 5))
        page = {"mode": "url", "message": "m", "url": "http://x", "elicitationId": "v"}
        return {"code": code, "message": "no", "data": {"elicitations": [page], "supported": [LATEST_MODERN]}}

    def result(self, task: dict[str, Any]) -> dict[str, Any]:
        if self.chance(0.05):
            return {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
        text = f"for:{task['who']}:" + "x" * self.rng.choice((1, 1, 300))
        return {"content": [{"type": "text", "text": text}], "isError": self.chance(0.2)}

    def answer(self, received: SentMessage) -> None:
        rng, world, frame = self.rng, self.world, received.frame
        if received.post is not None and ("id" not in frame or "method" not in frame or self.chance(0.06)):
            world.end(received.channel, rng.choice(ENDS))
            return
        if "id" not in frame or "method" not in frame:
            return
        dial = self.dial_of(received.channel)
        assert not isinstance(dial.target, Delete)
        self.connect(dial)
        server, method = dial.target.server, frame["method"]
        if method == "tools/call" and self.chance(0.2) and "modern" not in server:
            params = {**json.loads(FORM), "message": f"for:{self.principal_of(frame.get('params'))}:"}
            if received.post is not None or server in ("pipe", "bare pipe"):
                world.send(
                    received.channel, self.message(id=f"q{rng.random()}", method="elicitation/create", params=params)
                )
            self.received.append(received)
            return
        if method == "tasks/result" and self.chance(0.8):
            self.received.append(received)  # it waits
            return
        members = self.members(received, server, method, frame.get("params") or {})
        if members is None or received.channel in world.over:
            return
        world.send(received.channel, self.message(id=frame["id"], **members))
        if received.post is not None and received.channel not in world.over and self.chance(0.9):
            world.end(received.channel)

    def members(self, received: SentMessage, server: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        rng, is_modern, has_tasks = self.rng, "modern" in server, "bare" not in server
        if method == "server/discover" and not is_modern:
            return {"error": {"code": -32601, "message": "no"}}
        if method == "initialize":
            declared = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
            able = {"tools": {}, "logging": {}, **({"tasks": declared} if has_tasks else {})}
            info = {"name": "s", "version": "1"}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": able, "serverInfo": info}}
        if method == "server/discover":
            able = {"tools": {}, "extensions": {TASKS: {}}}
            return {"result": {"supportedVersions": [LATEST_MODERN], "capabilities": able, "resultType": "complete"}}
        if method == "tools/list":
            return {"result": {"tools": TOOLS, "resultType": "complete"}}
        if method.startswith("tasks/"):
            return self.of_task(server, method, params)
        if method != "tools/call":
            return {"result": {"resultType": "complete"}}
        if self.chance(0.1):
            return {"error": self.error()}
        is_wanted = TASKS in json.dumps(params.get("_meta")) if is_modern else "task" in params
        caller = self.principal_of(params)
        if is_modern and not is_wanted and self.chance(0.3):
            data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            return {"error": {"code": -32021, "message": "no", "data": data}}
        if (is_wanted and self.chance(0.8)) or self.chance(self.oddity):
            self.last_id += 1
            name = rng.choice([*self.upstream_task, "?"]) if self.chance(self.oddity) else f"{server} {self.last_id}"
            task = {
                "id": name,
                "server": server,
                "who": caller,
                "status": "working",
                "ttl": rng.choice((None, 50_000, 0)),
            }
            task["asked"] = {}
            task["channel"] = received.channel
            task["session"] = None if received.post is None else received.post.session
            if name in self.upstream_task:
                self.upstream_task[name]["who"] = "nobody"
                self.reused.add(name)
            task = self.upstream_task.setdefault(name, task)
            shown_task = self.shown(task, server)
            return {"result": {**shown_task, "resultType": "task"} if is_modern else {"task": shown_task}}
        if is_modern and self.chance(0.2):
            asked = {"k": {"method": "elicitation/create", "params": {**json.loads(FORM), "message": f"for:{caller}:"}}}
            return {"result": {"resultType": "input_required", "inputRequests": asked, "requestState": "theirs"}}
        return {"result": {**self.result({"who": caller}), **({"resultType": "complete"} if is_modern else {})}}

    def principal_of(self, params: Any) -> str:
        """Returns the principal that a call claims; "nobody" if the params are garbled."""
        arguments = params.get("arguments") if isinstance(params, dict) else None
        return str(arguments.get("who", "nobody")) if isinstance(arguments, dict) else "nobody"

    def of_task(self, server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        task = self.upstream_task.get(params["taskId"])
        if task is None or self.chance(0.03):
            return {"error": {"code": -32602, "message": "unknown"}}
        if method == "tasks/cancel":
            if task["status"] not in OVER and self.chance(0.8):
                task["status"] = "cancelled"
            return {"result": {"resultType": "complete"} if "modern" in server else self.shown(task, server)}
        if method == "tasks/get":
            return {"result": self.shown(task, server)}
        if method == "tasks/update":
            for key in params["inputResponses"]:
                task["asked"].pop(key, None)
            return {"result": {"resultType": "complete"}}
        if task["status"] not in OVER:
            task["status"] = self.rng.choice(OVER)
        return {"result": self.result(task)} if self.chance(0.7) else {"error": self.error()}

    # --- The storage ------------------------------------------------------------------------------------------------

    def step_storage(self) -> None:
        orders = self.storage.orders
        while orders and self.chance(self.patience):
            order = orders[0] if self.chance(0.7) else self.rng.choice(orders)
            answer = self.storage.carry_out(
                order, is_late=order.ticket not in Inside(self.world.engine).storage_orders._thens
            )
            self.world.store(order.ticket, answer)
            if self.chance(0.05):
                self.world.store(order.ticket, answer)
            self.check_effects()

    # --- Checks -----------------------------------------------------------------------------------------------------

    def check_effects(self) -> None:
        """Checks the new effects, and records what clients can use later."""
        world = self.world
        effects, self.seen = world.log[self.seen :], len(world.log)
        for effect in effects:
            self.storage.note(effect)
            if not isinstance(effect, Send) or effect.channel not in self.client_of or not effect.message:
                continue
            server, principal = self.client_of[effect.channel]
            if b"for:" in effect.message and b"for:nobody:" not in effect.message:
                assert effect.message.count(b"for:") == effect.message.count(f"for:{principal}:".encode()), effect
            if effect.session is not None and effect.session in Inside(world.engine).sessions.sessions:
                self.sessions.append((server, principal, effect.session))
            frame = json.loads(effect.message)
            if "method" in frame and "id" in frame:
                self.asked.append((effect.channel, frame["id"], frame["method"]))
            key = effect.channel, json.dumps(frame.get("id"))
            if "method" not in frame and key in self.foreign:
                assert "error" in frame, frame
            self.check_task(server, principal, frame)

    def check_task(self, server: str, principal: str, frame: dict[str, Any]) -> None:
        result = frame.get("result", frame.get("params")) or {}
        if not isinstance(result, dict):
            return
        tasks = [result["task"]] if isinstance(result.get("task"), dict) else result.get("tasks", [result])
        for one in tasks:
            if not isinstance(one, dict) or not {"taskId", "status", "createdAt"} <= set(one):
                continue
            if one["taskId"] in self.upstream_task:
                continue  # a task in an answer that is passed on as it is
            id, status = one["taskId"], one["status"]
            is_modern = "ttlMs" in one
            assert f"task/{id}" in self.storage.lasting, f"sent before its record was stored: {frame}"
            owner = server, principal, "modern" if is_modern else "legacy"
            assert self.known.setdefault(id, owner) == owner, f"shown to others: {frame}"
            if "method" in frame:
                continue  # the notification may have waited for a stream
            if id in self.ends and f"task/{id}" not in self.storage.lost:
                assert status == self.ends[id], f"the outcome has changed: {frame}"
            elif status in OVER:
                self.ends[id] = status

    def assert_answered_once(self) -> None:
        answers: Counter[tuple[ChannelId, str]] = Counter()
        for channel, sends in self.world.sent.items():
            if channel in self.client_of:
                frames = [json.loads(send.message) for send in sends if send.event == "message"]
                answers.update((channel, json.dumps(one["id"])) for one in frames if "method" not in one)
        twice = {key: count for key, count in answers.items() if count > 1 and key[1] != "null"}
        assert not twice, twice

    # --- Steps ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng, world = self.rng, self.world
        kind = rng.random()
        if kind < 0.4:
            self.step_client()
        elif kind < 0.88:
            self.step_server()
        elif kind < 0.98:
            world.wait(rng.choice((0.0, 0.1, 0.3, 0.3, 1.0, 1.0, 3.0, 8.0, 45.0)))
        elif self.chance(0.3) and (found := world.engine.tasks()):
            try:
                world._note(world.engine.receive_task_cancel(rng.choice(found).id, world.now))
            except LocalProtocolError:
                assert any(task.status in OVER for task in found)
        elif self.chance(0.2):
            server = rng.choice(self.servers)
            world._note(world.engine.receive_command(server, rng.choice(list(Command)), world.now))
            world._note(world.engine.receive_command(server, Command.START, world.now))
        self.check_effects()
        self.step_storage()

    def end(self) -> None:
        """Stops the proxy, and lets its storage carry out some orders."""
        world = self.world
        if self.chance(0.5):
            world._note(world.engine.receive_drain(world.now))
        if self.chance(0.7):
            world.stop()
            self.check_effects()
            self.patience = 1.0
            self.step_storage()
        self.take_unread()
        self.assert_answered_once()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            if self.chance(1 / 150):
                self.end()
                self.storage.restart()
                self.start(self.world.now + self.rng.choice((0.0, 1.0, 200.0)))
        self.patience = 1.0
        self.world.stop()
        for channel in self.client_of:
            if channel not in self.world.over:
                self.world.end(channel, Cause(End.GONE))
        for server in SERVERS:
            self.world._note(self.world.engine.receive_command(server.id, Command.STOP, self.world.now))
        for _ in range(40):
            self.check_effects()
            self.step_storage()
            self.take_unread()
            self.world.wait(10.0)
            for dial in self.open_dials():
                self.world.end(dial.channel, Cause(End.UNREACHABLE))
        self.assert_answered_once()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_tasks_leave_nothing(seed: int) -> None:
    peers = RandomPeers(seed)
    peers.run(STEPS)
    assert_empty(peers.world)
    engine: Any = peers.world.engine
    assert not len(Inside(engine).local_tasks), vars(Inside(engine).task_table)
    assert not Inside(engine).client_listens._by_task
    twice = {name: count for name, count in peers.cancels.items() if count > 1 and name not in peers.reused}
    assert not twice, twice
    assert not peers.storage.records, peers.storage.records
    assert not peers.storage.blobs
