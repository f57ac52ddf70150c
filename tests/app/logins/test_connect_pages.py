"""The pages where callers log in: which browser may go on with a visit, and for how long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import anyio
import pytest
from isthmus.app.config.login_settings import OAuth
from isthmus.app.config.settings import Upstream
from isthmus.app.logins import connect_pages, visits
from isthmus.app.logins.callers import CALLERS_MAX, CallerTokens
from isthmus.app.logins.connect_pages import ConnectPages, Issuer
from isthmus.app.logins.flows import fetch
from isthmus.app.logins.records import records_of
from isthmus.app.logins.store import CredentialStore
from isthmus.app.logins.tokens import ask_for_command
from isthmus.app.logins.visits import VISIT_TTL_S, VISITS_MAX, Visits
from isthmus.core.access.identity import ANONYMOUS, Identity
from isthmus.core.logins.requests import Fetch, Fetched, FetchFailed
from isthmus.core.wire.http.admin_routes import Page
from isthmus.core.wire.http.routes import PageRoute, Refused
from isthmus.storage.interface import Records
from isthmus.storage.memory import MemoryRecords
from isthmus.storage.sqlite import SqliteRecords
from isthmus.transports.web_fetch import FetchSettings
from login_world import URL, World

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

KEY = b"k" * 32
ALICE, BOB = Identity("proxy:alice", via="proxy"), Identity("proxy:bob", via="proxy")


class Rig:
    """The pages of a gateway with one server, whose provider is scripted."""

    def __init__(self, folder: Path, base_url: str = "https://gateway.example") -> None:
        self.world = World()
        self.now = 1_800_000_000.0
        self.upstream = Upstream(url=URL, auth=OAuth(login_for="caller"))
        self.store = CredentialStore(str(folder / "credentials"), {"ISTHMUS_STORE_KEY": "00" * 32})
        self.base_url = base_url
        self.pages = self.replica(MemoryRecords(lambda: self.now))

    def replica(self, records: Records, issuers: Sequence[Issuer] = ()) -> ConnectPages:
        """Makes the pages of a replica."""
        found = Visits(records, KEY)
        servers = {"files": self.upstream}
        return ConnectPages(self.base_url, KEY, servers, issuers, self.store, found, clock=lambda: self.now)

    def link(self, principal: str = "proxy:alice") -> str:
        ask = self.pages.ask_of("files", principal)
        assert ask is not None
        found = re.search(r"open (\S+)$", ask("wants you to log in", ()).message)
        assert found is not None
        return found[1]

    async def opens(
        self, url: str, identity: Identity = ALICE, cookie: str = "", *, at: ConnectPages | None = None
    ) -> Refused:
        parts = urlsplit(url)
        id = unquote(parts.path.removeprefix("/connect").removeprefix("/"))
        page = Page.CONNECT if id else Page.CONNECTED
        route = PageRoute(page, id, dict(parse_qsl(parts.query)), True, identity, cookie)
        return await (at or self.pages).answer(route)

    async def begins(self, identity: Identity = ALICE) -> tuple[str, str, Refused]:
        """Opens a link. Returns the address where the browser is sent, its cookie, and the response."""
        found = await self.opens(self.link(), identity)
        headers = dict(found.headers)
        assert found.status == 303, found.body
        return headers[b"location"].decode(), headers[b"set-cookie"].decode().partition(";")[0], found

    def comes_back(self, page: str) -> str:
        return f"/connect?code=the-code&state={parse_qs(urlsplit(page).query)['state'][0]}"


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    found = Rig(tmp_path)

    async def answer(asked: Fetch, settings: FetchSettings) -> Fetched | FetchFailed:
        reply = found.world.answer(asked)
        assert isinstance(reply, Fetched | FetchFailed)
        return reply

    assert connect_pages.fetch is fetch  # type: ignore[attr-defined]
    monkeypatch.setattr(connect_pages, "fetch", answer)
    return found


async def test_a_caller_logs_in(rig: Rig) -> None:
    page, cookie, response = await rig.begins()
    assert page.startswith("https://as.example/realms/a/authorize?")
    assert b"Secure" in dict(response.headers)[b"set-cookie"]
    assert cookie.startswith("__Host-")
    found = await rig.opens(rig.comes_back(page), cookie=f"other=1; {cookie}")
    assert found.status == 200
    assert b"logged in at files" in found.body
    assert dict(found.headers)[b"cache-control"] == b"no-store"
    (kept,) = await records_of(rig.store, rig.upstream, "proxy:alice")
    assert kept.record.access_token == "the-access-token"
    assert not await records_of(rig.store, rig.upstream)
    again = await rig.opens(rig.comes_back(page), cookie=cookie)
    assert again.status == 400, "a visit ends once"


async def test_a_second_login_uses_the_registration_of_the_first(rig: Rig) -> None:
    for _ in range(2):
        page, cookie, _response = await rig.begins()
        await rig.opens(rig.comes_back(page), cookie=cookie)
    registrations = [url for url in rig.world.urls if url.endswith("/register")]
    assert len(registrations) == 1


@pytest.mark.parametrize("cookie", ["", "__Host-isthmus-connect=" + "0" * 64, "twice"])
async def test_another_browser_cannot_go_on(rig: Rig, cookie: str) -> None:
    page, own, _ = await rig.begins()
    found = await rig.opens(rig.comes_back(page), cookie=f"{own}; {own}" if cookie == "twice" else cookie)
    assert found.status == 400
    assert (await rig.opens(rig.comes_back(page), cookie=own)).status == 200


@pytest.mark.parametrize("identity", [BOB, ANONYMOUS])
async def test_another_person_is_refused(rig: Rig, identity: Identity) -> None:
    found = await rig.opens(rig.link(), identity)
    assert found.status == (403 if identity is BOB else 400)
    assert not rig.world.requests


async def test_the_answer_of_another_login_ends_the_visit(rig: Rig) -> None:
    _, cookie, _ = await rig.begins()
    found = await rig.opens("/connect?code=the-code&state=another", cookie=cookie)
    assert found.status == 400
    assert b"another login" in found.body


async def test_a_provider_that_refuses_is_told_of(rig: Rig) -> None:
    page, cookie, _ = await rig.begins()
    state = rig.comes_back(page).partition("&")[2]
    found = await rig.opens(f"/connect?error=access_denied&{state}", cookie=cookie)
    assert (found.status, b"access_denied" in found.body) == (400, True)
    assert not await records_of(rig.store, rig.upstream, "proxy:alice")


async def test_another_caller_cannot_go_on_with_a_visit(rig: Rig) -> None:
    page, cookie, _ = await rig.begins()
    assert (await rig.opens(rig.comes_back(page), BOB, cookie)).status == 403
    assert (await rig.opens(rig.comes_back(page), cookie=cookie)).status == 400, "it is over"


async def test_a_visit_ends_at_another_replica_and_once(rig: Rig, tmp_path: Path) -> None:
    """The browser comes back to both of them at the same moment."""
    opened = [SqliteRecords(str(tmp_path / "records.sqlite"), now_unix=lambda: rig.now) for _ in range(2)]
    rig.pages, other = (rig.replica(records) for records in opened)
    page, cookie, _ = await rig.begins()
    assert other is not rig.pages
    statuses = []

    async def come_back(at: ConnectPages) -> None:
        statuses.append((await rig.opens(rig.comes_back(page), cookie=cookie, at=at)).status)

    async with anyio.create_task_group() as tasks:
        for at in (other, rig.pages) * 4:
            tasks.start_soon(come_back, at)
    assert sorted(statuses) == [200] + [400] * 7
    assert [url for url in rig.world.urls if url.endswith("/token")] == ["https://as.example/realms/a/token"]
    assert len(await records_of(rig.store, rig.upstream, "proxy:alice")) == 1
    stored = [(key, record) async for key, record in opened[0].scan("visit/")]
    assert stored == []
    for records in opened:
        await records.aclose()


async def test_what_is_stored_of_a_visit_shows_nothing(rig: Rig) -> None:
    records = MemoryRecords(lambda: rig.now)
    rig.pages = rig.replica(records)
    page, cookie, _ = await rig.begins()
    [(key, record)] = [found async for found in records.scan("")]
    state = parse_qs(urlsplit(page).query)["state"][0]
    assert not any(part in key.encode() + record.value for part in (state.encode(), cookie.encode(), b"alice"))
    assert record.expires_at_unix == rig.now + VISIT_TTL_S


async def test_a_visit_ends_after_a_time(rig: Rig) -> None:
    page, cookie, _ = await rig.begins()
    rig.now += VISIT_TTL_S
    assert (await rig.opens(rig.comes_back(page), cookie=cookie)).status == 400


async def test_visits_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten at `VISITS_MAX`."""
    assert VISITS_MAX > 2
    monkeypatch.setattr(visits, "VISITS_MAX", 2)
    begun = [await rig.begins() for _ in range(3)]
    statuses = [(await rig.opens(rig.comes_back(page), cookie=cookie)).status for page, cookie, _ in begun]
    assert statuses == [400, 200, 200]


async def test_only_callers_whose_browsers_are_known_get_a_page(rig: Rig) -> None:
    """The others are told the command."""
    assert rig.pages.ask_of("files", "token:ci") is None
    assert rig.pages.ask_of("files", "jwt:https://as.example|alice") is None


async def test_a_link_that_is_not_valid(rig: Rig) -> None:
    for url in ("/connect/files", "/connect/files?ticket=x", rig.link().replace("files", "others")):
        assert (await rig.opens(url)).status == 404


def caller_tokens(rig: Rig) -> CallerTokens:
    ask = ask_for_command("files", ("login",))
    return CallerTokens("files", rig.upstream, rig.store, lambda _: ask, lambda _: None)


async def test_callers_are_bounded(rig: Rig) -> None:
    """The tokens of the one that has called least lately are dropped at `CALLERS_MAX`."""
    tokens = CallerTokens(
        "files", rig.upstream, rig.store, lambda caller: ask_for_command("files", ("login", caller)), lambda _: None
    )
    first, second = tokens("token:0"), tokens("token:1")
    assert tokens("token:0") is first
    for number in range(2, CALLERS_MAX + 1):
        tokens(f"token:{number}")
    assert tokens("token:0") is first
    assert tokens("token:1") is not second


async def test_a_caller_without_a_name_has_no_login(rig: Rig) -> None:
    tokens = CallerTokens(
        "files", rig.upstream, rig.store, lambda caller: ask_for_command("files", ("login",)), lambda _: None
    )("")
    assert tokens.current() is None
    assert await tokens.header() is None
    assert not await tokens.refused(b"Bearer x", "", 401)
    wanted = tokens.login_wanted()
    assert wanted is not None
    assert "not recognised" in wanted.message
