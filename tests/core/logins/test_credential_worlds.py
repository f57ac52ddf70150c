"""Many processes with one store: no login is lost, no refresh token is sent twice, and nobody logs in needlessly.

A world has processes with several requests each, one record, one lock, a provider that rotates refresh tokens and
revokes the whole login if one comes twice, and a server that takes the newest access token alone. A seed chooses who
goes on at each step, which replies are lost, and how the clock jumps.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any
from urllib.parse import parse_qs

import msgspec
from each_row import each_row
from isthmus.core.logins.credentials import (
    RETRY_AFTER_S,
    Credential,
    CredentialState,
    LogIn,
    Read,
    Record,
    Renew,
    Use,
    Wait,
    Write,
    renew,
)
from isthmus.core.logins.requests import Fetch, Fetched, FetchFailed, LoginFailed, Registration
from login_world import ISSUER, NOW, URL, json_reply

SEEDS = range(150)
LIFETIME_S = 6.0
STEPS_MAX = 20_000
PASSES_S = [0.0] * 30 + [0.01] * 10 + [0.5]
"""The time that passes at a step: mostly none, so that a token outlives a renewal."""

Steps = Generator[None, None, None]


class Provider:
    """The authorization server. `current` is the refresh token that it takes; "": the login was revoked."""

    def __init__(self) -> None:
        self.number = 0
        self.current = "refresh-0"
        self.access = "access-0"
        self.issued_at = 0.0
        self.in_flight = 0
        self.refreshes = 0

    def refresh(self, sent: str, now: float) -> Fetched:
        if sent != self.current:
            self.current = self.access = ""  # the token came twice: RFC 9700, 4.14.2
            return json_reply({"error": "invalid_grant"}, 400)
        self.number += 1
        self.refreshes += 1
        self.current, self.access, self.issued_at = f"refresh-{self.number}", f"access-{self.number}", now
        tokens = {"access_token": self.access, "refresh_token": self.current, "token_type": "Bearer"}
        return json_reply({**tokens, "expires_in": LIFETIME_S})

    def takes(self, access: str, now: float) -> bool:
        return bool(access) and access == self.access and now < self.issued_at + LIFETIME_S


class World:
    """`time` is the true time, and `clock` what the processes see."""

    def __init__(self, seed: int, *, loses_replies: bool = False, is_down: float = 0.0, jumps: bool = True) -> None:
        self.random = random.Random(seed)
        self.loses_replies = loses_replies
        self.is_down = is_down
        self.jumps = jumps
        self.time = self.offset = 0.0
        self.provider = Provider()
        self.stored: Record | None = Record(
            Registration(ISSUER, "c"),
            URL,
            f"{ISSUER}/token",
            URL,
            (),
            (),
            "access-0",
            "refresh-0",
            NOW,
            NOW + LIFETIME_S,
        )
        self.holder: object | None = None
        self.lost = 0
        self.logins_wanted: list[str] = []
        self.done = 0

    def clock(self) -> float:
        return NOW + self.time + self.offset

    def run(self, processes: int, requests: int) -> None:
        waiting = [
            self.request(process, credential)
            for process, credential in ((number, Credential()) for number in range(processes))
            for _ in range(requests)
        ]
        for _ in range(STEPS_MAX):
            if not waiting:
                return
            chosen = self.random.randrange(len(waiting))
            self.time += self.random.choice(PASSES_S)
            if self.jumps and self.random.random() < 0.01:
                self.offset = self.random.choice([0.0, 3600.0, -3600.0, 5.0, -5.0])
            try:
                next(waiting[chosen])
            except StopIteration:
                del waiting[chosen]
            self.check()
        raise AssertionError("requests wait for ever")

    def check(self) -> None:
        assert self.provider.in_flight <= 1, "two refreshes in flight"
        if self.holder is None and not self.lost:
            assert self.stored is not None
            assert self.stored.refresh_token == self.provider.current, "a valid login was lost"

    def request(self, process: int, credential: Credential) -> Steps:
        """One request, sent once more after a 401 with another token."""
        sent = ""
        for _ in range(2):
            found: list[str] = []
            yield from self.acquire(process, credential, found)
            if not found or found[0] == sent:
                break
            sent = found[0]
            yield
            if self.provider.takes(sent, self.time):
                credential.receive_accepted(sent)
                self.done += 1
                return
            credential.receive_rejected(sent, self.clock())
        if not found:
            self.logins_wanted.append(f"process {process}: {credential.state}")

    def acquire(self, process: int, credential: Credential, found: list[str]) -> Steps:
        has_read = False
        while True:
            yield
            answer = credential.ask(self.clock())
            if isinstance(answer, Use):
                found.append(answer.access_token)
                return
            if isinstance(answer, Wait):
                while credential.state is CredentialState.REFRESHING:
                    yield
            elif isinstance(answer, Renew):
                yield from self.renew(credential, answer.seen)
            elif isinstance(answer, LogIn):
                if has_read:
                    return
                has_read = True
                yield
                credential.receive_record(self.stored)

    def renew(self, credential: Credential, seen: Record) -> Steps:
        while self.holder is not None:
            yield
        self.holder = credential
        flow = renew(seen, self.clock)
        reply: Any = None
        try:
            while True:
                yield
                order = flow.send(reply)
                yield
                reply = None
                if isinstance(order, Read):
                    reply = self.stored
                elif isinstance(order, Write):
                    self.stored = order.record
                else:
                    reply = yield from self.fetch(order)
        except StopIteration as end:
            self.holder = None
            credential.receive_renewed(end.value)
        except LoginFailed as error:
            self.holder = None
            if error.is_refused:
                credential.receive_refused(str(error))
            else:
                credential.receive_failed(str(error), self.clock() + RETRY_AFTER_S if error.is_unanswered else None)

    def fetch(self, order: Fetch) -> Generator[None, None, Fetched | FetchFailed]:
        self.provider.in_flight += 1
        yield
        if self.random.random() < self.is_down:
            self.provider.in_flight -= 1
            return FetchFailed("https://as.example: refused", is_unsent=True)
        sent = parse_qs(order.body.decode())["refresh_token"][0]
        reply = self.provider.refresh(sent, self.time)
        yield
        self.provider.in_flight -= 1
        if self.loses_replies and self.random.random() < 0.2:
            self.lost += 1
            return FetchFailed("https://as.example: lost")
        return reply


@each_row("seed", SEEDS)
def test_nobody_logs_in_needlessly(seed: int) -> None:
    """Corner case 21: three processes, tokens of six seconds, a clock that jumps, and no login but the first."""
    world = World(seed)
    world.run(processes=3, requests=8)
    assert world.logins_wanted == []
    assert world.provider.current == f"refresh-{world.provider.refreshes}"


@each_row("seed", SEEDS)
def test_a_provider_that_is_down_loses_nobody_a_login(seed: int) -> None:
    world = World(seed, is_down=0.5, jumps=False)
    world.run(processes=3, requests=4)
    world.is_down = 0.0
    world.logins_wanted.clear()
    world.time += 2 * RETRY_AFTER_S
    world.run(processes=3, requests=4)
    assert world.logins_wanted == []


@each_row("seed", SEEDS)
def test_a_lost_reply_costs_at_most_the_login_that_it_was_of(seed: int) -> None:
    """A reply that never comes may have used the token up. Only then are tokens removed, and only those."""
    world = World(seed, loses_replies=True)
    world.run(processes=3, requests=8)
    assert world.stored is not None
    if world.provider.current and not world.lost:
        assert world.stored.refresh_token == world.provider.current
    if not world.stored.refresh_token:
        assert world.lost
        assert world.provider.current == ""
    assert bool(world.logins_wanted) <= bool(world.lost)


def test_a_login_after_the_loss_is_seen_by_every_process() -> None:
    """Another process logs in: those that were refused read it, and go on."""
    world = World(1)
    credential = Credential()
    credential.receive_record(world.stored)
    world.provider.current, world.provider.access = "another", ""
    for _ in world.request(0, credential):
        world.time += 1
    assert credential.state is CredentialState.LOST
    assert world.stored is not None
    world.provider.current, world.provider.access, world.provider.issued_at = "refresh-9", "access-9", world.time
    world.stored = msgspec.structs.replace(
        world.stored, access_token="access-9", refresh_token="refresh-9", issued_at=world.clock(), expires_at=None
    )
    world.logins_wanted.clear()
    for _ in world.request(0, credential):
        pass
    assert (world.logins_wanted, world.done) == ([], 1)
