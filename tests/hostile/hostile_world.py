"""One world: a gateway, honest clients that call all the time, and one kind of hostile peer after another.

A seed chooses the order of the kinds and all that they leave open. The processes are real, so the same seed does not
give the same history, but it makes the same attacks.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from attacker import EXITING, FILES, GOAL_TIMEOUT_S, OWN, PLAIN, REMOTE, ROUND_TIMEOUT_S
from honest import PAUSE_S, REFUSED_SHARE_MAX, Honest, Tally
from isthmus.core.base.limits import MIB, Limits
from ledger import Ledger
from meters import Meter
from small_limits import small
from storm import KINDS
from world import PYTHON, SERVER, Upstream, fd_count, rig, rss_bytes, session_count, until

HERE: Final = Path(__file__).resolve().parent
STORM_S: Final = 4.0
WARM_UP_S: Final = 1.0
IDLE_TTL_S: Final = 5.0
"""The life of a session that an attack leaves behind. An honest client whose calls wait longer loses its session."""
SETTLE_MAX_S: Final = 45.0
"""The time after a storm in which all must be given back: longer than idle connections to servers are kept (30 s)."""
RSS_MARGIN_BYTES: Final = 10 * MIB
"""Resident memory after a storm beyond that after the warm-up: caches vary by a few MiB."""
HEALTH_CPU_TARGET_S: Final = 0.25
"""CPU time of the gateway between a request for /healthz and its answer: the work that it does at one go."""
MAX_PROCESSES: Final = 64
"""Server processes at once. The machine of the test has little memory for those that an attack has started."""
SESSIONS_MAX: Final = 400
SESSIONS_PER_ADDRESS_MAX: Final = 200
"""Few enough to be opened within `IDLE_TTL_S` on a busy machine, more than one address and `ROOM_SESSIONS` take."""
ROOM_SESSIONS: Final = 150
"""Sessions that may be left when the next attack begins, so that it is not refused for those of others."""

BUDGETS: Final = (
    ("bodies_per_owner_max_bytes", 1, "messages that arrive: an attack with bodies comes from one address"),
    ("owner_memory_max_bytes", 1, "what the sessions of that address keep of messages"),
    ("request_size_max_bytes", 4, "the objects made of the messages that are being read"),
    ("reply_size_max_bytes", 4, "two servers' messages, as they came and as they were read"),
    ("outboxes_max_bytes", 1, "what clients have not read"),
    ("events_max_bytes", 1, "events kept for clients that were cut off"),
    ("held_answers_max_bytes", 1, "answers kept for suspended calls"),
)
"""Fields of `Limits`, how many of each may be full at once, and why. Their sum bounds the memory of a storm."""


def budget_bytes() -> int:
    limits = small(Limits())
    return sum(count * int(getattr(limits, name)) for name, count, _ in BUDGETS)


@dataclass
class Row:
    """The result of one storm.

    Attributes:
        counts: what the attack did and what it received.
        reached: the fields of `Limits` that it has reached.
        rss_after: resident bytes, and `fds_after` descriptors, once all has settled; None if that was not measured.
        storm_s: the time from the start of the attack's process to its end.
        settled_s: the time until all had settled.
        wrongs: descriptions of all that must not be.
    """

    kind: str
    tally: Tally
    meter: Meter
    counts: dict[str, int] = field(default_factory=dict)
    reached: list[str] = field(default_factory=list)
    rss_after: int | None = None
    fds_after: int | None = None
    storm_s: float = 0.0
    settled_s: float = 0.0
    wrongs: list[str] = field(default_factory=list)

    HEAD = (
        f"{'kind':22}{'answered':>9}{'refused':>8}{'lost':>5}{'p50 ms':>8}{'p99 ms':>8}{'healthz CPU ms':>16}"
        f"{'RSS max':>9}{'after':>7}{'fds max':>9}{'after':>7}{'storm s':>9}{'settled s':>11}  wrong"
    )

    def __str__(self) -> str:
        tally, meter = self.tally, self.meter
        cpu_ms = meter.health_cpu_s * 1000
        over = "*" if meter.health_cpu_s > HEALTH_CPU_TARGET_S else " "
        rss_after = "-" if self.rss_after is None else self.rss_after >> 20
        fds_after = "-" if self.fds_after is None else self.fds_after
        return (
            f"{self.kind:22}{tally.answered:9}{tally.refusals:8}{len(tally.lost):5}{tally.latency_ms(50):8.1f}"
            f"{tally.latency_ms(99):8.1f}{cpu_ms:15.0f}{over}{meter.rss_bytes >> 20:9}{rss_after:>7}{meter.fds:9}"
            f"{fds_after:>7}{self.storm_s:9.1f}{self.settled_s:11.1f}  {len(self.wrongs)}"
        )


class HostileWorld:
    """The world of a seed.

    Args:
        kinds: the names of its kinds, in any order.
        storm_s: how long each attacks.
        warm_up_s: how long each attacks before the measured storms; 0 for no warm-up.
        settles: waits after each storm until all is given back. Otherwise that is measured after the last one.
        rss_margin_bytes: the tolerance for resident memory.
        pause_s: the pause between two calls of an honest client.
        ends_at: no further storm begins after this moment of the monotonic clock; None for no such end.

    Attributes:
        rows: the results, a quiet period first.
        wrongs: what was wrong apart from a storm.
    """

    def __init__(
        self,
        seed: str,
        folder: Path,
        kinds: Sequence[str],
        *,
        storm_s: float = STORM_S,
        warm_up_s: float = WARM_UP_S,
        settles: bool = True,
        rss_margin_bytes: int = RSS_MARGIN_BYTES,
        pause_s: float = PAUSE_S,
        ends_at: float | None = None,
    ) -> None:
        self.seed = seed
        self.rows: list[Row] = []
        self.wrongs: list[str] = []
        self._folder = folder
        self._kinds = random.Random(seed).sample(list(kinds), len(kinds))
        self._storm_s = storm_s
        self._warm_up_s = warm_up_s
        self._settles = settles
        self._rss_margin = rss_margin_bytes
        self._pause_s = pause_s
        self._ends_at = ends_at
        self._ledger = Ledger(seed)
        self._journal = folder / "journal"
        self._journal.touch()
        self._proxy: rig.Proxy
        self._honest: Honest

    async def run(self) -> None:
        upstream = Upstream(self._journal, self._folder)
        with contextlib.ExitStack() as stack:
            stack.callback(upstream.clean_up)
            await to_thread.run_sync(upstream.start)
            rude, url = await to_thread.run_sync(
                lambda: rig.start_server([*PYTHON, HERE / "rude_server.py", "--port", "0"], "mcp", folder=self._folder)
            )
            stack.callback(rude.clean_up)
            config = self._write_config(f"http://127.0.0.1:{upstream.port}/mcp", url)
            with contextlib.ExitStack() as serving:
                command = [sys.executable, HERE / "small_limits.py", "serve", config]
                self._proxy = rig.Proxy(command, folder=self._folder)
                serving.callback(self._proxy.clean_up)
                await to_thread.run_sync(self._proxy.wait_ready)
                async with anyio.create_task_group() as tasks:
                    self._honest = Honest(self._ledger, lambda: self._proxy.port, self._pause_s)
                    self._honest.start(tasks)
                    await self._live()
                    self._honest.end()
                await to_thread.run_sync(self._proxy.stop)  # proves that nothing is left
        self._ledger.judge(self._journal.read_text().split())
        self.wrongs += self._ledger.wrongs
        lines = self._proxy.log.read_text(errors="replace").splitlines()
        self.wrongs += [
            f"in the log: {line[:300]}" for line in lines if "Traceback" in line or "internal error" in line
        ]

    def _write_config(self, url: str, rude_url: str) -> Path:
        counting = [*PYTHON, str(SERVER), str(self._journal)]
        rude = [*PYTHON, str(HERE / "rude_server.py")]
        usual = {"call_timeout_seconds": 10.0}
        alone = {"warm": 0}  # spare processes start later than they are needed, so their descriptors look like leaks
        servers = [
            {"id": "plain", "upstream": {"command": [*counting, "plain"]}, **alone},
            {"id": "shared", "upstream": {"command": [*counting, "shared"]}, "share": "concurrent"},
            {"id": "files", "upstream": {"command": [*counting, "files"]}, "files": "auto", **alone},
            {"id": "remote", "upstream": {"url": url}},
            {"id": PLAIN, "upstream": {"command": rude}, "share": "concurrent", **usual},
            {"id": OWN, "upstream": {"command": rude}, **usual, **alone},
            {"id": FILES, "upstream": {"command": rude}, "files": "auto", **usual, **alone},
            {"id": REMOTE, "upstream": {"url": rude_url}, **usual},
            {"id": EXITING, "upstream": {"command": [*rude, "--exit"]}, **usual, **alone},
        ]
        config = {
            "core": {"port": 0, "log_level": "warning", "drain_seconds": 2.0},
            "storage": {"root": str(self._folder / "data")},
            "sessions": {
                "idle_ttl_seconds": IDLE_TTL_S,
                "max_active": SESSIONS_MAX,
                "max_active_per_client": SESSIONS_PER_ADDRESS_MAX,
                "max_processes": MAX_PROCESSES,
            },
            "servers": servers,
        }
        path = self._folder / "isthmus.yaml"
        path.write_text(json.dumps(config))
        return path

    async def _live(self) -> None:
        quiet = await self._period("(quiet)", None, self._storm_s)
        self.rows.append(quiet)
        if self._warm_up_s:
            for kind in self._kinds:
                warm = await self._period(kind, kind, self._warm_up_s)
                self.wrongs += [f"during the warm-up: {kind}: {wrong}" for wrong in warm.wrongs]
        await self._settle(quiet, None)
        print(quiet, flush=True)
        base = quiet
        for kind in self._kinds:
            if self._ends_at is not None and time.monotonic() > self._ends_at:
                break
            row = await self._period(kind, kind, self._storm_s)
            self.rows.append(row)
            if self._settles:
                await self._settle(row, base)
            print(row, flush=True)
        if not self._settles:
            await self._settle(self.rows[-1], base)
        most = (base.rss_after or 0) + budget_bytes()
        for row in self.rows:
            if row.meter.rss_bytes > most:
                row.wrongs.append(f"{row.meter.rss_bytes >> 20} MiB were resident, expected at most {most >> 20}")

    async def _period(self, name: str, kind: str | None, seconds: float) -> Row:
        """Runs a storm of a kind, or none, and measures it."""
        with anyio.move_on_after(SETTLE_MAX_S):
            await until(lambda: session_count(self._proxy.port) <= ROOM_SESSIONS)
        row = Row(name, Tally(), Meter(self._proxy.pid, self._proxy.port))
        self._honest.tally = row.tally
        began_at = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(row.meter.sample)
            tasks.start_soon(row.meter.probe)
            if kind is None:
                await anyio.sleep(seconds)
            else:
                await to_thread.run_sync(self._attack, row, kind, seconds)
            row.storm_s = time.monotonic() - began_at
            # A call that began during the storm belongs to it.
            await self._honest.pause()
            tasks.cancel_scope.cancel()
        self._honest.go_on()
        row.wrongs += row.tally.lost + row.meter.health_failures
        asked = row.tally.answered + row.tally.refusals
        if not row.tally.answered or row.tally.refusals > asked * REFUSED_SHARE_MAX:
            row.wrongs.append(f"{row.tally.refusals} of {asked} honest calls were refused")
        return row

    def _attack(self, row: Row, kind: str, seconds: float) -> None:
        command = [*PYTHON, HERE / "storm.py", str(self._proxy.port), kind, self.seed, str(seconds)]
        process = rig.Process(command, folder=self._folder)
        try:
            code = process.wait_exit(timeout_s=seconds + GOAL_TIMEOUT_S + 2 * ROUND_TIMEOUT_S)
            assert code == 0, f"{process.describe()}: exit code {code}"
            found = json.loads(process.lines[-1])
            row.counts, row.reached = found["counts"], found["reached"]
            row.wrongs += found["wrongs"]
        except (AssertionError, ValueError, IndexError) as error:
            row.wrongs.append(f"the attack itself failed: {error}")
        finally:
            process.clean_up()

    async def _settle(self, row: Row, base: Row | None) -> None:
        """Waits until all is given back, and enters what is left. Without a base it enters the first measurement."""
        pid, port = self._proxy.pid, self._proxy.port
        await self._honest.pause()
        began_at = time.monotonic()
        with anyio.move_on_after(SETTLE_MAX_S) as scope:
            if base is None:
                await until(lambda: session_count(port) <= self._honest.session_count)
                await anyio.sleep(2 * IDLE_TTL_S if self._warm_up_s else 0.2)
            else:
                await until(lambda: not self._left(base))
        row.settled_s = time.monotonic() - began_at
        if base is not None and scope.cancelled_caught:
            row.wrongs += self._left(base)
        row.rss_after, row.fds_after = rss_bytes(pid), fd_count(pid)
        self._honest.go_on()

    def _left(self, base: Row) -> list[str]:
        assert base.rss_after is not None
        assert base.fds_after is not None
        pid, left = self._proxy.pid, list[str]()
        fds, rss = fd_count(pid), rss_bytes(pid)
        # Asked afterwards: the connection of the question is a descriptor too.
        sessions = session_count(self._proxy.port)
        if sessions > self._honest.session_count:
            left.append(f"{sessions} sessions are left, expected {self._honest.session_count}")
        if fds > base.fds_after:
            left.append(f"{fds} descriptors are left, expected at most {base.fds_after}")
        if rss > base.rss_after + self._rss_margin:
            most = base.rss_after + self._rss_margin
            left.append(f"{rss >> 20} MiB are resident, expected at most {most >> 20}")
        return left


def kinds_of(names: Sequence[str]) -> list[str]:
    """Returns the names of kinds, all if none is given.

    Raises:
        SystemExit: a kind does not exist.
    """
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        sys.exit(f"got the kinds {', '.join(unknown)}, expected some of {', '.join(KINDS)}: make hostile ONLY='…'")
    return list(names or KINDS)
