"""The corner cases of tokens: which ones let a caller in, and what the others are told.

Each test is one case of the list that the design of access was made from, at a running gateway and an issuer of its
own. The cases of what belongs to whom are in `test_owners.py`, those of rules and metadata in `test_rules.py`, and
those of logins at servers in `test_logins.py`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from access_scenes import KEYS, issuing, opened, server, shown
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from http_caller import PATIENCE_S, USUAL, Caller, Json, requested
from isthmus.app.config.access_settings import Access
from screens import unwrapped

pytestmark = pytest.mark.anyio

KNOWN = "/.well-known/oauth-protected-resource"
PAUSE_S = 10.0
"""The time between two requests for the keys of an issuer."""
LEEWAY_S = 30.0
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
Clock = Callable[[float], None]


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Returns a function that sets the clock of this process, so also that of the gateway, forward by seconds."""
    real, ahead_s = time.time, 0.0

    def advance(seconds: float) -> None:
        nonlocal ahead_s
        ahead_s += seconds

    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    return advance


async def answer(url: str, headers: dict[str, str], body: bytes = b"{}") -> tuple[int, dict[str, str], Json]:
    """Sends a POST. Returns status, headers and body of the response."""
    async with requested(url, "POST", USUAL | headers, body) as response:
        return response.status, response.headers, await response.json()


async def refusal(url: str, token: str) -> str:
    """Sends a request with a token that is refused. Returns the reason that the body and the challenge give."""
    status, headers, body = await answer(url, shown(token))
    challenge = headers["www-authenticate"]
    assert status == 401
    assert 'error="invalid_token"' in challenge
    message: str = body["error"]["message"]
    reason = message.removeprefix("the credentials are refused: ")
    assert f'error_description="{reason}"' in challenge
    return reason


async def test_case_1_a_request_without_a_token_is_challenged_without_an_error() -> None:
    """RFC 6750, 3.1: without any authentication information "the resource server SHOULD NOT include an error code".
    2026-07-28 basic/authorization: the challenge names the metadata and the scopes that the request needs."""
    async with issuing(server(access=Access(scope=("read",)))) as (issuer, found):
        url = f"{found.base_url}/mcp/a"
        status, headers, _ = await answer(url, {})
        metadata = f"{found.base_url}{KNOWN}/mcp/a"
        assert status == 401
        assert headers["www-authenticate"] == f'Bearer realm="isthmus", resource_metadata="{metadata}", scope="read"'
        async with requested(metadata) as response:
            document = await response.json()
        assert (document["resource"], document["authorization_servers"]) == (url, [issuer.url])


@pytest.mark.parametrize("scope", ["read", ""], ids=["with the scope", "without the scope"])
async def test_case_2_a_token_for_another_audience_is_invalid_and_never_forbidden(scope: str) -> None:
    """2026-07-28 basic/authorization, "Token Handling": a server rejects tokens that were not issued for it. A 403
    would make the client ask for more scopes of the same wrong token."""
    async with issuing(server(access=Access(scope=("read",)))) as (issuer, found):
        url = f"{found.base_url}/mcp/a"
        reason = await refusal(url, issuer.token("https://elsewhere.example/mcp", scope=scope))
        assert reason.startswith("this token is for https://elsewhere.example/mcp, expected ")
        assert url in reason
        assert (await answer(url, shown(issuer.token(url, scope="read"))))[0] == 400, "a body that is no message"


async def test_case_5_a_token_in_the_query_does_not_count() -> None:
    """2026-07-28 basic/authorization, "Token Requirements": tokens are in the header, and never in the query of a
    URI."""
    async with issuing(server()) as (issuer, found):
        url = f"{found.base_url}/mcp/a"
        token = issuer.token(url)
        status, headers, _ = await answer(f"{url}?access_token={token}", {})
        assert status == 401
        assert "error=" not in headers["www-authenticate"], "as without a token"
        assert "result" in await Caller(url, shown(token)).request("initialize", INITIALIZE)


INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "caller", "version": "0"}}


@pytest.mark.parametrize("is_same", [True, False], ids=["the same", "another"])
async def test_case_6_two_authorization_headers_are_a_bad_request(is_same: bool) -> None:
    """RFC 9110, 5.3: only a field that is a list may be sent in several lines. Nobody can say which of two tokens
    counts."""
    async with issuing(server()) as (issuer, found):
        tokens = [issuer.token(f"{found.base_url}/mcp/a")] * 2
        tokens[1] = tokens[1] if is_same else issuer.token(f"{found.base_url}/mcp/a", "bob")
        lines = "".join(f"Authorization: Bearer {token}\r\n" for token in tokens)
        host = found.base_url.removeprefix("http://")
        with anyio.fail_after(PATIENCE_S):
            async with await anyio.connect_tcp("127.0.0.1", int(host.rpartition(":")[2])) as stream:
                await stream.send(f"GET /mcp/a/tools HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n".encode())
                assert (await stream.receive()).startswith(b"HTTP/1.1 400 ")


async def test_case_9_a_token_that_expires_on_a_kept_connection_ends_with_the_next_request() -> None:
    """2026-07-28 basic/authorization, "Token Requirements": each HTTP request has a token, and each token is judged. A
    head that repeats is not routed again, but its caller is still asked about."""
    async with issuing(server()) as (issuer, found):
        audience = f"{found.base_url}/mcp/a"
        alice = await opened(found, issuer.token(audience))
        host = found.base_url.removeprefix("http://")
        head = (
            f"POST /mcp/a HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {issuer.token(audience, lasts_s=2 - LEEWAY_S)}\r\n"
            f"Mcp-Session-Id: {alice.session}\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(PING)}\r\n\r\n"
        )
        statuses: list[int] = []
        async with await anyio.connect_tcp("127.0.0.1", int(host.rpartition(":")[2])) as stream:
            while not statuses or statuses[-1] == 200:
                await stream.send(head.encode() + PING)
                data = b""
                while b"\r\n\r\n" not in data:
                    data += await stream.receive()
                headers, _, rest = data.partition(b"\r\n\r\n")
                length = int(headers.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                while len(rest) < length:
                    rest += await stream.receive()
                statuses.append(int(headers[9:12]))
                await anyio.sleep(0.05)
        assert statuses[0] == 200
        assert statuses[-1] == 401


async def test_case_10_an_unknown_key_costs_one_request_and_a_thousand_cost_one_in_ten_seconds(advance: Clock) -> None:
    """OpenID Connect Core 1.0, 10.1.1: keys are read anew for an unknown `kid`. Anybody can write one, so 64 tokens
    wait for the next reading, and the others are told to come again."""
    async with issuing(server()) as (issuer, found):
        url = f"{found.base_url}/mcp/a"
        await opened(found, issuer.token(url))
        advance(PAUSE_S + 1)
        before = issuer.asked.count("/keys")
        reason = await refusal(url, issuer.token(url, kid="k2"))
        assert reason.startswith(f"signed with key k2, which {issuer.url} does not publish (asked ")
        assert issuer.asked.count("/keys") == before + 1

        statuses: list[int] = []
        async with anyio.create_task_group() as tasks:
            slots = anyio.Semaphore(100)  # 64 are taken by requests that wait

            async def ask(number: int) -> None:
                bogus = issuer.token(url, kid="k2", headers={"kid": f"bogus-{number}"})
                async with slots, requested(url, "POST", USUAL | shown(bogus), PING) as response:
                    assert response.status == 401 or int(response.headers["retry-after"]) > 0
                    statuses.append(response.status)
                    if len(statuses) >= 1000 - 64:
                        tasks.cancel_scope.cancel()

            for number in range(1000):
                tasks.start_soon(ask, number)
        assert set(statuses) <= {401, 503}
        times = issuer.asked_at["/keys"][before:]
        assert all(later - earlier > PAUSE_S - 0.5 for earlier, later in itertools.pairwise(times))


async def test_case_11_keys_that_cannot_be_read_are_503_at_first_and_stale_later(advance: Clock) -> None:
    """RFC 9110, 15.6.4: 503 with `Retry-After`. On a 401 clients throw their tokens away. Keys that were read once are
    used for another day."""
    async with issuing(server(), is_up=False) as (issuer, found):
        url = f"{found.base_url}/mcp/a"
        status, headers, _ = await answer(url, shown(issuer.token(url)))
        assert status == 503
        assert int(headers["retry-after"]) > 0
        issuer.is_up = True
        advance(PAUSE_S + 1)
        alice = await opened(found, issuer.token(url))
        issuer.is_up = False
        advance(2 * 3600)
        alice.headers |= shown(issuer.token(url))
        asked = len(issuer.asked)
        assert await alice.call("echo", text="x") == "toolbox says x"
        assert len(issuer.asked) > asked, "it was asked, and did not answer"
        advance(48 * 3600)
        assert (await answer(url, shown(issuer.token(url))))[0] == 503


# --- Forged and foreign tokens ----------------------------------------------------------------------------------------


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_with_nothing(message: str) -> str:
    return ""


def signed_with_the_public_key(message: str) -> str:
    """Takes the public key for a shared secret, as a library does that believes `alg`."""
    secret = KEYS["r1"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return base64url(hmac.new(secret, message.encode(), hashlib.sha256).digest())


def forged(header: Json, claims: Json, sign: Callable[[str], str]) -> str:
    message = ".".join(base64url(json.dumps(each).encode()) for each in (header, claims))
    return f"{message}.{sign(message)}"


@pytest.mark.parametrize(
    ("header", "claims", "sign"),
    [
        pytest.param({"alg": "none"}, {}, signed_with_nothing, id="alg none"),
        pytest.param({"alg": "none"}, {}, lambda _: base64url(b"x"), id="alg none with a signature"),
        pytest.param({"alg": "HS256"}, {}, signed_with_the_public_key, id="the public key as a secret"),
        pytest.param({"crit": ["exp"]}, {}, None, id="extensions"),
        pytest.param({}, {"exp": None}, None, id="no end"),
        pytest.param({"typ": "oauth-id-jag+jwt"}, {}, None, id="an identity assertion"),
        pytest.param({"typ": "JWT"}, {"nonce": "n", "at_hash": "x"}, None, id="an ID token"),
        pytest.param({"typ": "secevent+jwt"}, {}, None, id="a security event"),
    ],
)
async def test_case_12_what_is_no_access_token_of_the_issuer_is_refused(
    header: Json, claims: Json, sign: Callable[[str], str] | None
) -> None:
    """RFC 8725, 3.1 and 3.11: a verifier takes the algorithms and the kinds of token that it expects, and no others.
    RFC 7515, 4.1.11: a token with extensions that are not understood is invalid. RFC 9068, 2.2: `exp` is required."""
    async with issuing(server()) as (issuer, found):
        issuer.published = ["r1"]
        url = f"{found.base_url}/mcp/a"
        await opened(found, issuer.token(url, kid="r1"))
        usual = {"iss": issuer.url, "sub": "alice", "aud": url, "exp": int(time.time()) + 60}
        content = {name: value for name, value in (usual | claims).items() if value is not None}
        if sign is None:
            token = issuer.sign(content, "r1", header)
        else:
            token = forged({"kid": "r1", "typ": "at+jwt"} | header, content, sign)
        await refusal(url, token)


async def test_case_13_an_issuer_with_another_slash_is_another_issuer() -> None:
    """RFC 8414, 3.3: the issuer "MUST be identical". The refusal has both texts, since one sees no difference."""
    async with issuing(server()) as (issuer, found):
        url = f"{found.base_url}/mcp/a"
        reason = await refusal(url, issuer.token(url, iss=issuer.url + "/"))
        assert f"its issuer is {issuer.url}/, auth.issuers[0].url is {issuer.url}: " in reason


async def test_case_13_check_says_both_texts_of_an_issuer_with_another_slash(tmp_path: Path) -> None:
    """RFC 8414, 3.3: metadata whose `issuer` is another text are not used. A person learns of it from `check`."""
    async with issuing(server(), slash="/") as (issuer, _):
        tools = {"id": "a", "upstream": {"command": [*server().upstream.command]}}
        settings = {"auth": {"issuers": [{"url": issuer.url}]}, "servers": [tools]}
        (tmp_path / "isthmus.json").write_text(json.dumps(settings), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("isthmus")), "check", str(tmp_path / "isthmus.json")]
        with anyio.fail_after(3 * PATIENCE_S):
            done = await anyio.run_process(command, check=False)
        both = f"names the issuer {issuer.url}/, auth.issuers[0].url is {issuer.url}: both must be the same"
        assert done.returncode == 1
        assert f"WARNING auth.issuers[0]: the documents of {issuer.url} cannot be read: " in unwrapped(
            done.stdout.decode()
        )
        assert both in unwrapped(done.stdout.decode())


async def test_case_13_the_log_says_both_texts_of_an_issuer_with_another_slash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RFC 8414, 3.3, as above: the tokens are not judged, so nobody is told to throw them away."""
    async with issuing(server(), slash="/") as (issuer, found):
        url = f"{found.base_url}/mcp/a"
        assert (await answer(url, shown(issuer.token(url))))[0] == 503
        both = f"names the issuer {issuer.url}/, auth.issuers[0].url is {issuer.url}: both must be the same"
        assert [both in each.getMessage() for each in caplog.records if each.name == "isthmus.audit"] == [True]


async def test_case_14_a_token_of_a_clock_that_is_ahead_is_valid_within_the_leeway() -> None:
    """RFC 7519, 4.1.5: implementers "MAY provide for some small leeway, usually no more than a few minutes"."""
    async with issuing(server()) as (issuer, found):
        url = f"{found.base_url}/mcp/a"
        await opened(found, issuer.token(url, nbf=time.time() + 20))
        reason = await refusal(url, issuer.token(url, nbf=time.time() + 45))
        assert "it is not valid for another " in reason
        assert "clocks may differ by 30 s; this machine's clock says 20" in reason
        reason = await refusal(url, issuer.token(url, lasts_s=-LEEWAY_S - 10))
        assert reason.startswith("it expired ")
        assert "this machine's clock says 20" in reason
