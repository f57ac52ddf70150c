"""Key sets in worlds of random rotations, failures, latencies and clients, against what the issuer publishes.

Time is simulated. The driver of these worlds is the one that `issuers.py` describes: it joins equal requests, sends
none before its time, and reports each response once. Signatures are not computed: a token's one is the modulus of its
key.
"""

from __future__ import annotations

import base64
import heapq
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from issuer_scenes import AUDIENCES, ENDPOINT, ISSUER, NOW, base64url
from isthmus.core.access.identity import Identity
from isthmus.core.access.issuer_answers import (
    DocumentWanted,
    KeysWanted,
    MetadataWanted,
    Refused,
    Reply,
    Unavailable,
    Waits,
)
from isthmus.core.access.issuer_documents import REFETCH_PAUSE_S, IssuerDocuments, metadata_urls
from isthmus.core.access.issuer_settings import IssuerSettings
from isthmus.core.access.issuers import CHECK_ROUNDS_MAX, Issuers
from isthmus.core.access.public_keys import Key

END = math.inf


def modulus(kid: str) -> str:
    return base64url(kid.encode().rjust(256, b"k")).decode()


def verify(key: Key, algorithm: str, message: bytes, signature: bytes) -> bool:
    return base64.urlsafe_b64decode(key.n + "==") == signature


@dataclass
class Client:
    """A client with one token.

    Attributes:
        key: the key that has signed it.
        ends_at: when the issuer takes the key out of its set.
    """

    token: str
    key: str
    arrived_at: float
    ends_at: float
    rounds: int = 0
    answer: Identity | Refused | Unavailable | None = None
    answered_at: float = 0.0


@dataclass
class World:
    """An issuer, a driver and clients.

    Attributes:
        published: for each key that the issuer has had: when it leaves its set.
        sent: the moments at which requests for keys were sent.
        read: the names in the key set that was read last.
        latency_s: seconds that a response takes; the issuer looks at its state in the middle of them.
    """

    has_names: bool = True
    now: float = NOW
    published: dict[str, float] = field(default_factory=dict)
    is_up: bool = True
    latency_s: float = 0.1
    sent: list[float] = field(default_factory=list)
    read: frozenset[str] = frozenset()
    clients: list[Client] = field(default_factory=list)
    agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    flights: dict[DocumentWanted, list[Client]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.issuers = Issuers([IssuerSettings(ISSUER)], verify=verify)

    def publish(self) -> None:
        self.published[f"key {len(self.published)}"] = END

    def remove(self, kid: str) -> None:
        """Takes a key out of the set, unless it is the last one."""
        if sum(end == END for end in self.published.values()) > 1 and self.published[kid] == END:
            self.published[kid] = self.now
            for client in self.clients:
                if client.key == kid and client.answer is None:
                    client.ends_at = self.now

    def arrive(self, kid: str) -> Client:
        """A client comes with a token that a key has signed, which is not published if its name is another one's."""
        number = next(self.numbers)
        content = {"iss": ISSUER, "sub": "a", "aud": ENDPOINT, "exp": int(self.now) + 9999, "jti": str(number)}
        header = {"alg": "RS256", **({"kid": kid} if self.has_names else {})}
        parts = [json.dumps(header).encode(), json.dumps(content).encode(), kid.encode().rjust(256, b"k")]
        token = b".".join(map(base64url, parts)).decode()
        client = Client(token, kid, self.now, self.published.get(kid, 0.0))
        self.clients.append(client)
        self.step(client)
        return client

    def step(self, client: Client) -> None:
        client.rounds += 1
        assert client.rounds <= CHECK_ROUNDS_MAX
        answer = self.issuers.check(client.token, AUDIENCES, self.now)
        if not isinstance(answer, Waits):
            client.answer, client.answered_at = answer, self.now
            self.judge(client)
            return
        assert isinstance(answer.request, DocumentWanted)
        self.join(answer.request).append(client)

    def join(self, request: DocumentWanted) -> list[Client]:
        if request not in self.flights:
            self.flights[request] = []
            assert request.not_before <= self.now + REFETCH_PAUSE_S
            self.at(max(request.not_before, self.now), lambda: self.send(request))
        return self.flights[request]

    def send(self, request: DocumentWanted) -> None:
        if isinstance(request, KeysWanted):
            self.sent.append(self.now)
        latency_s = self.latency_s
        self.at(self.now + latency_s / 2, lambda: self.reply(request, latency_s / 2))

    def reply(self, request: DocumentWanted, rest_s: float) -> None:
        kids = frozenset(kid for kid, end in self.published.items() if end == END)
        keys = [
            {"kty": "RSA", "n": modulus(kid), "e": "AQAB", **({"kid": kid} if self.has_names else {})} for kid in kids
        ]
        document = {"keys": keys} if isinstance(request, KeysWanted) else {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/k"}
        reply = Reply(200, (), json.dumps(document).encode()) if self.is_up else None
        self.at(self.now + rest_s, lambda: self.report(request, reply, kids))

    def report(self, request: DocumentWanted, reply: Reply | None, kids: frozenset[str]) -> None:
        waiting = self.flights.pop(request)
        if reply is None:
            self.issuers.failed(request, self.now, "connection refused")
        else:
            self.issuers.fetched(request, reply, self.now)
            if isinstance(request, KeysWanted):
                self.read = kids
        for client in waiting:
            self.step(client)

    def at(self, moment: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (moment, next(self.numbers), what))

    def run(self, until: float) -> None:
        while self.agenda and self.agenda[0][0] <= until:
            self.now, _, what = heapq.heappop(self.agenda)
            what()
        self.now = max(self.now, until)

    def finish(self) -> None:
        while self.agenda:
            self.run(self.agenda[0][0])
        assert all(client.answer is not None for client in self.clients)
        assert not self.flights
        pauses = [later - earlier for earlier, later in itertools.pairwise(self.sent)]
        assert all(pause >= REFETCH_PAUSE_S - 1e-6 for pause in pauses), pauses

    def judge(self, client: Client) -> None:
        """Verifies that a token of a published key is never refused, and that none is accepted but those of keys in the
        set that was read last."""
        if isinstance(client.answer, Identity):
            assert client.key in self.read
        if isinstance(client.answer, Refused):
            assert client.ends_at < END
            assert client.key not in self.read


ACTIONS = st.one_of(
    st.tuples(st.just("good"), st.integers(0, 2)),  # the newest key, or an older one
    st.tuples(st.just("bogus"), st.integers(0, 2)),
    st.tuples(st.just("publish"), st.just(0)),
    st.tuples(st.just("remove"), st.integers(0, 2)),
    st.tuples(st.just("up"), st.integers(0, 1)),
    st.tuples(st.just("latency"), st.sampled_from([0, 1, 30, 120])),  # tenths of a second
    st.tuples(st.just("due"), st.just(0)),
)
WAITS_S = st.sampled_from([0.0, 0.0, 0.04, 0.5, 3.0, 9.97, 10.0, 11.0, 120.0, 3590.0, 3600.0, 90000.0])


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(st.tuples(WAITS_S, ACTIONS), max_size=40), has_names=st.booleans())
def test_no_token_of_a_published_key_is_refused(actions: list[tuple[float, tuple[str, int]]], has_names: bool) -> None:
    world = World(has_names)
    world.publish()
    for wait_s, (what, number) in actions:
        world.run(world.now + wait_s)
        # Sets in which no key has a name are small: more than four keys would fit such a token.
        lasting = [kid for kid, end in world.published.items() if end == END]
        if what == "good":
            world.arrive(lasting[-1 - number % len(lasting)])
        elif what == "bogus":
            world.arrive(f"bogus {number}")
        elif what == "publish" and len(lasting) < 4:
            world.publish()
        elif what == "remove":
            world.remove(lasting[number % len(lasting)])
        elif what == "up":
            world.is_up = bool(number)
        elif what == "latency":
            world.latency_s = number / 10
        elif what == "due":
            for request in world.issuers.due(world.now):
                world.join(request)
    world.finish()
    world.is_up, world.latency_s = True, 0.1  # afterwards it is as it should be
    world.run(world.now + 60)
    kid = next(kid for kid, end in world.published.items() if end == END)
    last = [world.arrive(kid), world.arrive("bogus 9")]
    world.finish()
    assert [type(client.answer) for client in last] == [Identity, Refused]


def test_a_rotation_costs_nobody_a_token() -> None:
    """Each moment of a rotation, with the issuer up: whoever comes with the new key is accepted in the end."""
    for tenth in range(0, 300, 7):
        world = World()
        world.publish()
        world.arrive("key 0")
        world.run(NOW + 5)
        world.arrive("bogus")
        world.run(NOW + tenth / 10)
        world.publish()
        clients = [world.arrive("key 1") for _ in range(20)]
        world.finish()
        assert all(isinstance(client.answer, Identity) for client in clients)
        assert all(client.answered_at - client.arrived_at < 21 for client in clients)


@pytest.mark.parametrize("has_names", [True, False])
def test_a_key_that_is_published_while_the_keys_are_read(has_names: bool) -> None:
    """Each moment of an attempt: the response that is under way may have been written before the key was published."""
    for tenth in range(0, 120, 3):
        world = World(has_names)
        world.publish()
        world.arrive("key 0")
        world.run(NOW + 20)
        world.latency_s = 4.0
        world.arrive("bogus")
        world.run(NOW + 20 + tenth / 10)
        world.publish()
        client = world.arrive("key 1")
        world.finish()
        assert isinstance(client.answer, Identity)


def test_a_token_whose_client_has_left_is_not_judged_by_what_was_read_then() -> None:
    world = World()
    world.publish()
    world.arrive("key 0")
    world.run(NOW + 20)
    token = World(now=NOW).arrive("key 1").token
    answer = world.issuers.check(token, AUDIENCES, world.now)
    assert isinstance(answer, Waits)
    assert isinstance(answer.request, DocumentWanted)
    world.join(answer.request)
    world.arrive("bogus")
    world.finish()
    assert len(world.sent) == 2
    world.publish()
    world.run(world.now + 11)
    assert isinstance(world.issuers.check(token, AUDIENCES, world.now), Waits)


def test_a_rotation_while_bogus_keys_rain() -> None:
    """Bogus tokens fill the places of those that wait: a good one may get a 503 meanwhile, and a fetch comes each ten
    seconds at most."""
    world = World()
    world.publish()
    world.arrive("key 0")
    world.run(NOW + 20)
    for number in range(1000):
        world.arrive(f"bogus {number}")
        world.run(world.now + 0.05)
        if number == 500:
            world.publish()
    good = world.arrive("key 1")
    world.finish()
    assert isinstance(good.answer, Identity)  # read long before, for the bogus ones
    assert len(world.sent) <= 1 + 50 / 10 + 2
    bogus = [client.answer for client in world.clients if client.key.startswith("bogus")]
    assert not any(isinstance(answer, Identity) for answer in bogus)
    assert {type(answer) for answer in bogus} == {Refused, Unavailable}


def test_a_lost_request_is_asked_for_again() -> None:
    """A driver that never reports a response holds nobody up for good: the same request is wanted again."""
    issuers = World().issuers
    token = World().arrive("key 0").token
    first = issuers.check(token, AUDIENCES, NOW)
    assert first == issuers.check(token, AUDIENCES, NOW + 100)


def test_a_late_response_changes_nothing() -> None:
    documents = IssuerDocuments(ISSUER, "auth.issuers[0]")
    early = documents.want(NOW)
    for _ in metadata_urls(ISSUER):
        documents.receive(documents.want(NOW), Reply(404), NOW)
    assert documents.attempts == 1
    assert not documents.receive(early, Reply(200, (), b"{}"), NOW)
    assert not documents.fail(early, "", NOW)
    assert documents.attempts == 1


@pytest.mark.parametrize(
    ("issuer", "expected"),
    [
        ("https://idp.example", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        ("https://idp.example/", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (
            "https://idp.example/a/b",
            [
                "/.well-known/oauth-authorization-server/a/b",
                "/.well-known/openid-configuration/a/b",
                "/a/b/.well-known/openid-configuration",
            ],
        ),
        (
            "https://idp.example/a/",
            [
                "/.well-known/oauth-authorization-server/a",
                "/.well-known/openid-configuration/a",
                "/a/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_metadata_are_looked_for_in_the_order_of_the_specification(issuer: str, expected: list[str]) -> None:
    """2026-07-28 basic/authorization/authorization-server-discovery; RFC 8414, 3.1: a slash at the end goes."""
    assert list(metadata_urls(issuer)) == ["https://idp.example" + path for path in expected]


def documents_after(*replies: Reply, headers: tuple[tuple[bytes, bytes], ...] = ()) -> IssuerDocuments:
    """Returns documents whose requests were answered so; the metadata and keys that follow are good."""
    documents = IssuerDocuments(ISSUER, "auth.issuers[0]")
    for reply in replies:
        documents.receive(documents.want(NOW), reply, NOW)
    metadata = json.dumps({"issuer": ISSUER, "jwks_uri": "https://keys.example/k"}).encode()
    documents.receive(documents.want(NOW), Reply(200, (), metadata), NOW)
    documents.receive(documents.want(NOW), Reply(200, headers, b'{"keys":[]}'), NOW)
    return documents


@pytest.mark.parametrize(
    "reply",
    [
        Reply(404),
        Reply(200, (), b"<html>"),
        Reply(200, (), b"[]"),
        Reply(200, (), b'{"issuer":"https://evil.example","jwks_uri":"https://evil.example/k"}'),
        Reply(200, (), b'{"jwks_uri":"https://evil.example/k"}'),
        Reply(200, (), json.dumps({"issuer": ISSUER}).encode()),
        Reply(200, (), json.dumps({"issuer": ISSUER, "jwks_uri": "http://idp.example.com/k"}).encode()),
        Reply(200, (), json.dumps({"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"}).encode()),
        Reply(200, (), json.dumps({"issuer": ISSUER, "jwks_uri": 7}).encode()),
        Reply(200, (), b" " * 65536 + json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/k"}).encode()),
    ],
)
def test_useless_metadata_are_looked_for_elsewhere(reply: Reply) -> None:
    documents = documents_after(reply)
    assert documents.ask(NOW) is None
    assert documents.metadata.jwks_url == "https://keys.example/k"


def test_the_address_that_had_metadata_is_asked_first_afterwards() -> None:
    for count, url in enumerate(metadata_urls(ISSUER)):
        documents = documents_after(*[Reply(404)] * count)
        assert documents.want(NOW + 3600).url == url
        others = [url]
        while documents.attempts == 1:
            documents.receive(documents.want(NOW + 3600), Reply(404), NOW + 3600)
            others.append(documents.want(NOW + 3600).url)
        assert others[:3] == [url, *(each for each in metadata_urls(ISSUER) if each != url)]


def test_keys_are_read_where_they_were_when_the_metadata_are_gone() -> None:
    documents = documents_after()
    later = NOW + 3600
    documents.fail(documents.want(later), "connection refused", later)
    request = documents.want(later)
    assert isinstance(request, KeysWanted)
    assert request.url == "https://keys.example/k"


def test_another_address_of_the_keys_is_followed() -> None:
    documents = documents_after()
    metadata = json.dumps({"issuer": ISSUER, "jwks_uri": "https://keys.example/new"}).encode()
    documents.receive(documents.want(NOW + 3600), Reply(200, (), metadata), NOW + 3600)
    assert documents.want(NOW + 3600).url == "https://keys.example/new"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"keys":{}}', b'{"keys":[' + b"{}," * 64 + b"{}]}", b" " * 65536 + b"{}"]
)
def test_an_unreadable_key_set_leaves_the_old_one(body: bytes) -> None:
    world = World()
    world.publish()
    world.arrive("key 0")
    world.finish()
    later = NOW + 4000
    token = World(now=later)
    token.publish()
    fresh = token.arrive("key 0").token
    answer = world.issuers.check(fresh, AUDIENCES, later)
    while isinstance(answer, Waits):
        metadata = isinstance(answer.request, MetadataWanted)
        body_now = json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/k"}).encode() if metadata else body
        world.issuers.fetched(answer.request, Reply(200, (), body_now), later)
        answer = world.issuers.check(fresh, AUDIENCES, later)
    assert isinstance(answer, Identity)
    assert body_now == body


@pytest.mark.parametrize(
    ("control", "valid_s"),
    [
        ("", 3600),
        ("public, max-age=600", 600),
        ("max-age=1", 300),
        ("max-age=999999999", 86400),
        ("Max-Age=7200, must-revalidate", 7200),
        ('max-age="900"', 900),
        ("s-maxage=600", 3600),
        ("no-store", 300),
        ("no-cache, max-age=7200", 300),
        ("max-age=many", 3600),
    ],
)
def test_keys_are_valid_for_as_long_as_their_issuer_says_within_bounds(control: str, valid_s: int) -> None:
    documents = documents_after(headers=((b"cache-control", control.encode()),) if control else ())
    assert documents.ask(NOW + valid_s - 1) is None
    assert isinstance(documents.ask(NOW + valid_s), Waits)
