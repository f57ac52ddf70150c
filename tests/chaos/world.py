"""One world: a proxy before servers of every kind, clients of every kind, and faults that strike while they work.

A seed chooses the faults, the calls, and when which process is killed. The processes are real, so the same seed does
not give the same history, but it gives the same faults.

After the storm everything must be as before: new calls succeed, no session, process or descriptor is left, and the
answers agree with the executions.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import SocketAttribute, TaskGroup
from callers import Caller, Cut, EventPipeCaller, HttpCaller, PipeCaller, Refused, SocketCaller, StdioCaller
from ledger import Call, Ledger, Outcome
from principals import ANYBODY, OPEN, ROOT, Principal, Principals, Rules, drawn_rules
from relay import LOST, Relay

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "real"))

import rig  # noqa: E402  # it lies beside other tests

SERVER: Final = HERE / "counting_server.py"
PYTHON: Final = (sys.executable, "-S", "-E")
REVISIONS: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
CHILDREN: Final = ("own", "resting", "warm", "shared", "serial")
REMOTES: Final = ("http", "auto", "sse", "ws", "wshared")
TOOLS: Final = ("count", "slow", "poll", "big", "ask")

STORM_S: Final = 4.0
CALL_TIMEOUT_S: Final = 8.0
"""The time after which the proxy gives up a call whose server is silent."""
PATIENCE_S: Final = 60.0
"""A limit that only a broken run meets. The longest pause of a server that keeps failing is half of it."""
IDLE_TTL_S: Final = 3.0
LINGER_S: Final = 1.5
RSS_MAX_BYTES: Final = 400 * 1024 * 1024
LOG_LINES: Final = 60
"""The length of the log excerpt in a report. A traceback through loop, transport and engine has some forty lines."""


@dataclass
class Faults:
    """The faults of a world. Each world has some of them."""

    near: bool  # connections of clients are cut
    far: bool  # connections to servers are cut
    deaths: bool  # children are killed
    restarts: bool  # the HTTP server is killed, and started again
    stops: bool  # children are stopped, and go on
    stalls: bool  # clients do not read
    cancels: bool

    @classmethod
    def drawn(cls, chance: random.Random) -> Faults:
        return cls(*(chance.random() < 0.6 for _ in range(7)))

    def __str__(self) -> str:
        return "+".join(name for name, there in vars(self).items() if there) or "none"


@dataclass
class Report:
    """The result of a world."""

    seed: str
    faults: str
    wrongs: list[str]
    outcomes: dict[str, int] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        wrongs = "".join(f"\n  WRONG: {wrong}" for wrong in self.wrongs[:20])
        return f"seed {self.seed} ({self.faults}): {outcomes}; {figures}{wrongs}"


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fd_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def session_count(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/healthz", headers=ROOT.show().fields)
        count: int = json.loads(connection.getresponse().read())["sessions"]
        return count


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition by polling. The caller sets the limit."""
    while True:
        if await to_thread.run_sync(condition):
            return
        await anyio.sleep(0.05)


class Upstream:
    """The counting server over HTTP, which can be killed and comes back on its port."""

    def __init__(self, journal: Path, folder: Path) -> None:
        self.port = 0
        self._journal = journal
        self._folder = folder
        self._process: rig.Process
        self.tags: list[str] = []

    def start(self) -> None:
        command = [*PYTHON, SERVER, self._journal, "remote", "--port", str(self.port)]
        path = ":".join(entry for entry in sys.path if entry.endswith("site-packages"))
        # -E would hide PYTHONPATH, which it needs for h11 and wsproto.
        self._process = rig.Process(
            [part for part in command if part != "-E"], folder=self._folder, env={"PYTHONPATH": path}
        )
        match = self._process.wait_line(r"listening on 127\.0\.0\.1:([0-9]+)")
        self.port = int(match[1])

    def stop(self, number: signal.Signals) -> None:
        self._process.popen.send_signal(number)
        self._process.wait_exit()
        self._process.clean_up()

    def clean_up(self) -> None:
        self._process.clean_up()


class World:
    def __init__(self, seed: str, folder: Path, *, storm_s: float = STORM_S) -> None:
        self.seed = seed
        self.folder = folder
        self.chance = random.Random(seed)
        self.faults = Faults.drawn(self.chance)
        self.principals = Principals(self.chance)
        self.rules: dict[str, Rules] = {name: drawn_rules(self.chance, TOOLS) for name in (*CHILDREN, *REMOTES)}
        self.callers: dict[Caller, None] = {}
        self.ledger = Ledger(seed)
        self.journal = folder / "journal"
        self.journal.touch()
        self.upstream = Upstream(self.journal, folder)
        self.storm_s = storm_s
        self.figures: dict[str, object] = {}
        self.near: Relay
        self.far: Relay
        self.proxy: rig.Proxy
        self.calm = anyio.Event()
        self.resumes = 0
        self.thefts = 0
        self._rss_max = 0
        self._stopped: set[int] = set()
        self._stdio_tag = rig.new_tag()

    async def run(self) -> Report:
        chance = self.chance
        async with anyio.create_task_group() as tasks:
            await to_thread.run_sync(self.upstream.start)
            try:
                harshness = 0.9 if self.faults.far else 0.0
                self.far = Relay(self.upstream.port, f"{self.seed} far", harshness=harshness)
                self.far.stormy = False
                await self.far.start(tasks)
                with contextlib.ExitStack() as stack:
                    config = self._write_config()
                    self.proxy = await to_thread.run_sync(
                        stack.enter_context, rig.serve(config, folder=self.folder, asks=True)
                    )
                    self.near = Relay(self.proxy.port, f"{self.seed} near", harshness=0.5)
                    self.near.stormy = self.faults.near
                    await self.near.start(tasks)
                    await self._live(chance)
                    await to_thread.run_sync(stack.close)  # proves that nothing is left
            finally:
                self.upstream.clean_up()
                with anyio.CancelScope(shield=True):
                    left = await to_thread.run_sync(rig.tagged, self._stdio_tag)
                for pid in left:
                    self.ledger.wrong(f"a process of a stdio proxy is left: {rig.command_of(pid)}")
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            tasks.cancel_scope.cancel()
        self.ledger.judge(self.journal.read_text().split())
        self._read_log()
        return Report(self.seed, str(self.faults), self.ledger.wrongs, self.ledger.figures, self.figures)

    def _write_config(self) -> Path:
        command = [*PYTHON, str(SERVER), str(self.journal)]
        idle = {"idle_stop_seconds": LINGER_S}
        more: dict[str, dict[str, object]] = {
            "own": {"warm": 0},
            "resting": {"idle_stop_seconds": 0.3, "warm": 0},
            "warm": {"warm": 2},
            "shared": {"share": "concurrent", **idle},
            "serial": {"share": "serial", **idle},
            "wshared": {"share": "concurrent"},
        }
        at = f"127.0.0.1:{self.far.port}"
        upstreams: dict[str, dict[str, object]] = {
            **{name: {"command": [*command, name]} for name in CHILDREN},
            "http": {"url": f"http://{at}/mcp", "transport": "streamable_http"},
            "auto": {"url": f"http://{at}/mcp"},
            "sse": {"url": f"sse+http://{at}/sse"},
            "ws": {"url": f"ws://{at}/ws"},
            "wshared": {"url": f"ws://{at}/ws"},
        }
        servers = [
            {
                "id": name,
                "upstream": upstream,
                "call_timeout_seconds": CALL_TIMEOUT_S,
                "access": {"tools": {tool: rule.setting for tool, rule in self.rules[name].items()}},
                **more.get(name, {}),
            }
            for name, upstream in upstreams.items()
        ]
        polls = self.chance.random() < 0.5
        store = self.chance.choice(["memory", "sqlite"])
        config = {
            "core": {"port": 0, "log_level": "info"},
            "auth": self.principals.setting,
            "storage": {"root": str(self.folder / "data")},
            "sessions": {"idle_ttl_seconds": IDLE_TTL_S, "mirror_polling": polls, "event_store": store},
            "servers": servers,
        }
        path = self.folder / "isthmus.yaml"
        path.write_text(json.dumps(config))
        return path

    @property
    def is_over(self) -> bool:
        """True once the storm is over."""
        return self.calm.is_set()

    # --- The course of a world --------------------------------------------------------------------------------------

    async def _live(self, chance: random.Random) -> None:
        await self._wait(lambda: session_count(self.proxy.port) == 0, "the first looks at the servers to end")
        await self._wait(self._only_warm, "shared processes to rest")
        fds, rss = fd_count(self.proxy.pid), rss_bytes(self.proxy.pid)
        self.far.stormy = self.faults.far
        async with anyio.create_task_group() as helpers:
            async with anyio.create_task_group() as clients:
                for n in range(9):
                    clients.start_soon(self._client, random.Random(chance.random()), n)
                if self.faults.stalls:
                    for kind in ("http", "ws", "sse"):
                        clients.start_soon(self._stalled_client, kind, random.Random(chance.random()))
                clients.start_soon(self._stdio_client, random.Random(chance.random()))
                helpers.start_soon(self._watch)
                async with anyio.create_task_group() as weather:
                    with anyio.move_on_after(self.storm_s):
                        weather.start_soon(self._kill_children, random.Random(chance.random()))
                        weather.start_soon(self._restart_upstream, random.Random(chance.random()))
                        await anyio.sleep(self.storm_s)
                    self.calm.set()
                    self.near.calm()
                    self.far.calm()
            began_at = time.monotonic()
            await self._check_liveness()
            self.figures["alive again after"] = f"{time.monotonic() - began_at:.1f} s"
            helpers.cancel_scope.cancel()
        # this also ends the connections that are kept for later
        await to_thread.run_sync(self.upstream.stop, signal.SIGTERM)
        port = self.proxy.port
        await self._wait(lambda: session_count(port) == 0, "sessions to end", lambda: f"{session_count(port)} are left")
        await self._wait(self._only_warm, "children to end", lambda: str(self._children()))
        await self._wait(
            lambda: fd_count(self.proxy.pid) <= fds, "descriptors", lambda: f"{fd_count(self.proxy.pid)}, were {fds}"
        )
        self.figures |= {
            "cuts": f"{self.near.cuts}+{self.far.cuts}",
            "resumed": self.resumes,
            "thefts": self.thefts,
            "fds": f"{fds}->{fd_count(self.proxy.pid)}",
            "RSS MiB": f"{rss >> 20}->{rss_bytes(self.proxy.pid) >> 20} (max {self._rss_max >> 20})",
        }
        if self._rss_max > RSS_MAX_BYTES:
            self.ledger.wrong(f"{self._rss_max} bytes were resident")

    async def _wait(
        self, condition: Callable[[], bool], what: str, seen: Callable[[], str] = lambda: "it did not come about"
    ) -> None:
        """Waits for a condition by polling."""
        with anyio.move_on_after(PATIENCE_S) as scope:
            await until(condition)
        if scope.cancelled_caught:
            self.ledger.wrong(f"waited in vain for {what}: {await to_thread.run_sync(seen)}")

    def _children(self) -> list[str]:
        return [rig.command_of(pid).rpartition(" ")[2] for pid in self.proxy.server_pids]

    def _only_warm(self) -> bool:
        names = Counter(self._children())
        return names["warm"] <= 2 and set(names) <= {"warm"}

    async def _watch(self) -> None:
        while True:
            self._rss_max = max(self._rss_max, rss_bytes(self.proxy.pid))
            await anyio.sleep(0.2)

    def _read_log(self) -> None:
        """Checks that the log has no internal error: no fault of a peer is one."""
        lines = self.proxy.stderr.splitlines()
        for n, line in enumerate(lines):
            if "Traceback" in line or "internal error" in line or "could not be looked after" in line:
                self.ledger.wrong("in the log: " + "\n      ".join(lines[max(n - 2, 0) : n + LOG_LINES]))
        for log in self.folder.glob("stdio-*.log"):
            if "Traceback" in log.read_text():
                self.ledger.wrong(f"a stdio proxy failed: {log.read_text()[-2000:]}")

    # --- Clients ----------------------------------------------------------------------------------------------------

    def _caller(
        self, tasks: TaskGroup, chance: random.Random, kind: str, server: str, principal: Principal = ROOT
    ) -> Caller:
        def port() -> int:
            return self.near.port

        revision = chance.choice(REVISIONS)
        if kind == "http":
            return HttpCaller(
                self.ledger,
                tasks,
                port=port,
                path=f"/mcp/{server}",
                revision=revision,
                principal=principal,
                reuses_ids=chance.random() < 0.4,
                listens=chance.random() < 0.7,
            )
        way = SocketCaller if kind == "ws" else EventPipeCaller
        path = f"/{kind}/{server}"
        return way(self.ledger, tasks, port=port, path=path, revision=revision, principal=principal)

    async def _client(self, chance: random.Random, n: int) -> None:
        """Runs one session after another until the storm is over."""
        kind = ("http", "http", "http", "ws", "sse")[n % 5]
        while not self.is_over:
            server = chance.choice((*CHILDREN, *REMOTES))
            async with anyio.create_task_group() as tasks:
                principal = chance.choice(self.principals.all)
                caller = self._caller(tasks, chance, kind, server, principal)
                await self._use(caller, chance, f"{kind}->{server} of {principal.name}", self.rules[server])
                tasks.cancel_scope.cancel()

    async def _use(self, caller: Caller, chance: random.Random, route: str, rules: Rules) -> None:
        """Runs one session from its beginning to its end."""
        try:
            with anyio.fail_after(PATIENCE_S):
                await caller.start()
        except (Cut, Refused):
            caller.drop()
            await anyio.sleep(0.05)
            return
        except TimeoutError:
            self.ledger.wrong(f"a session on {route} did not begin")
            caller.drop()
            return
        self.callers[caller] = None
        ends_at = anyio.current_time() + chance.uniform(0.2, self.storm_s)
        async with anyio.create_task_group() as lanes:
            for _ in range(chance.randint(1, 3)):
                lanes.start_soon(self._make_calls, caller, chance, route, rules, ends_at)
            how = chance.random()
            if how < 0.2:  # leaves in the middle of it
                await anyio.sleep_until(ends_at - 0.2)
                if isinstance(caller, StdioCaller) and how < 0.1:
                    caller.kill()
                elif not isinstance(caller, HttpCaller):
                    caller.drop()
                else:
                    await caller.leave()
        del self.callers[caller]
        if isinstance(caller, HttpCaller):
            self.resumes += caller.resumes
        if how < 0.6:
            with anyio.move_on_after(PATIENCE_S):
                await caller.leave()
        else:
            caller.drop()

    async def _make_calls(
        self, caller: Caller, chance: random.Random, route: str, rules: Rules, ends_at: float
    ) -> None:
        while not self.is_over and not caller.is_over and anyio.current_time() < ends_at:
            if isinstance(caller, HttpCaller) and chance.random() < 0.2:
                await self._steal(caller, chance, route)
            call = self._new_call(chance, route)
            call.rule = rules.get(call.tool, OPEN)
            async with anyio.create_task_group() as tasks:
                if self.faults.cancels and chance.random() < 0.1:
                    tasks.start_soon(self._cancel_soon, caller, call, chance.uniform(0, 0.2))
                await self._end(caller, call)
                tasks.cancel_scope.cancel()
            if call.outcome is Outcome.NOT_EXECUTED:
                await anyio.sleep(0.05)  # as a client that retries later

    async def _steal(self, caller: HttpCaller, chance: random.Random, route: str) -> None:
        """Uses the session of another principal, if there is one."""
        others = [
            each
            for each in self.callers
            if isinstance(each, HttpCaller) and each.principal not in (caller.principal, ANYBODY)
        ]
        if others:
            call = self.ledger.new_call("count", f"theft by {route}")
            await caller.steal(chance.choice(others), call, chance.choice(("POST", "GET", "DELETE")))
            self.thefts += 1

    async def _cancel_soon(self, caller: Caller, call: Call, delay_s: float) -> None:
        await anyio.sleep(delay_s)
        await caller.cancel(call)

    async def _end(self, caller: Caller, call: Call) -> None:
        with anyio.move_on_after(PATIENCE_S) as scope:
            await caller.call(call)
        if scope.cancelled_caught and call.outcome is None:
            self.ledger.wrong("not ended in time", call)

    def _new_call(self, chance: random.Random, route: str) -> Call:
        tool = chance.choice(("count", "count", "slow", "slow", "poll", "big", "ask"))
        if tool in ("slow", "poll"):
            return self.ledger.new_call(tool, route, steps=chance.randint(1, 12), pause=chance.uniform(0, 0.06))
        if tool == "big":
            return self.ledger.new_call(tool, route, size=int(10 ** chance.uniform(1, 4.9)))
        return self.ledger.new_call(tool, route)

    async def _stdio_client(self, chance: random.Random) -> None:
        n = 0
        while not self.is_over:
            n += 1
            name = chance.choice(("child", "http", "sse", "ws"))
            target = {
                "child": [*PYTHON, SERVER, self.journal, "stdio"],
                "http": [f"http://127.0.0.1:{self.far.port}/mcp"],
                "sse": [f"sse+http://127.0.0.1:{self.far.port}/sse"],
                "ws": [f"ws://127.0.0.1:{self.far.port}/ws"],
            }[name]
            async with anyio.create_task_group() as tasks:
                caller = StdioCaller(
                    self.ledger,
                    tasks,
                    command=rig.stdio_wrap(*target),
                    env={rig.TAG_NAME: self._stdio_tag},
                    log=str(self.folder / f"stdio-{n}.log"),
                    revision=chance.choice(REVISIONS),
                )
                await self._use(caller, chance, f"stdio->{name}", {})
        await self._wait(lambda: not rig.tagged(self._stdio_tag), "what stdio proxies started to end")

    async def _stalled_client(self, kind: str, chance: random.Random) -> None:
        """Asks for much data, and reads none of it until the storm is over."""
        server = chance.choice(("own", "shared", "serial", "http", "ws", "wshared", "sse"))
        call = self.ledger.new_call("big", f"stalled {kind}->{server}", size=3_000_000)
        async with anyio.create_task_group() as tasks:
            caller = self._caller(tasks, chance, kind, server)
            try:
                with anyio.fail_after(PATIENCE_S):
                    await caller.start()
            except (Cut, Refused, TimeoutError):
                self.ledger.end(call, Outcome.NOT_EXECUTED)
            else:
                await self._stall(caller, call)
            caller.drop()
            tasks.cancel_scope.cancel()

    async def _stall(self, caller: Caller, call: Call) -> None:
        if isinstance(caller, HttpCaller):
            with contextlib.suppress(*LOST):
                stream = await anyio.connect_tcp("127.0.0.1", self.proxy.port)
                async with stream:
                    stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    await stream.send(caller.request_for(call))
                    await self.calm.wait()
            self.ledger.end(call, Outcome.CUT)
        else:
            assert isinstance(caller, PipeCaller)
            caller.stall()
            await caller.begin(call)
            for _ in range(4):
                await caller.begin(self.ledger.new_call("big", call.route, size=call.arguments["size"]))
            await self.calm.wait()
            caller.drop()
            await caller.wait_end()

    # --- Faults -----------------------------------------------------------------------------------------------------

    async def _kill_children(self, chance: random.Random) -> None:
        if not self.faults.deaths and not self.faults.stops:
            return
        while not self.is_over:
            await anyio.sleep(chance.uniform(0.05, 0.4))
            pids = await to_thread.run_sync(lambda: self.proxy.server_pids)
            if not pids:
                continue
            pid = chance.choice(pids)
            if self.faults.deaths and (not self.faults.stops or chance.random() < 0.6):
                with contextlib.suppress(OSError):
                    os.kill(pid, chance.choice((signal.SIGKILL, signal.SIGTERM)))
            elif self.faults.stops:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGSTOP)
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(chance.uniform(0.05, 0.8))
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)

    async def _restart_upstream(self, chance: random.Random) -> None:
        if not self.faults.restarts:
            return
        while not self.is_over:
            await anyio.sleep(chance.uniform(0.4, 1.5))
            with anyio.CancelScope(shield=True):
                number = chance.choice((signal.SIGKILL, signal.SIGTERM))
                await to_thread.run_sync(self.upstream.stop, number)
                await anyio.sleep(chance.uniform(0, 0.5))
                await to_thread.run_sync(self.upstream.start)

    # --- Afterwards -------------------------------------------------------------------------------------------------

    async def _check_liveness(self) -> None:
        async with anyio.create_task_group() as tasks:
            for n, server in enumerate((*CHILDREN, *REMOTES)):
                tasks.start_soon(self._check_one, ("http", "ws", "sse")[n % 3], server)

    async def _check_one(self, kind: str, server: str) -> None:
        """Checks that a new session succeeds in time."""
        chance = random.Random(self.seed)
        gives_up_at = anyio.current_time() + PATIENCE_S
        seen = ""
        while anyio.current_time() < gives_up_at:
            async with anyio.create_task_group() as tasks:
                caller = self._caller(tasks, chance, kind, server)
                try:
                    with anyio.fail_after(PATIENCE_S):
                        await caller.start()
                    for tool, steps in (("count", 0), ("slow", 3)):
                        call = self.ledger.new_call(tool, f"after {kind}->{server}", steps=steps, pause=0.0)
                        await self._end(caller, call)
                        seen = "; ".join(call.story)
                        if call.outcome is not Outcome.SUCCESS:
                            break
                    else:
                        await caller.leave()
                        return
                except (Cut, Refused, TimeoutError) as error:
                    seen = repr(error)
                caller.drop()
                tasks.cancel_scope.cancel()
            await anyio.sleep(0.2)
        self.ledger.wrong(f"{kind}->{server} does not work after the storm: {seen}")


async def run_world(seed: str, folder: Path, *, storm_s: float = STORM_S) -> Report:
    folder.mkdir(parents=True, exist_ok=True)
    return await World(seed, folder, storm_s=storm_s).run()
