"""Identity providers of others, and gateways that take their tokens."""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from filing import gateway
from rig import PEERS, REAL, Proxy, launched, require

NODE_MODULES: Final = REAL / "idp/node_modules"
TIMEOUT_S: Final = 60.0
LEEWAY_S: Final = 30
"""Seconds for which isthmus takes a token that has expired, since clocks differ. A provider whose clock is late by them
has tokens that end when they say."""
SERVICE: Final = {"client_id": "service", "client_secret": "secret-of-the-service-secret-of-the-service"}
GATEWAY: Final = {"client_id": "gateway", "client_secret": "secret-of-the-gateway-secret-of-the-gateway"}


class Provider(NamedTuple):
    """A running npm oidc-provider, see peers/identity_provider.mjs."""

    issuer: str

    def counts(self) -> dict[str, int]:
        """Returns the uses of each grant, those that were refused, and the logins of a person."""
        with urllib.request.urlopen(f"{self.issuer}/counts", timeout=TIMEOUT_S) as response:
            found: dict[str, int] = json.load(response)
        return found

    def rotate(self) -> None:
        """Signs with a new key from now on. The one before stays published."""
        urllib.request.urlopen(f"{self.issuer}/rotate", b"", timeout=TIMEOUT_S).close()

    def token(self, resource: str) -> str:
        """Returns an access token of the client `service`, for a resource."""
        form = {**SERVICE, "grant_type": "client_credentials", "scope": "mcp:read", "resource": resource}
        body = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.issuer}/token", body, timeout=TIMEOUT_S) as response:
            found: str = json.load(response)["access_token"]
        return found


@contextlib.contextmanager
def provider(folder: Path, **env: object) -> Iterator[Provider]:
    """Runs npm oidc-provider. Its settings are environment variables, see peers/identity_provider.mjs."""
    command = ["node", PEERS / "identity_provider.mjs", require(NODE_MODULES)]
    texts = {name: str(value) for name, value in env.items()}
    with launched(command, folder=folder, env=texts, code=None) as process:
        yield Provider(process.wait_line(r"listening on (\S+)")[1])


def file_server(name: str = "files") -> dict[str, Any]:
    """Returns the settings of a server, peers/echo_files.py, that makes files and takes them."""
    return {
        "id": name,
        "upstream": {"command": [sys.executable, str(PEERS / "echo_files.py")]},
        "adapters": [
            {"type": "artifact_producer", "tools": ["by_argument"], "output_path_argument": "output"},
            {"type": "upload_consumer", "tools": ["take_one"], "file_path_argument": "file"},
        ],
    }


@contextlib.contextmanager
def guarded_files(
    folder: Path, issuers: Sequence[Mapping[str, Any]], *, scope: Sequence[str] = ("mcp:read",)
) -> Iterator[Proxy]:
    """Runs a gateway with this server, for callers with tokens of the issuers that have these scopes."""
    server = {**file_server(), "access": {"scope": list(scope)}}
    # An event stream of a client ends at such a time when its token has expired, and the TypeScript SDK then renews the
    # token twice at once if it also has a call refused. Refresh tokens are taken once.
    core = {"keep_alive_seconds": 3600}
    with gateway(folder, {"core": core, "auth": {"issuers": list(issuers)}, "servers": [server]}) as proxy:
        yield proxy
