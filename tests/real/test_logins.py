"""Logins at a FastMCP server that takes tokens of npm oidc-provider: each part is software of others but isthmus."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from filing import Client, texts
from providers import TIMEOUT_S, Provider, provider
from rig import (
    CLIENTS,
    ISTHMUS,
    PEERS,
    PYTHON_1,
    PYTHON_2,
    REAL,
    Process,
    launched,
    require,
    run_client,
    serve,
    stdio_wrap,
    wrap,
)

pytestmark = pytest.mark.real

BROWSER: Final = shlex.join([sys.executable, str(CLIENTS / "browser.py"), "%s"])


class World(NamedTuple):
    """A provider, a server that takes its tokens, and an empty store of logins.

    Attributes:
        before: what the provider had counted before this test.
    """

    provider: Provider
    url: str
    folder: Path
    more: Mapping[str, str] = {}
    before: Mapping[str, int] = {}

    def counts(self) -> Counter[str]:
        """Returns what the provider has counted in this test."""
        return Counter(self.provider.counts()) - Counter(self.before)

    @property
    def env(self) -> dict[str, str]:
        return {"XDG_STATE_HOME": str(self.folder / "state"), "BROWSER": BROWSER, **self.more}

    def run(self, *arguments: str | Path, code: int = 0) -> str:
        """Runs a command of isthmus to its end. Returns what it printed, on stdout and stderr."""
        self.folder.mkdir(exist_ok=True)
        with launched([ISTHMUS, *arguments], folder=self.folder, env=self.env, code=code) as process:
            process.wait_exit(timeout_s=TIMEOUT_S)
        return "".join(f"{line}\n" for line in process.lines) + process.stderr

    def config(self, auth: dict[str, Any]) -> Path:
        path = self.folder / "isthmus.json"
        server = {"id": "guarded", "upstream": {"url": self.url, "auth": auth}}
        settings = {"core": {"port": 0}, "storage": {"root": str(self.folder / "data")}, "servers": [server]}
        path.write_text(json.dumps(settings), encoding="utf-8")
        return path


@contextlib.contextmanager
def world(folder: Path, *, kind: str = "http", **env: object) -> Iterator[World]:
    with provider(folder, **env) as found:
        with guarded_server(folder, found, kind) as url:
            yield World(found, url, folder)


@contextlib.contextmanager
def guarded_server(folder: Path, found: Provider, kind: str) -> Iterator[str]:
    server = [require(PYTHON_2), PEERS / "guarded_tools.py", found.issuer]
    if kind != "http":
        server = [require(PYTHON_1), PEERS / "guarded_python1.py", found.issuer, kind]
    with launched(server, folder=folder, code=None) as guarded:
        yield guarded.wait_line(r"listening on (\S+)")[1]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A provider and a server that know nothing of a person until the person comes: one of each is enough."""
    with world(tmp_path_factory.mktemp("shared")) as found:
        yield found


@pytest.fixture
def each(shared: World, tmp_path: Path) -> World:
    return shared._replace(folder=tmp_path, before=shared.provider.counts())


@pytest.fixture(scope="module")
def shortly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A provider whose tokens soon expire, and a server. A login uses half of their lifetime."""
    with world(tmp_path_factory.mktemp("shortly"), AT_TTL=LIFETIME_S) as found:
        yield found


@pytest.fixture
def brief(shortly: World, tmp_path: Path) -> World:
    return shortly._replace(folder=tmp_path, before=shortly.provider.counts())


class Chromium(NamedTuple):
    """A browser with a person at it. It keeps its cookies from one page to the next."""

    process: Process

    def login(self, page: str) -> dict[str, Any]:
        """Opens a page of a provider, and fills in its forms. Returns what the person saw."""
        since = len(self.process.lines)
        self.process.write_line(page)
        found: dict[str, Any] = json.loads(self.process.wait_line("forms", since=since).string)
        return found


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    command = ["node", CLIENTS / "chromium_login.mjs", require(REAL / "node/node_modules")]
    with launched(command, folder=folder, has_stdin=True, code=None) as process:
        yield Chromium(process)
        process.close_stdin()
        assert process.wait_exit() == 0, process.describe()


STEPS: Final = [{"op": "call", "name": "who", "arguments": {}}]


def who(target: str | list[str], folder: Path) -> dict[str, Any]:
    """Calls the server's tool with the official client. Returns the result, or the error."""
    events = run_client("python-1", target, [{"capabilities": "none", "steps": STEPS}], folder=folder)
    (step,) = [event for event in events if event["kind"] == "step"]
    return dict(step)


def text_of(step: dict[str, Any]) -> str:
    text: str = step["result"]["content"][0]["text"]
    return text


def answer_of(url: str) -> str:
    """Calls the server's tool without an SDK. Returns its text."""
    (text,) = texts(Client(url).call("who"))
    return text


def test_a_person_logs_in_once_for_every_isthmus(each: World, tmp_path: Path) -> None:
    """`login`, then `wrap` in both transports and `serve`, with one login of the person; `logout` ends it."""
    said = each.run("login", each.url)
    assert f"logged in at {each.provider.issuer} for {each.url}: renewed by itself, scopes mcp:read" in said
    with wrap(each.url, folder=tmp_path, env=each.env) as proxy:
        assert text_of(who(proxy.url, tmp_path)) == "alice mcp:read"
    with serve(each.config({"type": "oauth"}), folder=tmp_path, env=each.env) as proxy:
        assert answer_of(proxy.url) == "alice mcp:read"
    assert f"{each.url}  at {each.provider.issuer}  scopes mcp:read  renewed by itself" in each.run("auth", "ls")
    assert each.counts()["logins"] == 1
    assert each.run("logout", each.url) == f"logged out at {each.provider.issuer} for {each.url}\n"
    assert each.run("auth", "ls") == "nobody is logged in\n"
    assert "nobody is logged in" in each.run("logout", each.url, code=1)


def test_a_login_moves_to_another_machine(each: World, tmp_path: Path) -> None:
    """`auth export` and `auth import`, with another folder in place of another machine."""
    key = {"ISTHMUS_EXPORT_KEY": "correct horse battery"}
    other = each._replace(folder=tmp_path / "other", more=key)
    each = each._replace(more=key)
    each.run("login", each.url)
    path = tmp_path / "logins"
    assert f"moved the login at {each.provider.issuer} for {each.url}" in each.run("auth", "export", path)
    assert each.run("auth", "ls") == "nobody is logged in\n"
    assert f"took the login at {each.provider.issuer} for {each.url}" in other.run("auth", "import", path)
    with wrap(each.url, folder=tmp_path, env=other.env) as proxy:
        assert answer_of(proxy.url) == "alice mcp:read"
    assert each.counts()["logins"] == 1


def test_the_error_of_a_call_says_how_to_log_in(each: World, tmp_path: Path) -> None:
    """A call without a login is refused with the command that helps, and passes once that has run. No probe opens a
    browser: the person logs in as often as the command runs."""
    config = each.config({"type": "oauth"})
    with serve(config, folder=tmp_path, env=each.env) as proxy:
        error = _refusal(proxy.url)
        command = f"isthmus login {config} guarded"
        assert error["code"] == -31004
        assert error["message"].endswith(f"guarded wants you to log in: {command}")
        assert error["data"]["login"] == {"command": command}
        assert each.counts()["logins"] == 0
        each.run(*shlex.split(command)[1:])
        assert answer_of(proxy.url) == "alice mcp:read"
        assert each.counts()["logins"] == 1


def _refusal(url: str) -> dict[str, Any]:
    """Returns the error with which a handshake is refused."""
    error: dict[str, Any] = _handshake(url)["error"]
    return error


def _handshake(url: str) -> dict[str, Any]:
    """Returns the answer to a handshake."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "person", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            body = response.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    text = next((line[5:] for line in body.decode().splitlines() if line.startswith("data:")), body.decode())
    found: dict[str, Any] = json.loads(text)
    return found


def test_wrap_uses_a_login_that_is_made_later(each: World, tmp_path: Path) -> None:
    """Over HTTP and on stdio: the error names the command, stderr has its line once, and no restart is needed."""
    with contextlib.ExitStack() as stack:
        front = stack.enter_context(launched(stdio_wrap(each.url), folder=tmp_path, env=each.env, has_stdin=True))
        proxy = stack.enter_context(wrap(each.url, folder=tmp_path, env=each.env))
        command = f"isthmus login {each.url}"
        assert _refusal(proxy.url)["data"]["login"] == {"command": command}
        for number in range(2):
            _send(front, "initialize", number, ABOUT)
            error = json.loads(front.wait_line(rf'"id":{number},.*').string)["error"]
            assert (error["code"], error["data"]["login"]) == (-31004, {"command": command})
        each.run(*shlex.split(command)[1:])
        assert answer_of(proxy.url) == "alice mcp:read"
        _call(front)
        assert front.stderr.count(command) == 1
        front.close_stdin()
        assert front.wait_exit() == 0
        assert each.counts()["logins"] == 1


def test_wrap_opens_a_browser_if_it_may(each: World, tmp_path: Path) -> None:
    """`--open`, with three processes at once, as hosts start them: one page, and the handshake waits for the login."""
    with contextlib.ExitStack() as stack:
        command = [*stdio_wrap(each.url), "--open"]
        fronts = [
            stack.enter_context(launched(command, folder=tmp_path, env=each.env, has_stdin=True)) for _ in range(3)
        ]
        for front in fronts:
            _send(front, "initialize", 0, ABOUT)
        for front in fronts:
            front.wait_line(r'"id":0,"result"')
            _call(front, is_begun=True)
            front.close_stdin()
            assert front.wait_exit() == 0
        assert each.counts()["logins"] == 1


def test_a_killed_process_leaves_its_login_to_the_next(each: World, tmp_path: Path) -> None:
    """A host kills isthmus while the person logs in, and starts it again: the page that is open is the one that counts,
    and no second one is opened."""
    pages = tmp_path / "pages"
    browser = shlex.join(["sh", "-c", 'echo "$1" >> "$0"', str(pages), "%s"])
    each = each._replace(more={"BROWSER": browser})
    command = [*stdio_wrap(each.url), "--open"]
    with launched(command, folder=tmp_path, env=each.env, has_stdin=True, code=None) as first:
        _send(first, "initialize", 0, ABOUT)
        _wait(lambda: pages.exists() and pages.read_text(encoding="utf-8").endswith("\n"))
        first.kill()
    page = pages.read_text(encoding="utf-8").strip()
    with launched(command, folder=tmp_path, env=each.env, has_stdin=True) as second:
        _send(second, "initialize", 0, ABOUT)
        _wait(lambda: f"goes on, with this page:\n{page}\n" in second.stderr)
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        person = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
        person.open(page, timeout=TIMEOUT_S).close()
        second.wait_line(r'"id":0,"result"')
        _call(second, is_begun=True)
        second.close_stdin()
        assert second.wait_exit() == 0
    assert pages.read_text(encoding="utf-8").split() == [page]
    assert each.counts()["logins"] == 1


def _wait(holds: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    give_up_at = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)


def _call(front: Process, *, is_begun: bool = False) -> None:
    """Calls the server's tool on stdio, after a handshake unless it has been."""
    if not is_begun:
        _send(front, "initialize", 90, ABOUT)
        front.wait_line(r'"id":90,"result"')
    front.write_line('{"jsonrpc":"2.0","method":"notifications/initialized"}')
    _send(front, "tools/call", 91, {"name": "who", "arguments": {}})
    assert "alice mcp:read" in front.wait_line(r'"id":91,.*').string


ABOUT: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "p", "version": "1"}}


LIFETIME_S, RENEWALS = (6, 20) if os.environ.get("THOROUGH") else (4, 5)
"""The lifetime of a token, of which a login uses half, and the renewals to wait for. With THOROUGH set, they take a
minute."""


def test_case_21_three_processes_with_one_login_refresh_it_once_at_a_time_and_nobody_logs_in_again(
    brief: World, tmp_path: Path
) -> None:
    """Three processes, one store: the provider, which revokes a login whose refresh token comes twice, refuses none,
    and nobody logs in again."""
    with contextlib.ExitStack() as stack:
        brief.run("login", brief.url)
        command = stdio_wrap(brief.url)
        processes = [
            stack.enter_context(launched(command, folder=tmp_path, env=brief.env, has_stdin=True)) for _ in range(3)
        ]
        for process in processes:
            _send(process, "initialize", 0, ABOUT)
            process.wait_line(r'"id":0,"result"')
            process.write_line('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        numbers = itertools.count(1)

        def is_renewed() -> bool:
            number = next(numbers)
            for process in processes:
                _send(process, "tools/call", number, {"name": "who", "arguments": {}})
            for process in processes:
                assert "alice mcp:read" in process.wait_line(rf'"id":{number},.*').string
            return brief.counts()["refresh_token"] >= RENEWALS

        _wait(is_renewed, TIMEOUT_S + RENEWALS * LIFETIME_S)
        counts = brief.counts()
        for process in processes:
            process.close_stdin()
            assert process.wait_exit() == 0
    assert (counts["logins"], counts["refused"]) == (1, 0)


def _send(process: Process, method: str, number: int, params: dict[str, Any]) -> None:
    process.write_line(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))


def test_the_proxy_logs_in_as_itself(each: World, tmp_path: Path) -> None:
    auth = {
        "type": "client_credentials",
        "client_id": "service",
        "client_secret": "secret-of-the-service-secret-of-the-service",
    }
    with serve(each.config(auth), folder=tmp_path, env=each.env) as proxy:
        assert answer_of(proxy.url) == "service mcp:read"
    assert each.counts() == {"client_credentials": 1}
    assert not (tmp_path / "state").exists()


def test_a_token_of_the_platform_is_exchanged(each: World, tmp_path: Path) -> None:
    """RFC 8693: the server sees whose token it was. The platform writes another token, and no restart is needed."""
    path = tmp_path / "token"
    path.write_text("of-nobody", encoding="utf-8")
    auth = {
        "type": "exchange",
        "client_id": "exchanging",
        "client_secret": "secret-of-exchanging-secret-of-exchanging",
        "subject_token_file": str(path),
    }
    with serve(each.config(auth), folder=tmp_path, env=each.env) as proxy:
        error = _refusal(proxy.url)
        assert error["code"] == -31004
        assert f"(invalid_request): it does not take the token in {path}" in error["message"]
        path.write_text(_platform_token(each.provider.issuer), encoding="utf-8")
        _wait(lambda: "error" not in _handshake(proxy.url))  # it is tried again after some seconds
        assert answer_of(proxy.url) == "service mcp:read"
    assert each.counts()["urn:ietf:params:oauth:grant-type:token-exchange"] == 1
    assert not (tmp_path / "state").exists()


def _platform_token(issuer: str) -> str:
    """Returns a token of the client `service`, as a platform would write it."""
    secret = "secret-of-the-service-secret-of-the-service"
    form = {"grant_type": "client_credentials", "client_id": "service", "client_secret": secret}
    request = urllib.request.Request(f"{issuer}/token", urllib.parse.urlencode(form).encode())
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        token: str = json.load(response)["access_token"]
    return token


def test_a_client_that_is_registered_by_hand(each: World, tmp_path: Path) -> None:
    """The client has a secret in the configuration, and its redirect URI is that of localhost."""
    auth = {"type": "oauth", "client_id": "by-hand", "client_secret": "secret-by-hand-secret-by-hand-secret"}
    config = each.config(auth)
    assert "logged in" in each.run("login", config, "guarded")
    with serve(config, folder=tmp_path, env=each.env) as proxy:
        assert answer_of(proxy.url) == "alice mcp:read"


def test_a_code_on_another_device(brief: World, tmp_path: Path) -> None:
    """`--device`, and the renewal of such a login. The person opens the page elsewhere and confirms the code."""
    command = [ISTHMUS, "login", "--device", brief.url]
    with launched(command, folder=tmp_path, env=brief.env) as process:
        shown = process.wait_line(r"^to log in, open (\S+) on any device, and type the code (\S+)")
        assert process.wait_line(r"^or open (\S+)")[1] == f"{shown[1]}?user_code={shown[2]}"
        _confirm(shown[1], shown[2])
        process.wait_line("logged in at .*: renewed by itself, scopes mcp:read")
        assert process.wait_exit() == 0
    with wrap(brief.url, folder=tmp_path, env=brief.env) as proxy:
        assert _answers_until_renewed(proxy.url, brief) == {"alice mcp:read"}
    assert (brief.counts()["logins"], brief.counts()["refused"]) == (1, 0)


def _answers_until_renewed(url: str, each: World) -> set[str]:
    """Calls the server's tool in one session until the login has been renewed twice. Returns the texts."""
    client = Client(url)
    found = set()

    def is_renewed() -> bool:
        found.update(texts(client.call("who")))
        return each.counts()["refresh_token"] >= 2

    _wait(is_renewed)
    return found


def _confirm(page: str, code: str) -> None:
    """Types a code at a page, and confirms it."""
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    person = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
    fields = {}
    for step in ({}, {"user_code": code}, {"confirm": "yes"}):
        form = urllib.parse.urlencode({**fields, **step}).encode() if step else None
        with person.open(page, form, timeout=TIMEOUT_S) as response:
            body = response.read().decode()
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', body))
    assert "Sign-in Success" in body


@pytest.mark.parametrize("kind", ["sse", *(["ws"] if os.environ.get("THOROUGH") else [])])
def test_a_login_at_a_server_of_another_transport(kind: str, brief: World, tmp_path: Path) -> None:
    """Legacy HTTP+SSE and WebSocket: without a login, with one that is made later, and with tokens that expire. The SDK
    adds a slash to the issuer that it names, so the configuration names that one."""
    with guarded_server(tmp_path, brief.provider, kind) as url:
        each = brief._replace(url=url)
        config = each.config({"type": "oauth", "issuer": each.provider.issuer, "scope": ["mcp:read"]})
        with wrap(each.url, folder=tmp_path, env=each.env) as proxy:
            command = _refusal(proxy.url)["data"]["login"]["command"]
            assert command == f"isthmus login {each.url.removeprefix('sse+')}"
            assert f"or set issuer: {each.provider.issuer}\n" in each.run(*shlex.split(command)[1:], code=1)
            each.run("login", config, "guarded")
            assert _answers_until_renewed(proxy.url, each) == {"alice"}
        with serve(config, folder=tmp_path, env=each.env) as proxy:
            assert text_of(who(proxy.url, tmp_path)) == "alice"
        assert (each.counts()["logins"], each.counts()["refused"]) == (1, 0)


def test_a_browser_on_another_machine(each: World, tmp_path: Path) -> None:
    """`--paste`: the page at which the browser ends is not there, and its address is pasted."""
    with launched([ISTHMUS, "login", "--paste", each.url], folder=tmp_path, env=each.env, has_stdin=True) as process:
        page = process.wait_line(r"^(http\S+/auth\?\S+)")[1]
        process.wait_line("then paste here")
        process.write_line(_end_of(page))
        process.wait_line("logged in at")
        assert process.wait_exit() == 0
    assert each.counts()["logins"] == 1


class _Stops(urllib.request.HTTPRedirectHandler):
    """Follows redirects up to the redirect URI, which another machine does not reach."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        url = arguments[-1]
        return None if urllib.parse.urlsplit(url).path == "/callback" else super().redirect_request(*arguments)


def _end_of(page: str) -> str:
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies, _Stops)
    with pytest.raises(urllib.error.HTTPError) as ended:
        opener.open(page, timeout=TIMEOUT_S)
    location: str = ended.value.headers["location"]
    return location


def test_a_person_fills_in_the_forms_of_the_provider(tmp_path: Path) -> None:
    """Chromium logs in and consents, and keeps the provider's cookies: a second login, with other scopes, asks for no
    password."""
    with world(tmp_path, FORMS=1) as each, contextlib.ExitStack() as stack:
        browser = stack.enter_context(chromium(tmp_path))
        for scopes, forms in (((), ["login", "consent"]), (("--scope", "mcp:write"), ["consent"])):
            command = [ISTHMUS, "login", "--no-browser", *scopes, each.url]
            with launched(command, folder=tmp_path, env=each.env) as process:
                page = process.wait_line(r"^(http\S+/auth\?\S+)")[1]
                seen = browser.login(page)
                process.wait_line("logged in at")
                assert process.wait_exit() == 0
            assert seen["forms"] == forms
            assert "Isthmus has the answer of the provider" in seen["text"]
            assert "_session" in seen["cookies"]
        with wrap(each.url, folder=tmp_path, env=each.env) as proxy:
            assert answer_of(proxy.url) == "carol mcp:read mcp:write"
        assert each.counts()["logins"] == 1


def test_nothing_secret_is_printed_or_readable(each: World, tmp_path: Path) -> None:
    """Tokens are in no log and in no file as they are, at the most talkative level."""
    said = each.run("--log-level", "debug", "login", each.url)
    with wrap(each.url, folder=tmp_path, options=["--log-level", "debug"], env=each.env) as proxy:
        assert answer_of(proxy.url) == "alice mcp:read"
        said += proxy.banner + proxy.stderr
    said += each.run("auth", "ls", "--json")
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert any(path.suffix == ".credential" for path in files)
    for path in files:
        assert path.stat().st_mode & 0o077 == 0
        said += path.read_bytes().decode("latin-1")
    # Each of the provider's tokens is a JWT, or 43 characters of base64url behind no name.
    assert "eyJ" not in said
    assert "refresh_token" not in said
    assert "Bearer ey" not in said
