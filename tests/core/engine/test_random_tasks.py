"""Storms of tasks: clients and servers of both eras that make, follow and drop them in any order, over a storage that
is late, fails, and forgets nothing by itself.

Nothing is raised; each request is answered once; nobody is shown what is another's; a task is told once its record
lasts, and how it ended stays so; servers are told of each end once; and after its time nothing is left of any.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from driving import LINK_KEY, UNIX_AT_ZERO, Driver, Heard
from isthmus.core.base.effects import (
    Cause,
    Collect,
    Collected,
    CollectedFile,
    Connected,
    Delete,
    DeleteOpening,
    Dial,
    Discard,
    Effect,
    End,
    Fetch,
    Fetched,
    Forget,
    GetOpening,
    InlineSource,
    Join,
    PipeOpening,
    Post,
    PostOpening,
    Save,
    Saved,
    Send,
    Spawn,
    StorageAnswer,
    StorageFailed,
)
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, Offer, Plan, ServerPlan, Sharing, TaskRules
from isthmus.core.base.revisions import LATEST_MODERN, Era
from isthmus.core.oracle import Role
from isthmus.core.status import Command
from isthmus.core.tasks.record import StoredTask
from isthmus.core.wire.http.mcp_headers import headers_for
from overheard import Overheard
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
    parks_per_session_max=2,
    asks_per_session_max=6,
    exchanges_per_session_max=12,
    held_per_session_max=3,
    park_ttl_s=40.0,
    session_idle_ttl_s=90.0,
    reply_timeout_s=60.0,
    ask_timeout_s=30.0,
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
"""Small, so that a short storm reaches them."""

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
    """Carries out what it is ordered when the storm says so, in its order or not, or fails."""

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
        """What was under way is lost, and what no record names is swept."""
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


class Storm:
    """One proxy, its storage and everybody round it; the proxy may be started anew."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.servers = [SERVERS[seed % len(SERVERS)].id, self.rng.choice(SERVERS).id]
        self.storage = Storage(self.rng)
        self.plan = Plan(
            servers=SERVERS,
            link_key=LINK_KEY,
            workspaces_path="/w",
            affinity=self.rng.choice(list(Affinity)),
            state_keys=(b"0123456789abcdef",),
        )
        self.patience = self.rng.choice((0.3, 0.9, 1.0))  # how likely the storage is to answer soon
        self.oddity = self.rng.choice((0.0, 0.0, 0.1))
        self.remote: dict[str, dict[str, Any]] = {}  # tasks of servers: whose, and how they are
        self.reused: set[str] = set()
        self.cancels: Counter[str] = Counter()
        self.known: dict[str, tuple[str, str, str]] = {}  # tasks that clients were told of: server, principal, era
        self.ends: dict[str, str] = {}
        self.last_id = 0
        self.start(100.0)

    def start(self, now: float) -> None:
        stored = [msgspec.json.decode(value, type=StoredTask) for value in self.storage.records.values()]
        entropy = random.Random(self.rng.random()).randbytes
        engine = Overheard(self.plan, entropy=entropy, unix_at_zero=UNIX_AT_ZERO, limits=LIMITS, stored_tasks=stored)
        # After a restart a session has no name for its server until that is reached.
        engine.blame.left_out.add(("server-info", Role.SERVER))
        self.world = Driver(engine, now=now)
        for task in self.remote.values():
            task["channel"] = None  # its process is gone, and another channel has the number
        self.seen = 0
        self.who: dict[ChannelId, tuple[str, str]] = {}  # of each channel of clients: server and principal
        self.pipes: list[ChannelId] = []
        self.sessions: list[tuple[str, str, str]] = []
        self.asked: list[tuple[ChannelId, Any, str]] = []
        self.foreign: dict[tuple[ChannelId, str], str] = {}  # requests that must be refused
        self.connected: set[ChannelId] = set()
        self.heard: list[Heard] = []
        self.told: list[tuple[Heard, dict[str, Any]]] = []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

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
        """A method, its params, and the task that they name."""
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
                world.say(channel, self.message(id=id, result=ANSWERS.get(method, {})))
            return
        self.pipes = [channel for channel in self.pipes if channel not in world.over]
        server, principal = rng.choice(self.servers), rng.choice(("ann", "ann", "bob", ""))
        kind = rng.random()
        if kind < 0.1 or not self.pipes:
            channel = world.engine.new_channel()
            self.who[channel] = server, principal
            world.open(channel, PipeOpening(server, principal, "http://here"))
            self.pipes.append(channel)
            if self.chance(0.7):
                self.greet(channel)
        elif kind < 0.13:
            world.end(rng.choice(self.pipes), Cause(End.GONE))
        elif kind < 0.5:
            channel = rng.choice(self.pipes)
            server, principal = self.who[channel]
            is_modern = self.chance(0.4)
            world.say(
                channel,
                self.modern(server, principal, channel)[1] if is_modern else self.legacy(server, principal, channel),
            )
        elif kind < 0.75:
            self.post_modern(server, principal)
        else:
            self.post_legacy(server, principal)
        posts = [channel for channel in self.who if channel not in world.over and channel not in self.pipes]
        if posts and self.chance(0.05):
            world.end(rng.choice(posts), Cause(End.GONE))

    def greet(self, channel: ChannelId) -> None:
        able = self.rng.choice((ABLE, ABLE, {}))
        revision = self.rng.choice(("2025-11-25", "2025-11-25", "2025-11-25", "2025-06-18"))
        params = {"protocolVersion": revision, "capabilities": able, "clientInfo": {"name": "c", "version": "1"}}
        self.world.say(channel, self.message(id=self.id(), method="initialize", params=params))
        if channel in self.pipes:
            self.world.say(channel, self.message(method="notifications/initialized"))

    def post_modern(self, server: str, principal: str) -> None:
        method, body = self.modern(server, principal, None)
        frame = json.loads(body)
        try:
            mirrored = headers_for(method, json.dumps(frame.get("params")).encode())
        except Exception:  # what it may refuse is not looked at here
            mirrored = ()
        channel = self.world.engine.new_channel()
        self.who[channel] = server, principal
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
        self.world.say(channel, body)

    def post_legacy(self, server: str, principal: str) -> None:
        rng, world = self.rng, self.world
        channel = world.engine.new_channel()
        if not self.sessions or self.chance(0.15):
            self.who[channel] = server, principal
            world.open(channel, PostOpening(server=server, principal=principal, base_url="http://here"))
            self.greet(channel)
            return
        server, principal, session = rng.choice(self.sessions[-4:])
        kind = rng.random()
        if kind < 0.1:
            self.who[channel] = server, principal
            world.open(channel, GetOpening(server, principal, session))
        elif kind < 0.14:
            world.open(channel, DeleteOpening(server, principal, session))
        else:
            self.who[channel] = server, principal
            takes = self.chance(0.9)
            opening = PostOpening(
                server=server, principal=principal, session=session, accepts_events=takes, base_url="http://here"
            )
            world.open(channel, opening)
            world.say(channel, self.legacy(server, principal, channel))

    # --- Servers ----------------------------------------------------------------------------------------------------

    def open_dials(self) -> list[Dial]:
        return [dial for dial in self.world.dials if dial.channel not in self.world.over]

    def step_server(self) -> None:
        rng, world = self.rng, self.world
        self.take_heard()
        dials = self.open_dials()
        fresh = [dial for dial in dials if dial.channel not in self.connected and not isinstance(dial.target, Delete)]
        if fresh and self.chance(0.6):
            self.connect(rng.choice(fresh))
        elif self.remote and dials and self.chance(0.3):
            self.speak(rng.choice(dials))
        elif self.heard and self.chance(0.85):
            self.answer(self.heard.pop(rng.randrange(len(self.heard))))
        elif self.remote and dials and self.chance(0.8):
            self.speak(rng.choice(dials))
        elif dials and self.chance(0.3):
            world.end(rng.choice(dials).channel, rng.choice(ENDS))

    def take_heard(self) -> None:
        for heard in self.world.heard:
            frame = heard.frame
            if frame.get("method") == "tasks/cancel":
                self.cancels[frame["params"]["taskId"]] += 1
        self.heard += self.world.heard
        self.world.heard.clear()
        self.heard = [heard for heard in self.heard[-60:] if heard.channel not in self.world.over]

    def connect(self, dial: Dial) -> None:
        if dial.channel not in self.connected:
            self.connected.add(dial.channel)
            self.last_id += 1
            self.world.open(dial.channel, Connected(session=f"S{self.last_id}"))

    def dial_of(self, channel: ChannelId) -> Dial:
        return next(dial for dial in self.world.dials if dial.channel == channel)

    def speak(self, dial: Dial) -> None:
        """A server says something of its own accord."""
        if isinstance(dial.target, Delete):
            return
        self.connect(dial)
        rng, server = self.rng, dial.target.server
        own = [task for task in self.remote.values() if task["server"] == server and self.is_heard(dial, task)]
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
            said = {"progressToken": rng.randint(1, 9), "progress": 1, "_meta": meta}
            message = self.message(method="notifications/progress", params=said)
        else:
            method = "notifications/tasks" if "modern" in server else "notifications/tasks/status"
            message = self.message(method=method, params=self.shown(task, server))
        self.world.say(dial.channel, message)

    def is_heard(self, dial: Dial, task: dict[str, Any]) -> bool:
        """Whether what is said there is for whom the task is for, as far as its server knows."""
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
        said = {"taskId": task["id"], "status": status, "createdAt": "", "lastUpdatedAt": "", ttl: task["ttl"]}
        said[poll] = rng.choice((10, 500, 60_000))
        if self.chance(0.3):
            said["statusMessage"] = rng.choice(("a", "b"))
        if is_modern:
            said["resultType"] = "complete"
            if status == "input_required":
                if not task["asked"]:
                    for method in rng.sample(["elicitation/create", *QUESTIONS], rng.randint(0, 3)):
                        question = {"method": method, "params": self.question(method, task)}
                        task["asked"][f"{method}{rng.randint(0, 5)}"] = question
                said["inputRequests"] = task["asked"]
            elif status == "completed":
                said["result"] = self.result(task)
            elif status == "failed":
                said["error"] = self.error()
        return said

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

    def answer(self, heard: Heard) -> None:
        rng, world, frame = self.rng, self.world, heard.frame
        if heard.post is not None and ("id" not in frame or "method" not in frame or self.chance(0.06)):
            world.end(heard.channel, rng.choice(ENDS))
            return
        if "id" not in frame or "method" not in frame:
            return
        dial = self.dial_of(heard.channel)
        assert not isinstance(dial.target, Delete)
        self.connect(dial)
        server, method = dial.target.server, frame["method"]
        if method == "tools/call" and self.chance(0.2) and "modern" not in server:
            params = {**json.loads(FORM), "message": f"for:{self.who_calls(frame.get('params'))}:"}
            if heard.post is not None or server in ("pipe", "bare pipe"):
                world.say(
                    heard.channel, self.message(id=f"q{rng.random()}", method="elicitation/create", params=params)
                )
            self.heard.append(heard)
            return
        if method == "tasks/result" and self.chance(0.8):
            self.heard.append(heard)  # which waits
            return
        members = self.members(heard, server, method, frame.get("params") or {})
        if members is None or heard.channel in world.over:
            return
        world.say(heard.channel, self.message(id=frame["id"], **members))
        if heard.post is not None and heard.channel not in world.over and self.chance(0.9):
            world.end(heard.channel)

    def members(self, heard: Heard, server: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        rng, is_modern, has_tasks = self.rng, "modern" in server, "bare" not in server
        if method == "server/discover" and not is_modern:
            return {"error": {"code": -32601, "message": "no"}}
        if method == "initialize":
            told = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
            able = {"tools": {}, "logging": {}, **({"tasks": told} if has_tasks else {})}
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
        who = self.who_calls(params)
        if is_modern and not is_wanted and self.chance(0.3):
            data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            return {"error": {"code": -32021, "message": "no", "data": data}}
        if (is_wanted and self.chance(0.8)) or self.chance(self.oddity):
            self.last_id += 1
            name = rng.choice([*self.remote, "?"]) if self.chance(self.oddity) else f"{server} {self.last_id}"
            task = {"id": name, "server": server, "who": who, "status": "working", "ttl": rng.choice((None, 50_000, 0))}
            task["asked"] = {}
            task["channel"] = heard.channel
            task["session"] = None if heard.post is None else heard.post.session
            if name in self.remote:
                self.remote[name]["who"] = "nobody"
                self.reused.add(name)
            task = self.remote.setdefault(name, task)
            said = self.shown(task, server)
            return {"result": {**said, "resultType": "task"} if is_modern else {"task": said}}
        if is_modern and self.chance(0.2):
            asked = {"k": {"method": "elicitation/create", "params": {**json.loads(FORM), "message": f"for:{who}:"}}}
            return {"result": {"resultType": "input_required", "inputRequests": asked, "requestState": "theirs"}}
        return {"result": {**self.result({"who": who}), **({"resultType": "complete"} if is_modern else {})}}

    def who_calls(self, params: Any) -> str:
        """Whose principal a call says that it is of; "nobody" if it was garbled."""
        arguments = params.get("arguments") if isinstance(params, dict) else None
        return str(arguments.get("who", "nobody")) if isinstance(arguments, dict) else "nobody"

    def of_task(self, server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        task = self.remote.get(params["taskId"])
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
            answer = self.storage.carry_out(order, is_late=order.ticket not in self.world.engine._waiting._thens)
            self.world.store(order.ticket, answer)
            if self.chance(0.05):
                self.world.store(order.ticket, answer)
            self.look()

    # --- What came of it --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """What was said is as it may be; what clients can use is remembered."""
        world = self.world
        effects, self.seen = world.log[self.seen :], len(world.log)
        for effect in effects:
            self.storage.note(effect)
            if not isinstance(effect, Send) or effect.channel not in self.who or not effect.message:
                continue
            server, principal = self.who[effect.channel]
            if b"for:" in effect.message and b"for:nobody:" not in effect.message:
                assert effect.message.count(b"for:") == effect.message.count(f"for:{principal}:".encode()), effect
            if effect.session is not None and effect.session in world.engine._clients.sessions:
                self.sessions.append((server, principal, effect.session))
            frame = json.loads(effect.message)
            if "method" in frame and "id" in frame:
                self.asked.append((effect.channel, frame["id"], frame["method"]))
            key = effect.channel, json.dumps(frame.get("id"))
            if "method" not in frame and key in self.foreign:
                assert "error" in frame, frame
            self.look_at_task(server, principal, frame)

    def look_at_task(self, server: str, principal: str, frame: dict[str, Any]) -> None:
        result = frame.get("result", frame.get("params")) or {}
        if not isinstance(result, dict):
            return
        said = [result["task"]] if isinstance(result.get("task"), dict) else result.get("tasks", [result])
        for one in said:
            if not isinstance(one, dict) or not {"taskId", "status", "createdAt"} <= set(one):
                continue
            if one["taskId"] in self.remote:
                continue  # which nobody asked for, in an answer that is passed on as it is
            id, status = one["taskId"], one["status"]
            is_modern = "ttlMs" in one
            assert f"task/{id}" in self.storage.lasting, f"told before its record lasts: {frame}"
            owner = server, principal, "modern" if is_modern else "legacy"
            assert self.known.setdefault(id, owner) == owner, f"shown to others: {frame}"
            if "method" in frame:
                continue  # it may have waited for a stream while its client asked
            if id in self.ends and f"task/{id}" not in self.storage.lost:
                assert status == self.ends[id], f"over, and then not: {frame}"
            elif status in OVER:
                self.ends[id] = status

    def assert_answered_once(self) -> None:
        answers: Counter[tuple[ChannelId, str]] = Counter()
        for channel, sends in self.world.sent.items():
            if channel in self.who:
                frames = [json.loads(send.message) for send in sends if send.event == "message"]
                answers.update((channel, json.dumps(one["id"])) for one in frames if "method" not in one)
        twice = {key: count for key, count in answers.items() if count > 1 and key[1] != "null"}
        assert not twice, twice

    # --- The course of things ---------------------------------------------------------------------------------------

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
        self.look()
        self.step_storage()

    def end(self) -> None:
        """The proxy is stopped, and its storage carries out what it can."""
        world = self.world
        if self.chance(0.5):
            world._note(world.engine.receive_drain(world.now))
        if self.chance(0.7):
            world.stop()
            self.look()
            self.patience = 1.0
            self.step_storage()
        self.take_heard()
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
        for channel in self.who:
            if channel not in self.world.over:
                self.world.end(channel, Cause(End.GONE))
        for server in SERVERS:
            self.world._note(self.world.engine.receive_command(server.id, Command.STOP, self.world.now))
        for _ in range(40):
            self.look()
            self.step_storage()
            self.take_heard()
            self.world.wait(10.0)
            for dial in self.open_dials():
                self.world.end(dial.channel, Cause(End.UNREACHABLE))
        self.assert_answered_once()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_of_tasks_leaves_nothing(seed: int) -> None:
    storm = Storm(seed)
    storm.run(STEPS)
    assert_empty(storm.world)
    engine: Any = storm.world.engine
    assert not len(engine._tasking), vars(engine._table)
    assert not engine._legwork.listens._by_task
    twice = {name: count for name, count in storm.cancels.items() if count > 1 and name not in storm.reused}
    assert not twice, twice
    assert not storm.storage.records, storm.storage.records
    assert not storm.storage.blobs
