"""Any request comes to a listener with a gate: its caller is whom an independent reader finds, or it is refused.

The first byte says where it comes from and how the gate is set. The rest is the head, as in `http_rules`; `{alice}` in
it stands for a token that is known, `{wrong}` for one that is not. Accepted outcomes: a route of the caller, with its
grants; a page or a link that needs none; a `Refused` whose challenge can be read again and which repeats no token; or a
request for the keys of an issuer.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Final
from urllib.parse import urlsplit

from isthmus.core.access.gate import Gate, GateSettings, TrustedProxy
from isthmus.core.access.identity import Identity, Peer
from isthmus.core.access.issuer_settings import IssuerSettings
from isthmus.core.access.issuers import Issuers
from isthmus.core.access.static_tokens import StaticToken, digest_of, new_token
from isthmus.core.base.plan import AccessRule, AccessRules
from isthmus.core.logins.challenges import parse_challenges
from isthmus.core.wire.http.admin_routes import Management
from isthmus.core.wire.http.routes import (
    DownloadRoute,
    Head,
    McpRoute,
    PageRoute,
    Refused,
    SocketRoute,
    Surface,
    Undecided,
    UploadRoute,
)
from isthmus.core.wire.http.server import judge

ALICE: Final = new_token(lambda size: b"\x07" * size)
WRONG: Final = new_token(lambda size: b"\x08" * size)
ISSUER: Final = "https://a.example"
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
RULES: Final = AccessRules(AccessRule(("read",), ("team",)))
SURFACE: Final = Surface(
    servers=("open", "closed"),
    hosts=frozenset({"localhost", "127.0.0.1", "[::1]"}),
    origins=frozenset(),
    management=Management(),
    access={"closed": RULES},
)
PEERS: Final = (
    Peer("10.1.2.3"),
    Peer("::ffff:10.1.2.3"),
    Peer("192.0.2.1"),
    Peer("fe80::1%eth0"),
    Peer("", 1000, is_unix=True),
    Peer("", None, is_unix=True),
)
TRUSTED: Final = ("10.1.2.3", "::ffff:10.1.2.3")
LINKED: Final = ("/upload", "/artifacts")


def gate_of(flags: int) -> Gate:
    proxy = TrustedProxy(
        (ipaddress.ip_network("10.0.0.0/8"),), has_unix=bool(flags & 16), user=b"x-user", groups=b"x-groups"
    )
    token = StaticToken("alice", digest_of(ALICE), frozenset({"read"}), frozenset({"team"}))
    settings = GateSettings((token,), unix_peers=bool(flags & 32), proxy=proxy, allows_anonymous=bool(flags & 64))
    return Gate(settings, Issuers([IssuerSettings(ISSUER)], verify=lambda *_: False))


def head_of(data: bytes) -> Head:
    """Returns the head as the HTTP parser gives it: names in lower case, no line ends or outer whitespace in values."""
    data = data.replace(b"{alice}", ALICE.encode()).replace(b"{wrong}", WRONG.encode())
    first, *lines = data.translate(None, b"\r\0").split(b"\n")
    method, _, rest = first.decode("latin-1").partition(" ")
    target, _, version = rest.partition(" ")
    pairs = (line.partition(b":") for line in lines if b":" in line)
    headers = tuple((name.strip().lower(), value.strip(b" \t")) for name, _, value in pairs)
    return Head(method, re.sub(r"[^!-~]", "", target), headers, version or "1.1")


def expected(head: Head, peer: Peer, flags: int) -> Identity | int | None:
    """Returns the caller, by the rules of docs/access.md; the status of the refusal; None for a token of an issuer,
    whose caller is not known before its keys are read."""
    users = [value for name, value in head.headers if name == b"x-user"]
    groups = [value for name, value in head.headers if name == b"x-groups"]
    if users or groups:
        if not (flags & 16 if peer.is_unix else peer.host in TRUSTED):
            return 401
        if len(users) != 1 or len(groups) > 1:
            return 400
        name = users[0].decode("utf-8", "replace").strip()
        if not name or not name.isprintable() or max(map(len, users + groups)) > 512:
            return 401
        listed = (groups[0] if groups else b"").decode("utf-8", "replace").split(",")
        return Identity(f"proxy:{name}", groups=frozenset(each.strip() for each in listed if each.strip()), via="proxy")
    tokens = [value.decode("latin-1") for name, value in head.headers if name == b"authorization"]
    if len(tokens) > 1:
        return 400
    if tokens:
        scheme, _, text = tokens[0].partition(" ")
        if scheme.lower() == "bearer" and text.strip() == ALICE:
            return Identity(
                "token:alice", frozenset({"read"}), frozenset({"team"}), via="token", token_id=digest_of(ALICE).hex()
            )
        return None if text.count(".") in (2, 4) else 401
    if flags & 32 and peer.uid is not None:
        return Identity(f"uid:{peer.uid}", via="unix")
    return Identity("") if flags & 64 else 401


def check_refusal(refused: Refused, head: Head) -> None:
    for name, value in refused.headers:
        assert not re.search(rb"[\r\n\0]", name + value)
    assert not refused.denied or "\n" not in refused.denied
    told = refused.body + b"".join(value for _, value in refused.headers) + refused.denied.encode()
    asked = f"{head.method} {head.target} {head.version}".encode()
    asked += b"".join(value for name, value in head.headers if name != b"authorization")
    for token in (ALICE.encode(), WRONG.encode()):
        assert token not in told or token in asked
    challenges = [value.decode("latin-1") for name, value in refused.headers if name == b"www-authenticate"]
    assert (refused.status == 401) <= bool(challenges)
    for challenge in challenges:
        [found] = parse_challenges(challenge)
        assert found.scheme == "bearer"
        assert found.parameters["realm"] == "isthmus"
        assert (found.parameters.get("error") == "insufficient_scope") == (refused.status == 403)
        url = urlsplit(found.parameters["resource_metadata"])
        assert (url.scheme, url.hostname in HOSTS) == ("http", True)
        assert url.path.startswith("/.well-known/oauth-protected-resource")


def test_one_input(data: bytes) -> None:
    flags, head = (data or b"\0")[0], head_of(data[1:])
    peer = PEERS[(flags & 15) % len(PEERS)]
    route = judge(head, SURFACE, gate=gate_of(flags), peer=peer, now=1_800_000_000.0)
    caller = expected(head, peer, flags)
    if isinstance(route, Refused):
        check_refusal(route, head)
        if "/.well-known/" in head.target and route.status == 200 and head.method == "GET":
            document = json.loads(route.body)
            assert document["authorization_servers"] == [ISSUER]
            assert urls_end_alike(document["resource"], head.target)
        return
    if isinstance(route, Undecided):
        assert caller is None
        assert route.wanted.issuer == ISSUER
        return
    if isinstance(route, PageRoute) and not route.shows_all:
        return  # a probe, which says no more than that the process runs
    if isinstance(route, UploadRoute | DownloadRoute) and route.opening.principal is None:
        assert caller in (401, Identity("")), "the link alone counts where there is no other credential"
        assert not any(name == b"authorization" for name, _ in head.headers)
        return
    assert isinstance(caller, Identity), (caller, route)
    if isinstance(route, McpRoute | SocketRoute):
        assert route.identity == caller
        assert route.opening.principal == caller.principal
        assert getattr(route.opening, "grants", caller.grants) == caller.grants
        if route.opening.server == "closed":
            assert "team" in caller.groups and "read" in caller.scopes
    if isinstance(route, PageRoute):
        assert route.identity in (caller, None)
    if isinstance(route, UploadRoute | DownloadRoute):
        assert route.opening.principal == caller.principal


def urls_end_alike(resource: str, target: str) -> bool:
    """True if the metadata name the resource that they were asked about, whose slash at the end does not count."""
    path = target.partition("?")[0].partition("/.well-known/oauth-protected-resource")[2]
    return resource.rstrip("/").endswith(path.rstrip("/"))
