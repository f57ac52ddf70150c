"""Opens and drops many sessions in every way, and measures what is left: `leaks.py [--sessions N] [--warm-up N]`.

Sessions come over Streamable HTTP, WebSocket and HTTP+SSE, to a process of their own, to a shared one and to an HTTP
server. Half of them end in order. Of the others some never finish their handshake, some leave calls in flight, some
leave their event stream open. When the last one is gone there must be no session, no server process and no descriptor
more than before the first, and no more memory than after the warm-up, but for noise.

Memory is measured at rest, several times on the way: the resident bytes as the system counts them, and, after a
collection, the resident bytes without what the C library keeps for reuse, and Python's blocks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import anyio
from anyio import to_thread
from callers import Caller, Cut, EventPipeCaller, HttpCaller, Refused, SocketCaller
from ledger import Ledger
from world import HERE, PATIENCE_S, PYTHON, Upstream, fd_count, rig, rss_bytes, session_count, until

IDLE_TTL_S: Final = 1.5
CALL_TIMEOUT_S: Final = 1.5
AT_ONCE: Final = 16
ROUTES: Final = ("http->own", "http->own", "http->http", "ws->own", "sse->http", "http->shared", "ws->shared")
HOWS: Final = ("goodbye", "goodbye", "goodbye", "drop", "handshake", "in flight")
NOISE_BYTES: Final = 3 * 1024 * 1024
"""The tolerance for resident memory, which varies with caches: a third of a KiB a session at 10,000."""
NOISE_BLOCKS: Final = 3000
"""The tolerance for blocks. A session has thousands of them; the caches of an event loop at rest vary by about a
thousand in all."""


class Row(NamedTuple):
    """One measurement at rest.

    Attributes:
        rss: resident bytes, as the system counts them.
        held: resident bytes after a collection, without free memory.
    """

    sessions: int
    seconds: float
    rss: int
    held: int
    blocks: int
    fds: int
    children: int


class Figures:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.hows: Counter[str] = Counter()
        self.wrongs: list[str] = []

    def __str__(self) -> str:
        lines = ["sessions  seconds  RSS MiB  held MiB  blocks  fds  children"]
        lines += [
            f"{row.sessions:8}  {row.seconds:7.1f}  {row.rss / 2**20:7.1f}  {row.held / 2**20:8.1f}  {row.blocks:6}"
            f"  {row.fds:3}  {row.children:8}"
            for row in self.rows
        ]
        lines += [", ".join(f"{count} {how}" for how, count in sorted(self.hows.items()))]
        return "\n".join([*lines, *(f"WRONG: {wrong}" for wrong in self.wrongs)])


class Leaks:
    def __init__(self, folder: Path, *, sessions: int, warm_up: int, rests: int, seed: int) -> None:
        self.figures = Figures()
        self._folder = folder
        self._sessions = sessions
        self._warm_up = warm_up
        self._rests = rests
        self._chance = random.Random(seed)
        self._upstream = Upstream(folder / "journal", folder)
        self._counted = folder / "counted"
        self._ledger = Ledger("leak")
        self._proxy: rig.Proxy

    async def run(self) -> Figures:
        await to_thread.run_sync(self._upstream.start)
        try:
            command = [sys.executable, HERE / "counted.py", "serve", self._write_config()]
            self._proxy = rig.Proxy(command, folder=self._folder, env={"LC_FIGURES": str(self._counted)})
            try:
                await to_thread.run_sync(self._proxy.wait_ready)
                await self._live()
                await to_thread.run_sync(self._proxy.stop)
            finally:
                self._proxy.clean_up()
        finally:
            self._upstream.clean_up()
        for line in self._proxy.stderr.splitlines():
            if "Traceback" in line or "internal error" in line:
                self.figures.wrongs.append(line)
        self.figures.wrongs += self._ledger.wrongs
        return self.figures

    def _write_config(self) -> Path:
        tiny = {"command": [*PYTHON, str(HERE / "tiny_server.py")]}
        usual = {"call_timeout_seconds": CALL_TIMEOUT_S}
        config = {
            "core": {"port": 0, "log_level": "warning"},
            "storage": {"root": str(self._folder / "data")},
            "sessions": {"idle_ttl_seconds": IDLE_TTL_S},
            "servers": [
                {"id": "own", "upstream": tiny, "warm": 0, **usual},
                {"id": "shared", "upstream": tiny, "share": "concurrent", "idle_stop_seconds": 1.0, **usual},
                {"id": "http", "upstream": {"url": f"http://127.0.0.1:{self._upstream.port}/mcp"}, **usual},
            ],
        }
        path = self._folder / "isthmus.yaml"
        path.write_text(json.dumps(config))
        return path

    async def _live(self) -> None:
        began_at = time.monotonic()
        await self._rest()
        await self._measure(0, began_at)
        done = 0
        rest = self._sessions - self._warm_up
        for target in [self._warm_up + rest * n // self._rests for n in range(self._rests + 1)]:
            limiter = anyio.CapacityLimiter(AT_ONCE)
            async with anyio.create_task_group() as tasks:
                while done < target:
                    done += 1
                    await limiter.acquire_on_behalf_of(token := object())
                    tasks.start_soon(self._one, random.Random(self._chance.random()), limiter, token)
            await self._rest()
            await self._measure(done, began_at)
        # this also ends the connections that are kept for later
        await to_thread.run_sync(self._upstream.stop, signal.SIGTERM)
        with anyio.move_on_after(PATIENCE_S):
            await until(lambda: fd_count(self._proxy.pid) <= self.figures.rows[0].fds)
        await self._measure(done, began_at)
        self._judge()

    async def _rest(self) -> None:
        """Returns when every session has ended and its resources are released."""
        proxy = self._proxy
        with anyio.move_on_after(PATIENCE_S) as scope:
            await until(lambda: session_count(proxy.port) == 0 and not self._children())
        if scope.cancelled_caught:
            left = f"{session_count(proxy.port)} sessions, children {[rig.command_of(pid) for pid in self._children()]}"
            self.figures.wrongs.append(f"left after {PATIENCE_S:g} s: {left}")

    def _children(self) -> list[int]:
        return self._proxy.server_pids

    async def _measure(self, done: int, began_at: float) -> None:
        pid, seconds = self._proxy.pid, time.monotonic() - began_at
        rss, fds, children = rss_bytes(pid), fd_count(pid), len(self._children())
        count = len(self.figures.rows)
        os.kill(pid, signal.SIGUSR1)
        with anyio.fail_after(PATIENCE_S):
            await until(lambda: self._counted.exists() and self._counted.read_text().count("\n") > count)
        held = json.loads(self._counted.read_text().splitlines()[-1])
        row = Row(done, seconds, rss, held["bytes"], held["blocks"], fds, children)
        self.figures.rows.append(row)
        print(row, file=sys.stderr, flush=True)

    def _judge(self) -> None:
        first, warm, last = self.figures.rows[0], self.figures.rows[1], self.figures.rows[-1]
        if last.fds > first.fds:
            self.figures.wrongs.append(f"descriptors: {first.fds} before, {last.fds} after")
        if last.held - warm.held > NOISE_BYTES:
            self.figures.wrongs.append(f"memory: {warm.held} bytes after the warm-up, {last.held} at the end")
        if last.blocks - warm.blocks > NOISE_BLOCKS:
            self.figures.wrongs.append(f"blocks: {warm.blocks} after the warm-up, {last.blocks} at the end")

    # --- Sessions ---------------------------------------------------------------------------------------------------

    async def _one(self, chance: random.Random, limiter: anyio.CapacityLimiter, token: object) -> None:
        route, how = chance.choice(ROUTES), chance.choice(HOWS)
        self.figures.hows[f"{route} {how}"] += 1
        try:
            with anyio.fail_after(PATIENCE_S):
                await self._session(chance, route, how)
        except TimeoutError:
            self.figures.wrongs.append(f"a session got stuck: {route} {how}")
        finally:
            limiter.release_on_behalf_of(token)

    async def _session(self, chance: random.Random, route: str, how: str) -> None:
        kind, _, server = route.partition("->")
        async with anyio.create_task_group() as tasks:
            caller: Caller
            revision = chance.choice(("2025-06-18", "2025-11-25"))
            if kind == "http":
                listens = chance.random() < 0.3
                path = f"/mcp/{server}"
                caller = HttpCaller(self._ledger, tasks, port=self._port, path=path, revision=revision, listens=listens)
            elif kind == "ws":
                caller = SocketCaller(self._ledger, tasks, port=self._port, path=f"/ws/{server}", revision=revision)
            else:
                path = f"/sse/{server}"
                caller = EventPipeCaller(self._ledger, tasks, port=self._port, path=path, revision=revision)
            if how == "handshake":
                with anyio.move_on_after(chance.uniform(0.001, 0.06)), contextlib.suppress(Cut, Refused):
                    await caller.start()
                caller.drop()
                tasks.cancel_scope.cancel()
                return
            try:
                await caller.start()
            except (Cut, Refused) as error:
                self.figures.wrongs.append(f"{route} {how}: {error!r}")
                caller.drop()
                return
            if how == "in flight":
                tool = "hang" if server != "http" else "slow"
                call = self._ledger.new_call(tool, route, steps=50, pause=0.1)
                with anyio.move_on_after(0.02):
                    await caller.call(call)
                if chance.random() < 0.3:
                    await caller.leave()
            else:
                call = self._ledger.new_call("count", route)
                await caller.call(call)
                if call.outcome is None or call.outcome.value != "success":
                    self.figures.wrongs.append(f"{route} {how}: {call}")
                if how == "goodbye":
                    await caller.leave()
            del self._ledger.calls[call.key]
            caller.drop()
            tasks.cancel_scope.cancel()

    def _port(self) -> int:
        return self._proxy.port


def run(sessions: int, warm_up: int, folder: Path, *, rests: int = 9, seed: int = 1) -> Figures:
    """Measures at rest before the first session, after the warm-up, and `rests` times more."""
    leaks = Leaks(folder, sessions=sessions, warm_up=warm_up, rests=rests, seed=seed)
    return anyio.run(leaks.run)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--warm-up", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="isthmus-leaks-"))
    try:
        figures = run(options.sessions, options.warm_up, folder, seed=options.seed)
    finally:
        shutil.rmtree(folder)
    print(figures)
    return 1 if figures.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
