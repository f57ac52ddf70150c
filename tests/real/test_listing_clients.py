"""Tests that released clients connect with what `isthmus connect-info` prints, put into their files as it is."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import rig
from preloaded import ISTHMUS

pytestmark = pytest.mark.real

PROGRAMS: Final = rig.REAL / "clis/node_modules/.bin"
TOKEN: Final = "a-token-of-a-listing-client"
TIMEOUT_S: Final = 60.0


class Listing(NamedTuple):
    """A client that says on the command line which of its servers it reaches.

    Attributes:
        name: its name for `connect-info`.
        file: its file, in the folder that is its home and its project.
        consent: a file, and its text, by which a person trusts that folder and its servers.
        connected: what it prints of a server that it reaches.
        asks: what it asks that server for, as the log has it.
    """

    name: str
    program: str
    file: str
    consent: tuple[str, str]
    connected: str
    asks: str


CLAUDE: Final = Listing(
    "claude-code",
    "claude",
    ".mcp.json",
    (".claude/settings.json", '{"enableAllProjectMcpServers": true}'),
    "(HTTP) - ✔ Connected",
    "everything: server/discover ok",
)
GEMINI: Final = Listing(
    "gemini",
    "gemini",
    ".gemini/settings.json",
    (".gemini/trustedFolders.json", '{"HERE": "TRUST_FOLDER"}'),
    "(http) - Connected",
    "everything: session started",
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Proxy]:
    folder = tmp_path_factory.mktemp("gateway")
    token = {"name": "ann", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}
    server = {"id": "everything", "upstream": {"command": [str(rig.require(rig.EVERYTHING)), "stdio"]}}
    config = folder / "isthmus.json"
    config.write_text(json.dumps({"core": {"port": 0}, "auth": {"tokens": [token]}, "servers": [server]}))
    with rig.serve(config, folder=folder) as running:
        yield running


@pytest.mark.parametrize("token", [TOKEN, ""], ids=["token", "placeholder"])
@pytest.mark.parametrize("client", [CLAUDE, GEMINI], ids=lambda client: client.program)
def test_it_connects_with_the_printed_entry_once_the_token_is_in_it(
    client: Listing, token: str, gateway: rig.Proxy, tmp_path: Path
) -> None:
    said = subprocess.run(
        [ISTHMUS, "connect-info", client.name, "--url", gateway.base_url],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    for name, text in ((client.file, said.stdout.replace("TOKEN", token or "TOKEN")), client.consent):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace('"HERE"', json.dumps(str(tmp_path))))
    heard = len(gateway.stderr)
    listed = subprocess.run(
        [rig.require(PROGRAMS / client.program), "mcp", "list"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    line = next(line for line in (listed.stdout + listed.stderr).splitlines() if f"{gateway.base_url}/mcp " in line)
    assert (client.connected in line) is bool(token), listed.stdout
    expected = client.asks if token else "denied: POST /mcp"
    rig.until(lambda: expected in gateway.stderr[heard:], expected)
