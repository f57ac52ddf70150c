"""No secret is told: values are planted wherever a secret is read, and searched for wherever something is said.

Each is searched for as it is, in base64 at each of the three places of a byte, and as a URL encodes it. `MAY_BE_IN` in
`secret_search.py` has what may hold one, with the reason.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import jwt
import pytest
from command import PATIENCE_S, Run
from cryptography.hazmat.primitives.asymmetric import ec
from login_provider import BROWSER, Answer, Provider, Seen, provider
from secret_search import KEY, PEM, SECRETS, STATIC, Said, misplaced, parts_of_jwt

PEERS: Final = Path(__file__).parents[1] / "app/peers"


@pytest.mark.parametrize("before", ["", "a", "id:", "Bearer "])
def test_each_form_of_a_secret_is_found(before: str) -> None:
    for name, secret in SECRETS.items():
        text = before + secret
        for written in (
            text.encode(),
            base64.b64encode(text.encode()),
            base64.urlsafe_b64encode(text.encode() + b":x"),
            urlencode({"x": text}).encode(),
            quote(text).encode() if "/" not in secret else quote(text, safe="").encode(),
            json.dumps({"a": [text]}).encode(),
        ):
            said = Said({"here": b"before " + written + b" after"})
            assert said.leaks({name: secret}), written
    assert not Said({"here": b"something else"}).leaks(SECRETS)


# --- The world --------------------------------------------------------------------------------------------------------


def issue(issuer: Provider, key: Any = KEY, **changes: object) -> str:
    """Returns a JWT of an issuer."""
    claims = {
        "iss": issuer.url,
        "sub": "dora",
        "aud": "api://here",
        "exp": int(time.time()) + 600,
        "jti": os.urandom(8).hex(),
    }
    return jwt.encode(claims | changes, key, "ES256", {"kid": "k", "typ": "at+jwt"})


class World:
    """The providers, and the configuration of a gateway that has a secret of each kind."""

    def __init__(self, folder: Path, idp: Provider, asked: Provider, service: Provider, person: Provider) -> None:
        self.folder = folder
        self.idp, self.asked, self.service, self.person = idp, asked, service, person
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
        idp.answers["/keys"] = 200, {}, json.dumps({"keys": [public | {"kid": "k", "alg": "ES256"}]}).encode()
        asked.answers["/introspect"] = self._introspect
        service.access_token = person.access_token = SECRETS["an access token"]
        for each in (service, person):
            each.metadata["grant_types_supported"] = ["client_credentials", "authorization_code", "refresh_token"]
            each.token_answer = (
                200,
                {
                    "access_token": SECRETS["an access token"],
                    "refresh_token": SECRETS["a refresh token"],
                    "token_type": "Bearer",
                    "expires_in": 3600,
                },
            )
            each.returned["code"] = SECRETS["an authorization code"]
        (folder / "key.pem").write_text(PEM)

    def _introspect(self, seen: Seen) -> Answer:
        is_active = seen.form["token"] == SECRETS["an opaque token"]
        said = {"active": is_active, "sub": "erin", "aud": "api://here", "error": f"got {seen.form['token']}"}
        return 200, {}, json.dumps(said).encode()

    @property
    def env(self) -> dict[str, str]:
        return {
            "XDG_STATE_HOME": str(self.folder / "state"),
            "ISTHMUS_STORE_KEY": SECRETS["a key of the store"],
            "BROWSER": BROWSER,
            "SERVICE_SECRET": SECRETS["a client secret"],
            "RS_SECRET": SECRETS["an introspection secret"],
            "MANAGEMENT": SECRETS["a management token"],
            "API_KEY": SECRETS["a header for a server"],
            "VARIABLE": SECRETS["a variable for a process"],
            "PROXY_PASSWORD": SECRETS["a password of a proxy"],
        }

    def settings(self) -> dict[str, Any]:
        toolbox = {"command": ["python3", str(PEERS / "toolbox.py")], "env": {"VARIABLE": "${VARIABLE}"}}
        service = {"type": "client_credentials", "client_id": "service"}
        return {
            "core": {"port": 0, "log_level": "debug", "management": {"token": "${MANAGEMENT}"}},
            "storage": {"root": str(self.folder / "data")},
            "auth": {
                "tokens": [{"name": "ci", "sha256": hashlib.sha256(STATIC.encode()).hexdigest()}],
                "issuers": [
                    {"url": self.idp.url, "audience": ["api://here"]},
                    {
                        "url": self.asked.url,
                        "audience": ["api://here"],
                        "introspect": {"client_id": "isthmus", "client_secret": "${RS_SECRET}"},
                    },
                ],
            },
            "servers": [
                {"id": "tools", "upstream": toolbox},
                {"id": "files", "upstream": {"command": ["python3", str(PEERS / "filer.py")]}, "files": "auto"},
                {
                    "id": "service",
                    "upstream": {"url": self.service.mcp, "auth": service | {"client_secret": "${SERVICE_SECRET}"}},
                },
                {
                    "id": "keyed",
                    "upstream": {
                        "url": self.service.mcp,
                        "auth": service | {"private_key": str(self.folder / "key.pem"), "algorithm": "ES256"},
                    },
                },
                {"id": "person", "upstream": {"url": self.person.mcp, "auth": {"type": "oauth"}}},
                {
                    "id": "passing",
                    "upstream": {
                        "url": self.person.mcp,
                        "headers": {"X-Api-Key": "${API_KEY}"},
                        "pass_headers": {"X-Upstream-Authorization": "Authorization"},
                    },
                },
                {
                    "id": "behind",
                    "upstream": {"url": "http://mcp.example/mcp", "proxy": "http://me:${PROXY_PASSWORD}@127.0.0.1:9"},
                },
            ],
        }

    def write(self, settings: object, name: str = "isthmus.json") -> str:
        path = self.folder / name
        path.write_text(json.dumps(settings), encoding="utf-8")
        return str(path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with provider() as idp, provider() as asked, provider() as service, provider() as person:
        yield World(tmp_path, idp, asked, service, person)


# --- serve ------------------------------------------------------------------------------------------------------------


class Client:
    """Requests to a gateway, whose responses are added to what was said."""

    def __init__(self, base_url: str, said: Said) -> None:
        self.base_url = base_url
        self.said = said

    def ask(
        self, method: str, target: str, token: str = "", body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, str]:
        """Sends a request, whose response must tell no secret. Returns status, body and session."""
        status, head, content = self.exchange(method, target, token, body, headers)
        self.said.add("responses", head + content)
        session = re.search(rb"(?i)mcp-session-id: (\S+)", head)
        return status, content, session[1].decode() if session else ""

    def exchange(
        self, method: str, target: str, token: str, body: bytes, headers: Mapping[str, str] | None
    ) -> tuple[int, bytes, bytes]:
        host = self.base_url.removeprefix("http://")
        fields = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        fields |= {"authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPConnection(host, timeout=3 * PATIENCE_S)
        try:
            connection.request(method, target, body or None, fields | dict(headers or {}))
            response = connection.getresponse()
            head = "".join(f"{name}: {value}\r\n" for name, value in response.getheaders()).encode()
            return response.status, head, response.read()
        finally:
            connection.close()

    def open(self, server: str, token: str, **headers: str) -> str:
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        return self.ask("POST", f"/mcp/{server}", token, message("initialize", **params), headers)[2]

    def call(self, server: str, session: str, token: str, tool: str, **arguments: object) -> bytes:
        body = message("tools/call", name=tool, arguments=arguments)
        return self.ask("POST", f"/mcp/{server}", token, body, {"mcp-session-id": session})[1]


def message(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def test_a_gateway_tells_no_secret(world: World) -> None:
    """Good and bad traffic at a gateway that logs all that it can, with a trace."""
    said, secrets = Said({}), dict(SECRETS)
    config = world.write(world.settings())
    code = said.add_run("login", "--log-level", "debug", "login", config, "person", env=world.env)
    assert code == 0, said.texts
    trace = str(world.folder / "trace.jsonl")
    with Run("serve", "--trace", trace, config, env=world.env) as process:
        base_url = re.sub(r"/mcp/.*", "", process.wait_url())
        client = Client(base_url, said)
        good(client, world, secrets)
        said.add_command_lines(process.pid)
        bad(client, world, secrets)
        said.add_command_lines(process.pid)
        for target in ("/metrics", "/servers", "/tasks", "/files", "/healthz"):
            assert client.ask("GET", target, SECRETS["a management token"])[0] == 200
        assert client.ask("GET", "/readyz", SECRETS["a management token"])[0] == 503, "a server is down"
        ask = {**world.env, "ISTHMUS_TOKEN": SECRETS["a management token"]}
        for command in ("ps", "tasks", "files"):
            code = said.add_run(command, "--log-level", "debug", command, "--url", base_url, "--json", env=ask)
            assert code == 0, said.texts[f"stderr of {command}"]
        wrong = {**world.env, "ISTHMUS_TOKEN": SECRETS["a wrong static token"]}
        assert said.add_run("ps", "--log-level", "debug", "ps", "--url", base_url, env=wrong) == 1
        process.signal(signal.SIGTERM)
        process.wait_exit()
        said.add("stdout of serve", process.stdout)
        said.add("stderr of serve", process.stderr)
    assert "the toolbox fell down the stairs" in process.stderr, "the log has what is not secret"
    said.add("trace", Path(trace).read_bytes())
    said.add_folder("storage", world.folder / "data")
    said.add_folder("store of logins", world.folder / "state")
    assert len(said.texts["trace"]) > 1000
    leaks = said.leaks(secrets)
    assert not leaks, "\n".join(leaks)


def good(client: Client, world: World, secrets: dict[str, str]) -> None:
    """Calls a tool of each server, with a token of each kind."""
    token = issue(world.idp)
    secrets |= parts_of_jwt(token)
    passed = {"x-upstream-authorization": f"Bearer {SECRETS['a passed token']}"}
    world.person.access_token = SECRETS["an access token"]
    for each in (STATIC, token, SECRETS["an opaque token"]):
        session = client.open("tools", each)
        assert b"toolbox says x" in client.call("tools", session, each, "echo", text="x")
    for id in ("service", "keyed", "person"):
        session = client.open(id, token)
        assert session, id
        assert b"called" in client.call(id, session, token, "echo")
    client.open("passing", token, **passed)
    session = client.open("files", token)
    body = message("tools/call", name="files_get_upload_url", arguments={})
    _, _, content = client.exchange("POST", "/mcp/files", token, body, {"mcp-session-id": session})
    link = json.loads(content.decode().partition("data: ")[2] or content)["result"]["structuredContent"]["upload_url"]
    secrets["an upload link"] = link.removeprefix(client.base_url)
    target = link.removeprefix(client.base_url)
    upload = {"content-type": "text/plain", "x-filename": "a.txt"}
    assert client.ask("PUT", target, headers=upload, body=b"hello")[0] == 200
    assert client.ask("PUT", target, headers=upload, body=b"hello")[0] != 200, "it is used up"
    assert client.ask("PUT", target[:-2] + "xx", headers=upload, body=b"hello")[0] >= 400
    assert client.ask("PUT", target, SECRETS["a wrong static token"], b"hello", upload)[0] == 401


def bad(client: Client, world: World, secrets: dict[str, str]) -> None:
    """Sends wrong tokens in each place, and has servers and providers fail while they tell what they got."""
    token = issue(world.idp)
    forged = issue(world.idp, ec.generate_private_key(ec.SECP256R1()))
    foreign = issue(world.idp, aud="api://elsewhere")
    other = issue(world.idp, iss="https://other.example")
    for number, each in enumerate((token, forged, foreign, other)):
        secrets |= {f"{name} {number}": part for name, part in parts_of_jwt(each).items()}
    wrong = (SECRETS["a wrong static token"], SECRETS["a revoked token"], forged, foreign, other)
    for each in (*wrong, STATIC[:-1], "x" * 20_000):
        for method, target in (("POST", "/mcp/tools"), ("GET", "/servers"), ("GET", "/metrics"), ("GET", "/nothing")):
            assert client.ask(method, target, each, b"{}" if method == "POST" else b"")[0] in (401, 431), (target, each)
    in_query = f"/mcp/tools?{urlencode({'access_token': SECRETS['a token in a query']})}"
    assert client.ask("POST", in_query, "", b"{}")[0] == 401
    assert client.ask("GET", in_query.replace("/mcp/tools", "/nothing"), token)[0] == 404
    basic = base64.b64encode(f"ci:{STATIC}".encode()).decode()
    assert client.ask("POST", "/mcp/tools", body=b"{}", headers={"authorization": f"Basic {basic}"})[0] == 401

    # A call whose server dies, with a secret in its environment.
    session = client.open("tools", token)
    client.call("tools", session, token, "die")
    # A server that does not take the token any more, and tells it; then one that fails, and one that says nonsense.
    for answer in (
        None,
        fail,
        (200, {}, b"no message"),
    ):
        for each in (world.service, world.person):
            each.access_token = "another one"
            if answer is not None:
                each.answers["/mcp"] = answer
            # The provider refuses to renew, and tells what it got.
            each.answers["/token"] = tell_all
        for id in ("service", "keyed", "person", "passing"):
            passed = {"x-upstream-authorization": f"Bearer {SECRETS['a passed token']}"}
            session = client.open(id, token, **passed)
            if session:
                client.call(id, session, token, "echo")
    client.open("behind", token)
    # Issuers that do not answer any more.
    world.asked.answers["/introspect"] = tell_all
    assert client.ask("POST", "/mcp/tools", "another+opaque/token", b"{}")[0] == 503
    world.idp.answers["/keys"] = tell_all


def fail(seen: Seen) -> Answer:
    return 500, {}, f"got {seen.authorization}".encode()


def tell_all(seen: Seen) -> Answer:
    """The answer of a peer that shows what it got in each place in which it can."""
    got = json.dumps({**seen.form, "authorization": seen.authorization})
    body = json.dumps({"error": got, "error_description": got, "error_uri": got}).encode()
    return 400, {"x-got": got, "www-authenticate": f"Bearer error_description={json.dumps(got)}"}, body


# --- Other commands ---------------------------------------------------------------------------------------------------


def test_a_login_tells_no_secret(world: World) -> None:
    """Good logins, those that a provider refuses while it tells what it got, and the list and the end of logins."""
    said, secrets = Said({}), dict(SECRETS)
    config = world.write(world.settings())
    for answer in (None, tell_all, (200, {}, b"no JSON: " + SECRETS["a refresh token"].encode())):
        if answer is not None:
            world.person.answers["/token"] = answer
        code = said.add_run("login", "--log-level", "debug", "login", config, "person", env=world.env)
        assert code == (0 if answer is None else 1)
    world.person.returned |= {"error": SECRETS["a token in a query"], "error_description": "x"}
    assert said.add_run("login", "--log-level", "debug", "login", config, "person", env=world.env) == 1
    for command in (["auth", "ls"], ["auth", "ls", "--json"], ["logout", config, "person"]):
        assert said.add_run("logins", "--log-level", "debug", *command, env=world.env) == 0
    asked, granted = world.person.saw("/authorize"), world.person.saw("/token")
    secrets |= {"state": asked[0].form["state"], "a code verifier": granted[0].form["code_verifier"]}
    said.add_folder("store of logins", world.folder / "state")
    assert b"http" in said.texts["stdout of login"]
    leaks = said.leaks(secrets)
    assert not leaks, "\n".join(leaks)


def test_a_wrapped_server_tells_no_secret(world: World) -> None:
    """The value of a header and the token of operators come from the environment, and a login from the store."""
    said = Said({})
    assert said.add_run("login", "login", world.person.mcp, env=world.env) == 0
    options = ["--log-level", "debug", "wrap", "--listen", "127.0.0.1:0", "--trace", str(world.folder / "trace.jsonl")]
    env = {**world.env, "ISTHMUS_TOKEN": SECRETS["a management token"]}
    for more in ([], ["--header", "X-Api-Key: ${API_KEY}"]):
        with Run(*options, *more, world.person.mcp, env=env) as process:
            client = Client(process.wait_url().partition("/mcp")[0], said)
            session = client.open("", "")
            assert b"called" in client.call("", session, "", "echo")
            assert client.ask("GET", "/servers", SECRETS["a management token"])[0] == 200
            assert client.ask("GET", "/servers", SECRETS["a wrong static token"])[0] == 401
            world.person.answers["/mcp"] = tell_all
            client.call("", session, "", "echo")
            del world.person.answers["/mcp"]
            said.add_command_lines(process.pid)
            process.signal(signal.SIGTERM)
            process.wait_exit()
            said.add("stdout of wrap", process.stdout)
            said.add("stderr of wrap", process.stderr)
        said.add("trace", (world.folder / "trace.jsonl").read_bytes())
    leaks = said.leaks(SECRETS)
    assert not leaks, "\n".join(leaks)


def test_check_tells_no_secret(world: World) -> None:
    """A good configuration, and one for each secret that stands where something else is expected, by turns."""
    said, settings = Said({}), world.settings()
    config = world.write(settings)
    said.add_run("check", "--log-level", "debug", "check", config, env=world.env)
    assert b"service" in said.texts["stdout of check"]
    for number, wrong in enumerate(misplaced(settings)):
        path = world.write(wrong, f"wrong-{number}.json")
        command = ("check", "serve")[number % 2]  # both read it in the same way
        assert said.add_run(command, command, path, env=world.env) == 2, wrong
    (world.folder / "cut.json").write_text(json.dumps(resolved(settings, world.env))[:-5])
    assert said.add_run("check", "check", str(world.folder / "cut.json"), env=world.env) == 2
    leaks = said.leaks(SECRETS)
    assert not leaks, "\n".join(leaks)


def resolved(value: Any, env: Mapping[str, str]) -> Any:
    """Returns settings in which secrets stand as they are."""
    text = json.dumps(value)
    for name, secret in env.items():
        text = text.replace(f"${{{name}}}", secret)
    return json.loads(text)


def test_a_new_token_is_on_stdout_alone(tmp_path: Path) -> None:
    said = Said({})
    assert (
        said.add_run("token new", "--log-level", "debug", "token", "new", "ci", "--group", "robots", cwd=tmp_path) == 0
    )
    token = said.texts["stdout of token new"].decode().strip()
    assert re.fullmatch(r"ist_\w{49}", token)
    assert hashlib.sha256(token.encode()).hexdigest().encode() in said.texts["stderr of token new"]
    said.add_folder("files", tmp_path)
    assert not said.leaks({"the new token": token})


def test_conform_tells_no_secret(world: World) -> None:
    """The report and the recorded conversations, of a server that takes the token and of one that tells it."""
    said = Said({})
    env = {**world.env, "TOKEN": SECRETS["an access token"]}
    written = ["--json", "found.json", "--junit", "found.xml", "--record", "found.jsonl"]
    command = ["conform", "--examples", "2", "--timeout", "5", *written, "--header", "Authorization: Bearer ${TOKEN}"]
    for tells in (False, True):
        if tells:
            world.person.answers["/mcp"] = tell_all
        said.add_run("conform", "--log-level", "debug", *command, world.person.mcp, env=env, cwd=world.folder)
        for name in written[1::2]:
            with contextlib.suppress(FileNotFoundError):
                said.add(f"{name} of conform", (world.folder / name).read_bytes())
    assert said.texts["stdout of conform"]
    leaks = said.leaks(SECRETS)
    assert not leaks, "\n".join(leaks)
