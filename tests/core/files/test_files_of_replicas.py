"""Tests of replicas that keep the limits of stored files together: the sum is never over, and what a killed one held is
free after a named time."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from driving import UNIX_AT_ZERO, manifest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import Effect
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Eviction, Kind, LocatorMode, OutputLocator, ServerPlan
from isthmus.core.base.replica import ReplicaName
from isthmus.core.base.shares import SKEW_S
from isthmus.core.base.storage import Collect, Collected, CollectedFile, Forget, Load, Receive, Save, StorageFailed
from isthmus.core.files.store import store
from isthmus.core.files.store.shares import PREFIX
from isthmus.core.state.records import StoredUpload
from isthmus.core.state.shared_limits import RESERVE_S, RETURNED_AFTER_S
from upload_links import bearer, file_world, put
from versioned_records import VersionedRecords

LIMITS = Limits(session_storage_max_bytes=1000, storage_max_bytes=1500, upload_ttl_s=100.0, artifact_ttl_s=50.0)
MAKING = ServerPlan(
    id="f",
    kind=Kind.PIPE,
    producers=(ArtifactProducer(tools=("make",), output_locator=OutputLocator(mode=(LocatorMode.EMBEDDED,))),),
)
HEALED_AFTER_S = 100.0 * 1.25 + RESERVE_S + SKEW_S + 1.0
"""The longest life of a file, the reserve of its share, and the difference of clocks."""


class Replica:
    """A replica whose orders are carried out when the test says so.

    Attributes:
        is_away: every order fails.
    """

    def __init__(self, records: VersionedRecords, seed: int, limits: Limits = LIMITS, **more: Any) -> None:
        self.world, self.client = file_world(
            limits=limits, seed=seed, replica=ReplicaName("a", f"{seed:032x}"), shares_storage=True, **more
        )
        self.world.answers_uses = False
        self.records = records
        self.is_away = False
        self.under_way: list[Effect] = []
        self.count = 0
        self._read = 0

    def put(self, size: int, sid: str = "0" * 32) -> ChannelId:
        """Uploads a file of a principal."""
        return put(self.world, bearer(self.world, sid, ttl_s=1e6), size)

    def read(self) -> list[Effect]:
        for effect in self.world.log[self._read :]:
            if isinstance(effect, Load | Save | Receive):
                self.under_way.append(effect)
            elif isinstance(effect, Forget):
                self.records.pop(effect.key, None)
        self._read = len(self.world.log)
        return self.under_way

    def answer(self, place: int = 0) -> None:
        """Carries out one of the orders under way."""
        order = self.read().pop(place % len(self.under_way))
        if isinstance(order, Receive):
            if order.channel not in self.world.over:
                self.world.send(order.channel, manifest(("a b.txt", order.total_size_max_bytes)))
        elif isinstance(order, Load | Save):
            self.count += order.key.startswith(PREFIX)
            answer = StorageFailed("away") if self.is_away else self.records.answer(order)
            self.world.store(order.ticket, answer)
        self.read()

    def settle(self) -> None:
        while self.read():
            self.answer()

    def status(self, channel: ChannelId) -> int:
        return self.world.sent[channel][0].status

    def stores(self, size: int, sid: str = "0" * 32) -> int:
        """Uploads a file. Returns the status of the response."""
        channel = self.put(size, sid)
        self.settle()
        return self.status(channel)

    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)
        self.settle()


def stored(records: VersionedRecords, now: float) -> list[StoredUpload]:
    uploads = [msgspec.json.decode(value, type=StoredUpload) for key, value in records.items() if key[:7] == "upload/"]
    return [upload for upload in uploads if upload.expires_at_unix > UNIX_AT_ZERO + now]


def size_of(records: VersionedRecords, now: float) -> int:
    return sum(upload.size_bytes for upload in stored(records, now))


@pytest.mark.parametrize("seed", range(10))
def test_of_two_replicas_that_want_the_last_byte_one_gets_it(seed: int) -> None:
    """The other refuses its upload before a byte of it has come."""
    records, order = VersionedRecords(), random.Random(seed)
    one, two = (Replica(records, number, eviction=Eviction.NONE) for number in (1, 2))
    assert one.stores(999) == 200
    channels = [(replica, replica.put(1)) for replica in (one, two)]
    while waiting := [replica for replica in (one, two) if replica.read()]:
        order.choice(waiting).answer(order.randrange(4))
    assert sorted(replica.status(channel) for replica, channel in channels) == [200, 507]
    assert size_of(records, one.world.now) == 1000


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_uploads_at_the_same_time_that_all_fit_are_all_taken(seed: int) -> None:
    """A claim on an account is kept while the limit for all is asked."""
    order, records = random.Random(seed), VersionedRecords()
    replicas = [Replica(records, number, eviction=Eviction.NONE) for number in (1, 2)]
    channels = []
    for _ in range(8):
        replica = order.choice(replicas)
        channels.append((replica, replica.put(100)))
        for _ in range(order.randrange(4)):
            if replica.read():
                replica.answer(order.randrange(8))
    while waiting := [replica for replica in replicas if replica.read()]:
        order.choice(waiting).answer(order.randrange(8))
    assert {replica.status(channel) for replica, channel in channels} == {200}


@given(seed=st.integers(0, 2**32), eviction=st.sampled_from([Eviction.NONE, Eviction.UPLOADS_FIRST]))
@settings(max_examples=25)
def test_files_of_replicas_are_never_over_the_limits(seed: int, eviction: Eviction) -> None:
    """Replicas take uploads of two principals, fail and are killed in any order."""
    order, records, runs = random.Random(seed), VersionedRecords(), 3
    replicas = [Replica(records, run, eviction=eviction) for run in range(runs)]
    for _ in range(60):
        who = order.randrange(3)
        one = replicas[who]
        what = order.choice(["put"] * 4 + ["answer"] * 16 + ["away", "kill", "wait"])
        if what == "put":
            one.put(order.choice((1, 300, 700)))
        elif what == "answer" and one.read():
            one.answer(order.randrange(8))
        elif what == "away":
            one.is_away = not one.is_away
        elif what == "kill":
            replicas[who] = Replica(records, runs, eviction=eviction)
            replicas[who].world.now = one.world.now
            runs += 1
        elif what == "wait":
            seconds = order.choice((1.0, 10.0, 90.0))
            for other in replicas:
                other.world.wait(seconds)
                other.read()
        assert size_of(records, one.world.now) <= 1000


def test_what_a_killed_replica_held_is_free_after_the_longest_life_of_a_file() -> None:
    records = VersionedRecords()
    killed, other = Replica(records, 1), Replica(records, 2)
    killed.put(600)
    while not any(isinstance(order, Receive) for order in killed.read()):
        killed.answer()
    other.wait(RESERVE_S)
    assert other.stores(600) == 413, "the upload may still be under way there"
    other.wait(HEALED_AFTER_S - RESERVE_S)
    assert other.stores(1000) == 200


def test_a_file_costs_one_order() -> None:
    """The record of all accounts is read once, and written for many files at once."""
    one = Replica(VersionedRecords(), 1, Limits())
    for _ in range(10):
        assert one.stores(1000) == 200
    assert one.count == 10 + 2


def test_what_ends_is_free_for_others_soon() -> None:
    records = VersionedRecords()
    one, two = Replica(records, 1), Replica(records, 2)
    assert one.stores(1000) == 200
    assert two.stores(1000) == 507
    one.wait(100.0)
    one.wait(RETURNED_AFTER_S)
    two.wait(105.0)
    assert two.stores(1000) == 200


def test_a_file_that_another_replica_uses_is_not_evicted() -> None:
    records = VersionedRecords()
    one = Replica(records, 1)
    assert one.stores(600) == 200
    (used,) = stored(records, 100.0)
    assert one.stores(400) == 200
    one.wait(1.0)
    extended = msgspec.structs.replace(used, expires_at_unix=used.expires_at_unix + 25.0)
    records[used.key] = msgspec.json.encode(extended)
    assert one.stores(500) == 413
    assert one.stores(400) == 200, "the other file makes room"
    assert {upload.id for upload in stored(records, 100.0)} > {used.id}
    assert size_of(records, 100.0) == 1000


def test_a_file_that_another_replica_begins_to_use_keeps_its_room() -> None:
    """The upload that was to have it is refused when it has come."""
    records = VersionedRecords()
    one = Replica(records, 1)
    assert one.stores(600) == 200
    one.wait(1.0)
    channel = one.put(700)
    while not any(isinstance(order, Receive) for order in one.read()):
        one.answer()
    (used,) = stored(records, 100.0)
    extended = msgspec.structs.replace(used, expires_at_unix=used.expires_at_unix + 25.0)
    records[used.key] = msgspec.json.encode(extended)
    one.settle()
    assert one.status(channel) == 507
    assert stored(records, 100.0) == [extended]


def test_so_many_files_are_looked_at_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are not evicted for it."""
    monkeypatch.setattr(store, "LOOKS_MAX", 1)
    one = Replica(VersionedRecords(), 1)
    for size in (300, 300, 400):
        assert one.stores(size) == 200
        one.wait(1.0)
    assert one.stores(400) == 413
    assert one.stores(300) == 200


def test_a_storage_that_is_away_refuses_files_alone() -> None:
    one = Replica(VersionedRecords(), 1)
    one.is_away = True
    channel = one.put(10)
    one.settle()
    assert one.status(channel) == 503
    assert json.loads(one.world.sent[channel][0].message)["code"] == "storage_failed"
    asked = one.client.request("5", "tools/call", '{"name":"t"}')
    one.world.answer(one.world.take_sent("tools/call"), '{"content":[]}')
    assert one.world.only_message(asked)["result"] == {"content": []}
    one.is_away = False
    assert one.stores(10) == 200


def test_no_artifact_makes_room_for_one_whose_room_could_not_be_asked_for() -> None:
    """The storage is away when it is asked for room for the second one, and would have had it."""
    records = VersionedRecords()
    one = Replica(records, 1, plan=MAKING)

    def make(id: str, *, is_away: bool) -> dict[str, Any]:
        asked = one.client.request(id, "tools/call", '{"name":"make"}')
        content = '{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}'
        one.world.answer(one.world.take_sent("tools/call"), content)
        one.settle()
        one.is_away = is_away
        one.world.store(one.world.last(Collect).ticket, Collected((CollectedFile(size_bytes=400, sha256="ab" * 32),)))
        one.settle()
        one.is_away = False
        one.wait(1.0)
        answer: dict[str, Any] = one.world.only_message(asked)["result"]
        return answer

    assert "artifact_error" not in make("5", is_away=False).get("_meta", {})
    kept = [key for key in records if key.startswith("artifact/")]
    assert make("6", is_away=True)["_meta"]["artifact_error"] == "away"
    assert [key for key in records if key.startswith("artifact/")] == kept
    assert "artifact_error" not in make("7", is_away=False).get("_meta", {})
    assert len([key for key in records if key.startswith("artifact/")]) == 2
