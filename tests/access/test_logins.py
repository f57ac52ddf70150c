"""The corner cases of logins at servers, played with the command, a browser, a provider and a server that wants it.

Case 21 is in `tests/real/test_logins.py`, with the provider that revokes a login whose refresh token comes twice. Case
25, a browser that opens the page of somebody else, is not here: there is no such page yet.

How the list is divided among the files is said in `test_tokens.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from access_scenes import gateway, issuing, server, shown
from command import told
from http_caller import USUAL, requested
from isthmus.app.config.access_settings import Issuer
from isthmus.app.logins.records import Kept, read_all
from isthmus.app.logins.store import CredentialStore
from login_provider import BROWSER, KNOWN, Provider, Trap, provider

STORE_KEY = "5a" * 32


@pytest.fixture
def first() -> Iterator[Provider]:
    with provider() as found:
        yield found


@pytest.fixture
def second() -> Iterator[Provider]:
    with provider() as found:
        yield found


@pytest.fixture
def trap() -> Iterator[Trap]:
    found = Trap()
    yield found
    found.close()


def log_in(folder: Path, *target: str) -> tuple[int, str]:
    """Runs `isthmus login` to its end. Returns its code and output."""
    env = {"XDG_STATE_HOME": str(folder / "state"), "ISTHMUS_STORE_KEY": STORE_KEY, "BROWSER": BROWSER}
    return told("--log-level", "debug", "login", *target, env=env)


def logins(folder: Path) -> list[Kept]:
    """Returns the logins of the store, in the order of their tokens."""
    store = CredentialStore(str(folder / "state/isthmus/credentials"), {"ISTHMUS_STORE_KEY": STORE_KEY})
    return sorted(read_all(anyio.run(store.records)), key=lambda kept: kept.record.access_token)


def configured(folder: Path, url: str, **auth: object) -> str:
    """Writes a configuration with a server `a` that wants a login, and returns its path."""
    path = folder / "isthmus.json"
    upstream = {"url": url, "auth": {"type": "oauth", **auth}}
    path.write_text(json.dumps({"servers": [{"id": "a", "upstream": upstream}]}), encoding="utf-8")
    return str(path)


def test_case_22_a_new_authorization_server_gets_a_registration_of_its_own(
    first: Provider, second: Provider, tmp_path: Path
) -> None:
    """2026-07-28 basic/authorization/client-registration: credentials belong to the authorization server that gave
    them, and are not used at another one. Those of the old one stay."""
    assert log_in(tmp_path, first.mcp)[0] == 0
    [before] = logins(tmp_path)
    first.resource["authorization_servers"] = [second.url]
    asked = len(first.seen)
    assert log_in(tmp_path, first.mcp)[0] == 0
    assert [each.path for each in first.seen[asked:]] == ["/mcp", f"{KNOWN}/oauth-protected-resource/mcp"]
    [registered] = second.saw("/register")
    assert first.name not in json.dumps(second.saw("/authorize")[0].form["client_id"])
    assert registered.authorization == ""
    found = {kept.key.issuer: kept for kept in logins(tmp_path)}
    assert found[first.url].data == before.data
    assert found[second.url].record.registration.client_id == f"client-1-of-{second.name}"


def test_case_22_a_client_that_was_registered_by_hand_is_not_shown_to_a_new_authorization_server(
    first: Provider, second: Provider, tmp_path: Path
) -> None:
    """2026-07-28 basic/authorization/client-registration: the login fails, and says where the client is registered."""
    path = configured(tmp_path, first.mcp, client_id="by-hand", client_secret="the secret of by-hand")
    assert log_in(tmp_path, path, "a")[0] == 0
    first.resource["authorization_servers"] = [second.url]
    code, said = log_in(tmp_path, path, "a")
    assert code == 1
    assert f"client_id is registered at {first.url}, and the server now names {second.url}" in said
    assert {each.path for each in second.seen} == {f"{KNOWN}/oauth-authorization-server"}
    assert [kept.key.issuer for kept in logins(tmp_path)] == [first.url]


@pytest.mark.parametrize(
    ("returned", "seen"),
    [
        pytest.param({"code": "stolen"}, "does not say that it is of", id="no issuer"),
        pytest.param(
            {"code": "stolen", "iss": "https://other.example"}, "is of another provider than", id="another one"
        ),
        pytest.param(
            {"error": "access_denied", "error_description": "call 0900", "iss": "https://other.example"},
            "is of another provider than",
            id="an error of another one",
        ),
        pytest.param({"error": "call 0900", "error_uri": "x"}, "does not say that it is of", id="an error of nobody"),
    ],
)
def test_case_23_an_answer_of_another_provider_is_not_acted_on_nor_shown(
    returned: dict[str, str], seen: str, first: Provider, tmp_path: Path
) -> None:
    """RFC 9207, 2.4: a client compares `iss` with the issuer that it asked, and goes no further with another one. It
    shows nothing of the error of such an answer either."""
    first.returned = returned
    code, said = log_in(tmp_path, first.mcp)
    assert code == 1
    assert seen in said
    assert first.saw("/token") == []
    assert "0900" not in said.replace(first.url, "")
    assert "stolen" not in said
    assert logins(tmp_path) == []


@pytest.mark.parametrize("methods", [None, ["plain"], []], ids=["not listed", "plain alone", "an empty list"])
def test_case_23_a_provider_that_does_not_list_s256_is_refused(
    methods: list[str] | None, first: Provider, tmp_path: Path
) -> None:
    """2026-07-28 basic/authorization/security-considerations: without `code_challenge_methods_supported` there is no
    proof of possession of the code, and the client does not go on."""
    first.metadata["code_challenge_methods_supported"] = methods
    code, said = log_in(tmp_path, first.mcp)
    assert code == 1
    assert f"{first.url} does not list S256" in said
    assert first.saw("/register") == first.saw("/authorize") == first.saw("/token") == []


@pytest.mark.parametrize(
    "where",
    ["https://169.254.169.254/latest", "https://0.0.0.0:{port}/x", "http://[fd00::1]/x", "https://[::ffff:a9fe:a9fe]/"],
)
@pytest.mark.parametrize("way", ["the challenge", "a redirect", "the issuer", "an endpoint"])
def test_case_24_an_address_of_another_party_that_leads_into_the_network_is_refused_before_it_is_connected_to(
    way: str, where: str, first: Provider, trap: Trap, tmp_path: Path
) -> None:
    """2026-07-28 security_best_practices, "Server-Side Request Forgery"; RFC 9728, 7.7. A redirect is not followed."""
    url = where.format(port=trap.port)
    document = f"{KNOWN}/oauth-protected-resource/mcp"
    if way == "the challenge":
        first.challenge = f'Bearer resource_metadata="{url}"'
    elif way == "a redirect":
        first.answers[document] = 307, {"location": url}, b""
    elif way == "the issuer":
        first.resource["authorization_servers"] = [url]
    else:
        first.metadata["token_endpoint"] = url
    code, said = log_in(tmp_path, first.mcp)
    assert code == 1
    assert trap.count() == 0
    assert "Traceback" not in said
    if way == "a redirect":
        assert "HTTP status 307" in said
    elif url.startswith("https"):
        assert "which this URL must not lead to" in said
    assert logins(tmp_path) == []


@pytest.mark.anyio
async def test_case_24_the_keys_of_an_issuer_are_not_read_from_this_machine(first: Provider, trap: Trap) -> None:
    """RFC 9728, 7.7, for the documents of issuers whose tokens are accepted: they name the address of the keys."""
    first.metadata["jwks_uri"] = f"http://127.0.0.1:{trap.port}/keys"
    async with gateway(server(), issuers=(Issuer(url=first.url),)) as found:
        async with issuing(server()) as (issuer, _):
            token = issuer.token(f"{found.base_url}/mcp/a", iss=first.url)
        async with requested(f"{found.base_url}/mcp/a", "POST", USUAL | shown(token), b"{}") as response:
            assert response.status == 503
    assert first.saw(f"{KNOWN}/oauth-authorization-server")
    assert trap.count() == 0
