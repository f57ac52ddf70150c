"""Gateways that share real records: a login at one is a login at all, and a visit to `/connect` ends at any of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
from access_scenes import modern, shown
from anyio import to_thread
from command import told
from http_caller import USUAL, requested
from isthmus.app.base.errors import StartError
from isthmus.app.config.access_settings import Auth, Token, TrustedProxy
from isthmus.app.config.cluster_settings import Cluster
from isthmus.app.config.login_settings import OAuth
from isthmus.app.config.settings import Server, Settings, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.core.access.static_tokens import digest_of
from login_provider import BROWSER, Answer, Provider, Seen, provider
from record_servers import RecordServer, free_port
from s3_server import S3Server
from shared_gateways import ALICE, KEY, SharedStores

pytestmark = [pytest.mark.anyio, pytest.mark.real]

STORE_KEY = "5a" * 32
CARLA = {"x-forwarded-user": "carla"}
DORA = {"x-forwarded-user": "dora"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def store_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISTHMUS_STORE_KEY", STORE_KEY)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "unused"))


class RotatingProvider:
    """A provider whose refresh tokens each count once. `lose` has it forget the access token."""

    def __init__(self, found: Provider) -> None:
        self.found = found
        self.number = 0
        self.reused = 0
        found.answers["/token"] = self.answer
        self.refresh_token = ""

    def answer(self, seen: Seen) -> Answer:
        if seen.form["grant_type"] == "refresh_token" and seen.form["refresh_token"] != self.refresh_token:
            self.reused += 1
            return 400, {}, b'{"error": "invalid_grant"}'
        self.number += 1
        self.refresh_token, self.found.access_token = f"refresh-{self.number}", f"access-{self.number}"
        members = {"access_token": self.found.access_token, "refresh_token": self.refresh_token}
        return 200, {}, json.dumps(members | {"token_type": "Bearer", "expires_in": 3600}).encode()

    def lose(self) -> None:
        self.found.access_token = "none"


@pytest.fixture
def idp() -> Iterator[RotatingProvider]:
    with provider() as found:
        yield RotatingProvider(found)


class Two:
    """Two gateways over one pair of stores, and their configuration as a file."""

    def __init__(self, folder: Path, stores: SharedStores, mcp: str) -> None:
        self.ports = [free_port() for _ in range(2)]
        base_url = f"http://127.0.0.1:{self.ports[0]}"
        server = Server(id="guarded", upstream=Upstream(url=mcp, auth=OAuth(login_for="caller")))
        auth = Auth(
            tokens=(Token(name="alice", sha256=digest_of(ALICE).hex()),), proxy=TrustedProxy(peers=("127.0.0.1",))
        )
        self.settings: list[Settings] = []
        for number, port in enumerate(self.ports):
            root = folder / f"r{number}"
            usual = stores.settings(root, server)
            core = msgspec.structs.replace(usual.core, port=port, public_base_url=base_url)
            cluster = Cluster(replica=f"r{number}", socket=f"{root}.sock")
            self.settings.append(msgspec.structs.replace(usual, core=core, auth=auth, cluster=cluster))
        self.config = folder / "isthmus.json"
        config = {
            "core": {"link_keys": [KEY], "public_base_url": base_url},
            "auth": {"tokens": [{"name": "alice", "sha256": digest_of(ALICE).hex()}]},
            "sessions": {"request_state_keys": [KEY]},
            "storage": {"root": str(folder / "unused"), "records": stores.records, "blobs": stores.blobs},
            "servers": [{"id": "guarded", "upstream": {"url": mcp, "auth": {"type": "oauth", "login_for": "caller"}}}],
        }
        self.config.write_text(json.dumps(config))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[Gateway]]:
        with anyio.fail_after(120):
            async with contextlib.AsyncExitStack() as stack:
                yield [await stack.enter_async_context(_running(settings)) for settings in self.settings]

    async def command(self, *words: str) -> str:
        code, said = await to_thread.run_sync(lambda: told(*words, env={"BROWSER": BROWSER}))
        assert code == 0, said
        return said


def _running(settings: Settings) -> anyio.abc.AsyncContextManager[Gateway]:
    return running(settings, listen=True, is_lasting=True, log_server=lambda server, line: None)


@pytest.fixture
def two(record_server: RecordServer, s3_server: S3Server, tmp_path: Path, idp: RotatingProvider) -> Two:
    return Two(tmp_path, SharedStores(record_server, s3_server), idp.found.mcp)


async def call(found: Gateway, who: dict[str, str]) -> str:
    """Calls a tool. Returns its text, else that of the error."""
    headers, body = modern("tools/call", name="echo", arguments={})
    url = f"http://127.0.0.1:{found.settings.core.port}/mcp/guarded"
    async with requested(url, "POST", USUAL | who | headers, body) as response:
        async for message in response.messages():
            if "error" in message:
                return str(message["error"]["message"])
            if message.get("id") == 1:
                text: str = message["result"]["content"][0]["text"]
                return text
    raise AssertionError("no answer")


async def until_called(found: Gateway, who: dict[str, str], *, says: str) -> None:
    while says not in await call(found, who):  # noqa: ASYNC110 (another process has no event to wait for)
        await anyio.sleep(0.02)


async def test_a_login_counts_at_all_replicas_and_is_renewed_once(two: Two, idp: RotatingProvider) -> None:
    alice = shown(ALICE)
    async with two.running() as gateways:
        for each in gateways:
            assert "login guarded --as token:alice" in await call(each, alice)
        await two.command("login", "--as", "token:alice", str(two.config), "guarded")
        for each in gateways:
            await until_called(each, alice, says="called")
        idp.lose()
        answers: list[str] = []

        async def ask(each: Gateway) -> None:
            answers.append(await call(each, alice))

        async with anyio.create_task_group() as tasks:
            for each in gateways * 4:
                tasks.start_soon(ask, each)
        assert answers == ["called"] * 8
        assert (idp.number, idp.reused) == (2, 0)
        listed = json.loads(await two.command("auth", "ls", "--json", str(two.config)))
        assert [(each["caller"], each["is_renewed"]) for each in listed] == [("token:alice", True)]
        assert "nobody is logged in" in await two.command("auth", "ls"), "the files of this user"
        await two.command("logout", "--as", "token:alice", str(two.config), "guarded")
        for each in gateways:
            await until_called(each, alice, says="login guarded --as token:alice")


async def test_a_visit_that_began_at_one_replica_ends_at_the_other(two: Two, idp: RotatingProvider) -> None:
    async with two.running() as gateways:
        link = (await call(gateways[0], CARLA)).rpartition("open ")[2]
        async with requested(link, headers=CARLA) as begun:
            assert begun.status == 303, await begun.body()
            cookie, page = begun.headers["set-cookie"].partition(";")[0], begun.headers["location"]
        async with requested(page) as asked:
            query = urlsplit(asked.headers["location"]).query
        back = f"http://127.0.0.1:{two.ports[1]}/connect?{query}"
        async with requested(back, headers=CARLA) as without_cookie:
            assert without_cookie.status == 400
        statuses: list[int] = []

        async def come_back(url: str) -> None:
            async with requested(url, headers=CARLA | {"cookie": cookie}) as ended:
                statuses.append(ended.status)

        async with anyio.create_task_group() as tasks:
            for url in (back, back.replace(str(two.ports[1]), str(two.ports[0]))):
                tasks.start_soon(come_back, url)
        assert sorted(statuses) == [200, 400]
        for each in gateways:
            await until_called(each, CARLA, says="called")
            assert "open http" in await call(each, DORA)
        async with requested(link, headers=DORA) as stolen:
            assert stolen.status == 403


async def test_replicas_do_not_start_without_the_key_of_logins(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISTHMUS_STORE_KEY")
    with pytest.raises(StartError, match="there is no ISTHMUS_STORE_KEY: set it to the same key for all replicas"):
        async with _running(two.settings[0]):
            raise AssertionError
