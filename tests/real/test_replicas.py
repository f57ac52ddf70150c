"""Tests of official clients at three replicas, behind a balancer that routes by the owner and behind one that does not.

The visits and the expected results are those of `test_sdk_pairs` and `test_task_pairs`: what a client sees does not
depend on the number of replicas.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import test_balancers
import test_sdk_pairs
import test_task_pairs
from record_servers import NotInstalled, PostgresServer, free_port, running
from rig import Proxy, free_ports, launched, listens, run_client, serve, start_server, until
from s3_server import MOTO, S3Server, running_server
from shared_gateways import KEY, SharedStores
from test_sdk_pairs import VISITORS, WORKSHOPS
from test_task_pairs import CLIENTS, SERVERS

pytestmark = pytest.mark.real

TAGS: Final = ("a", "b", "c")
BALANCERS: Final = ("haproxy.cfg", "nginx-replicas.conf without rules")
WORKERS: Final = 2

VISITS: Final = (
    ("python-1", "typescript-1"),
    ("python-2", "typescript-2-dual"),
    ("typescript-1", "python-1"),
    ("typescript-2", "typescript-2-dual"),
)
"""Clients of both eras. Those without sessions visit a server over HTTP. A process belongs to one replica, and changes
in it are not told at the others."""
TASKS: Final = (
    ("python-1", "fastmcp"),
    ("typescript-1", "python-1"),
    ("raw", "fastmcp"),
)
OVER_HTTP: Final = {"typescript-2-dual", "fastmcp"}
"""Servers that are reached over HTTP, so that their tasks outlive a replica."""


class Site:
    """Three replicas, and what stands before them."""

    def __init__(self, folder: Path, records: PostgresServer, blobs: S3Server, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.touch()
        stores = SharedStores(records, blobs)
        servers = [*self._servers(WORKSHOPS, VISITS, stack), *self._servers(SERVERS, TASKS, stack, self.marks)]
        self.replicas: dict[str, Proxy] = {}
        for tag in TAGS:
            internal = f"127.0.0.1:{free_port()}"
            settings = {
                "core": {"port": 0, "link_keys": [KEY]},
                "sessions": {"request_state_keys": [KEY]},
                "storage": {"root": f"data-{tag}", "records": stores.records, "blobs": stores.blobs},
                "cluster": {"replica": tag, "listen": internal, "secret": KEY},
                "servers": servers,
            }
            config = folder / f"{tag}.json"
            config.write_text(json.dumps(settings))
            env = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")}
            self.replicas[tag] = stack.enter_context(serve(config, folder=folder, env=env))

    def _servers(
        self, peers: Any, pairs: Any, stack: contextlib.ExitStack, *arguments: Path
    ) -> Iterator[dict[str, Any]]:
        kind = "work" if peers is WORKSHOPS else "task"
        for name in sorted({server for _, server in pairs}):
            more = [str(part) for part in getattr(peers[name], "arguments", ())]
            command = [str(part) for part in (*peers[name].command, *arguments)]
            if name in OVER_HTTP:
                process, url = start_server([*command, "http", *more], "mcp", folder=self.folder)
                stack.callback(process.clean_up)
                upstream: dict[str, Any] = {"url": url}
            else:
                upstream = {"command": [*command, "stdio", *more], "env": {"PATH": os.environ["PATH"]}}
            yield {"id": f"{kind}-{name}", "upstream": upstream, "tasks": {"offer": "auto"}, "warm": 0}

    @contextlib.contextmanager
    def behind(self, balancer: str) -> Iterator[str]:
        """Runs a balancer. Yields its URL."""
        (port,) = free_ports(1)
        addresses = {tag: proxy.base_url.partition("//")[2] for tag, proxy in self.replicas.items()}
        folder = self.folder / balancer.replace(" ", "-")
        folder.mkdir()
        words = test_balancers.words_of(balancer, folder, port, addresses)
        with launched(words, folder=folder, code=None):
            until(lambda: listens(port), f"{balancer} listens")
            yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if not MOTO.exists():
        pytest.skip("needs moto")
    with contextlib.ExitStack() as stack:
        try:
            records = stack.enter_context(running("postgres"))
        except NotInstalled as missing:
            pytest.skip(str(missing))
        assert isinstance(records, PostgresServer)
        blobs = stack.enter_context(running_server(tmp_path_factory.mktemp("moto")))
        yield Site(tmp_path_factory.mktemp("site"), records, blobs, stack)


@pytest.mark.parametrize("balancer", BALANCERS)
def test_clients_see_three_replicas_as_one(site: Site, balancer: str) -> None:
    with site.behind(balancer) as url, ThreadPoolExecutor(WORKERS) as pool:
        visits = {
            pair: pool.submit(
                run_client,
                VISITORS[pair[0]].script,
                f"{url}/mcp/work-{pair[1]}",
                [VISITORS[pair[0]].session],
                folder=site.folder,
            )
            for pair in VISITS
        }
        labels = {pair: f"{balancer}--{'--'.join(pair)}" for pair in TASKS}
        tasks = {
            pair: pool.submit(
                run_client,
                f"tasks-{pair[0]}",
                f"{url}/mcp/task-{pair[1]}",
                [{"marks": str(site.marks), "label": labels[pair]}],
                folder=site.folder,
            )
            for pair in TASKS
        }
        for (client, server), visit in visits.items():
            seen = dict(visit.result()[0])
            assert seen.pop("revision") == VISITORS[client].revisions[0]
            assert seen.pop("missing")["code"] in test_sdk_pairs.misses(VISITORS[client], WORKSHOPS[server], True)
            assert seen == test_sdk_pairs.SEEN, (client, server)
        for (client, server), task in tasks.items():
            seen = dict(task.result()[0])
            assert seen.pop("breaks")[0] == "failed"
            assert seen == test_task_pairs.expected("http", client, server), (client, server)
            assert CLIENTS[client].era
            until(
                lambda pair=(client, server): f"cancelled cancel {labels[pair]}" in site.marks.read_text(),
                "the cancelled task is cancelled at its server",
            )
