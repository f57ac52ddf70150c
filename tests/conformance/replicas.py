"""Runs `isthmus conform` against server-everything through one replica, and through three behind nginx without rules.

It prints the rules whose states differ. Exit code 1 if a rule is broken through the three and not through the one.
Requests that are sent at the same time reach different replicas, so how often a rule was tried may differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
for name in ("", "app", "storage", "matrix/peers", "matrix", "real"):
    sys.path.insert(0, str(HERE.parent / name))

from preloaded import ISTHMUS  # noqa: E402
from record_servers import PostgresServer, running  # noqa: E402
from replica_processes import Replicas, replicas  # noqa: E402
from rig import REAL, free_ports, launched, listens, until  # noqa: E402
from s3_server import running_server  # noqa: E402
from shared_gateways import SharedStores  # noqa: E402
from test_balancers import words_of  # noqa: E402

EVERYTHING: Final = REAL / "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
PLAIN: Final = "nginx-replicas.conf without rules"


class OpenReplicas(Replicas):
    """Replicas with server-everything, which know no callers."""

    def settings(self, tag: str, root: Path) -> dict[str, Any]:
        settings = super().settings(tag, root)
        del settings["auth"]
        settings["servers"] = [{"id": "everything", "upstream": {"command": ["node", str(EVERYTHING), "stdio"]}}]
        return settings


def states(url: str, report: Path, seconds: int, seed: int) -> dict[str, str]:
    """Returns the state of each rule, by its name and revision."""
    command = [str(ISTHMUS), "conform", "--seconds", str(seconds), "--seed", str(seed)]
    subprocess.run([*command, "--json", str(report), url], check=False, timeout=600, stdout=subprocess.DEVNULL)
    found: list[dict[str, Any]] = json.loads(report.read_bytes())["rules"]
    return {each["rule"]: each["state"] for each in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-conform-")))
        records = stack.enter_context(running("postgres"))
        assert isinstance(records, PostgresServer)
        (folder / "moto").mkdir()
        blobs = stack.enter_context(running_server(folder / "moto"))
        made = stack.enter_context(replicas(folder, SharedStores(records, blobs), blobs, 3, OpenReplicas))
        (port,) = free_ports(1)
        addresses = {tag: f"127.0.0.1:{made.ports[tag]}" for tag in made.tags}
        words = words_of(PLAIN, folder, port, addresses)
        site = folder / PLAIN.partition(" ")[0]
        if addresses["c"] not in site.read_text():  # the file of examples/run has two
            second = f"server {addresses['b']};\n"
            site.write_text(site.read_text().replace(second, f"{second}    server {addresses['c']};\n", 1))
        assert addresses["c"] in site.read_text()
        stack.enter_context(launched(words, folder=folder, code=None))
        until(lambda: listens(port), "nginx listens")
        one, three = (
            states(f"http://127.0.0.1:{each}/mcp/everything", folder / f"{each}.json", options.seconds, options.seed)
            for each in (made.ports["a"], port)
        )
    for rule in sorted(one.keys() | three.keys()):
        if one.get(rule) != three.get(rule):
            print(f"{rule}: {one.get(rule)} through one replica, {three.get(rule)} through three")
    counts = {state: sum(each == state for each in three.values()) for state in sorted(set(three.values()))}
    print(f"{len(three)} rules through three replicas: {counts}")
    return int(any(state == "broken" and one.get(rule) != "broken" for rule, state in three.items()))


if __name__ == "__main__":
    sys.exit(main())
