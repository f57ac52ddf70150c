"""Callers of a gateway log in at a FastMCP server, each for itself with a browser, at npm oidc-provider."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import pytest
from rig import PEERS, PYTHON_2, REAL, Process, launched, require, serve

pytestmark = pytest.mark.real

PROVIDER: Final = REAL / "idp/node_modules"
TIMEOUT_S: Final = 60.0
CALLBACK: Final = "http://localhost/callback"
META: Final = "io.modelcontextprotocol/"
PERSONS: Final = {"type": "oauth", "login_for": "caller"}
EXCHANGED: Final = {
    "type": "exchange",
    "login_for": "caller",
    "client_id": "exchanging",
    "client_secret": "secret-of-exchanging-secret-of-exchanging",
}
OPENS: Final = {"elicitation": {"form": {}, "url": {}}}


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Person:
    """A person with a browser, which keeps cookies."""

    def __init__(self, name: str) -> None:
        self.name = name
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self.browser = urllib.request.build_opener(_Stay, cookies, urllib.request.ProxyHandler({}))
        self.browser.addheaders = [("X-Person", name)]

    def opens(self, url: str, stop: str = "\n") -> tuple[int, str, str]:
        """Follows redirects, up to an address that begins with `stop`. Returns status, page and address."""
        for _ in range(20):
            if url.startswith(stop):
                return 0, "", url
            try:
                with self.browser.open(url, timeout=TIMEOUT_S) as response:
                    return response.status, response.read().decode(), url
            except urllib.error.HTTPError as error:
                if error.code not in (302, 303):
                    return error.code, error.read().decode(), url
                url = urljoin(url, error.headers["location"])
        raise AssertionError("too many redirects")


class World(NamedTuple):
    issuer: str
    gateway: str
    proxy: Process

    def token(self, person: Person) -> str:
        """Returns a token of a person for the gateway."""
        verifier = secrets.token_urlsafe(32)
        digest = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": "by-hand",
            "redirect_uri": CALLBACK,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "scope": "mcp:read",
            "resource": self.gateway,
        }
        _, _, url = person.opens(f"{self.issuer}/auth?{urlencode(asked)}", CALLBACK)
        grant = {
            "grant_type": "authorization_code",
            "code": parse_qs(urlsplit(url).query)["code"][0],
            "redirect_uri": CALLBACK,
            "code_verifier": verifier,
            "resource": self.gateway,
            "client_id": "by-hand",
        }
        request = urllib.request.Request(f"{self.issuer}/token", urlencode(grant).encode())
        pair = b"by-hand:secret-by-hand-secret-by-hand-secret"
        request.add_header("authorization", f"Basic {base64.b64encode(pair).decode()}")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            found: str = json.load(response)["access_token"]
        return found

    def calls(self, token: str, able: dict[str, Any] = OPENS, **more: Any) -> dict[str, Any]:
        """Calls the tool `who` as a client without sessions. Returns the response."""
        declared = {
            "protocolVersion": "2026-07-28",
            "clientCapabilities": able,
            "clientInfo": {"name": "test", "version": "1"},
        }
        meta = {META + key: value for key, value in declared.items()}
        params = {"name": "who", "arguments": {}, "_meta": meta, **more}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {token}",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "who",
        }
        request = urllib.request.Request(f"{self.gateway}/mcp/guarded", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        found: dict[str, Any] = json.loads(text.partition("data: ")[2].partition("\n\n")[0] or text)
        return found

    def asks(self, token: str) -> tuple[str, str]:
        """Expects that a call asks for a page. Returns its address, and the state of the call."""
        asked = self.calls(token)["result"]
        return asked["inputRequests"]["r1"]["params"]["url"], asked["requestState"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def world(folder: Path, auth: Mapping[str, object] = PERSONS) -> Iterator[World]:
    port = free_port()
    gateway = f"http://127.0.0.1:{port}"
    provider = ["node", PEERS / "identity_provider.mjs", require(PROVIDER)]
    with launched(provider, folder=folder, env={"GATEWAY": gateway}, code=None) as process:
        issuer = process.wait_line(r"listening on (\S+)")[1]
        server = [require(PYTHON_2), PEERS / "guarded_tools.py", issuer]
        with launched(server, folder=folder, code=None) as guarded:
            url = guarded.wait_line(r"listening on (\S+)")[1]
            client = {"client_id": "pages", "client_secret": "secret-of-the-pages-secret-of-the-pages"}
            upstream = {"url": url, "auth": auth}
            settings = {
                "core": {"port": port, "public_base_url": gateway},
                "storage": {"root": str(folder / "data")},
                "auth": {"issuers": [{"url": issuer, "client": client}]},
                "servers": [{"id": "guarded", "upstream": upstream}],
            }
            config = folder / "isthmus.json"
            config.write_text(json.dumps(settings), encoding="utf-8")
            with serve(config, folder=folder, env={"XDG_STATE_HOME": str(folder / "state")}) as proxy:
                yield World(issuer, gateway, proxy)


def test_each_caller_logs_in_at_the_page_it_is_sent_to(tmp_path: Path) -> None:
    alice, bob = Person("alice"), Person("bob")
    with world(tmp_path) as found:
        tokens = {person.name: found.token(person) for person in (alice, bob)}
        for person in (alice, bob):
            url, state = found.asks(tokens[person.name])
            assert person.name not in url, "a link says nothing about its person"
            status, page, at = person.opens(url)
            assert (status, "You are logged in at guarded" in page) == (200, True), page
            assert at.startswith(found.gateway)
            agreed = {"requestState": state, "inputResponses": {"r1": {"action": "accept"}}}
            result = found.calls(tokens[person.name], **agreed)["result"]
            assert person.name in result["content"][0]["text"]
        again = {name: found.calls(token)["result"]["content"][0]["text"] for name, token in tokens.items()}
        assert "alice" in again["alice"]
        assert "bob" in again["bob"]


def test_another_persons_link_logs_nobody_in(tmp_path: Path) -> None:
    """2025-11-25 client/elicitation, "Phishing": who opens a link must be the one whom it was given to."""
    alice, bob = Person("alice"), Person("bob")
    with world(tmp_path) as found:
        tokens = {person.name: found.token(person) for person in (alice, bob)}
        url, _ = found.asks(tokens["alice"])
        status, page, _ = bob.opens(url)
        assert (status, "given to somebody else" in page) == (403, True)
        for token in tokens.values():
            found.asks(token)
        stranger = found.calls(tokens["alice"], able={})["error"]
        assert stranger["code"] == -31004
        assert stranger["data"]["login"]["url"].startswith(f"{found.gateway}/connect/guarded?ticket=")
        broken = url[:-4] + "AAAA"
        assert alice.opens(broken)[0] == 404
        assert alice.opens(f"{found.gateway}/connect?code=x&state=y")[0] == 400


def test_the_token_of_each_caller_is_exchanged(tmp_path: Path) -> None:
    """RFC 8693: nobody logs in at the server, and it sees each caller as who it is."""
    with world(tmp_path, EXCHANGED) as found:
        for name in ("alice", "bob", "alice"):
            result = found.calls(found.token(Person(name)))["result"]
            assert result["content"][0]["text"] == f"{name} mcp:read"
