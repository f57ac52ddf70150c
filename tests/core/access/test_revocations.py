"""Tests of revocations: which credentials of a caller are refused, and which later ones are not."""

from __future__ import annotations

import msgspec
import pytest
from issuer_scenes import AUDIENCES, ISSUER, NOW, Driver, IssuerServer, claims, issuers, sign
from isthmus.core.access.gate import Denied, Found, Gate, GateSettings
from isthmus.core.access.identity import ANONYMOUS, Identity, Peer
from isthmus.core.access.issuer_settings import IssuerSettings
from isthmus.core.access.revocations import Changed, Revocation, Revocations
from isthmus.core.access.static_tokens import StaticToken, digest_of
from isthmus.core.base.errors import LocalProtocolError

PEER = Peer("203.0.113.9", 1000)
OLD, NEW, OTHER = "the old token", "the new token", "another token"
CI, BOB = StaticToken("ci", digest_of(OLD)), StaticToken("bob", digest_of(OTHER))
ALICE = f"jwt:{ISSUER}|alice"


def gate(*tokens: StaticToken, revoked: tuple[Revocation, ...] = (), **settings: object) -> Gate:
    checks = issuers(IssuerSettings(ISSUER))
    driver = Driver(checks, IssuerServer())
    driver.check(sign())  # so that the keys are known
    return Gate(GateSettings(tokens=tokens, **settings), checks, revoked)  # type: ignore[arg-type]


def shows(gate: Gate, token: str, now: float = NOW) -> Found:
    headers = ((b"authorization", f"Bearer {token}".encode()),)
    return gate.identify(headers, PEER, AUDIENCES, now)


def is_let_in(gate: Gate, token: str, now: float = NOW) -> bool:
    found = shows(gate, token, now)
    assert isinstance(found, Identity | Denied)
    if isinstance(found, Denied):
        assert found.status == 401
        assert found.reason.startswith("it was revoked at 2027-01-15T08:")
    return isinstance(found, Identity)


def issued(at: float | None, **changes: object) -> str:
    return sign(claims(iat=at, **changes))


def test_a_static_token_is_refused_until_its_entry_is_another_one() -> None:
    first = gate(CI, BOB)
    assert is_let_in(first, OLD)
    changed = first.revoke("token:ci", NOW)
    assert changed == Changed((Revocation("token:ci", NOW, digest_of(OLD).hex()),))
    assert [is_let_in(first, each) for each in (OLD, OTHER)] == [False, True]
    later = gate(CI, BOB, revoked=changed.saved)
    assert not is_let_in(later, OLD, NOW + 1e6)
    renewed = gate(StaticToken("ci", digest_of(NEW)), revoked=changed.saved)
    assert is_let_in(renewed, NEW)


@pytest.mark.parametrize(("at", "is_in"), [(NOW - 60, False), (NOW, False), (NOW + 1, True), (None, False)])
def test_a_token_of_an_issuer_is_refused_if_it_was_issued_before(at: float | None, *, is_in: bool) -> None:
    """A token of the second of the revocation may be older than it, and one without that claim may be of any time."""
    gates = [gate()]
    assert is_let_in(gates[0], issued(at))
    changed = gates[0].revoke(ALICE, NOW + 0.5)
    gates.append(gate(revoked=changed.saved))
    for each in gates:
        assert is_let_in(each, issued(at)) is is_in
        assert is_let_in(each, issued(at, sub="bob")), "another caller"


def test_a_revocation_asks_about_everybody_again() -> None:
    """Identities are to be established anew, and streams end whatever newer tokens were seen."""
    here = gate(CI, BOB)
    identities = [shows(here, token) for token in (OLD, OTHER, issued(NOW - 1))]
    newer = shows(here, issued(NOW + 5, exp=int(NOW) + 9000))
    before = here.epoch
    for principal in ("token:ci", ALICE):
        here.revoke(principal, NOW)
    assert here.epoch > before
    held = [here.still_holds(each, NOW) for each in (*identities, newer, ANONYMOUS) if isinstance(each, Identity)]
    assert held == [False, True, False, True, True]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ci",
        "token:",
        "token:nobody",
        "uid:1000",
        "proxy:ann",
        "jwt:https://other.example|alice",
        ISSUER,
        f"jwt:{ISSUER}|",
        f"{ALICE}\n",
        f"{ALICE}{'e' * 600}",
    ],
)
def test_who_has_no_token_here_is_not_revoked(name: str) -> None:
    """A user of this machine and of a proxy is recognised with each request: there is nothing to take back."""
    here = gate(CI, unix_peers=True)
    before = here.epoch
    with pytest.raises(
        LocalProtocolError, match=r"expected one of token:ci, jwt:https://idp.example.com/realms/a\|NAME"
    ):
        here.revoke(name, NOW)
    assert here.epoch == before
    assert here.identify((), PEER, (), NOW) == Identity("uid:1000", via="unix")


def test_at_the_most_revocations_the_oldest_is_widened_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound (`REVOCATIONS_MAX`) lets nobody in again."""
    monkeypatch.setattr("isthmus.core.access.revocations.REVOCATIONS_MAX", 2)
    kept: dict[str, Revocation] = {}
    here = Revocations()

    def takes(changed: Changed) -> None:
        kept.update({each.name: each for each in changed.saved})
        for each in changed.forgotten:
            del kept[each.name]

    names = [f"jwt:i|{number}" for number in range(4)]
    for number, name in enumerate(names):
        takes(here.revoke_caller(name, 10.0 * number))
        assert len(here) <= 3
    assert sorted(kept) == ["", *names[2:]]
    for revocations in (here, Revocations(kept.values())):
        for number, name in enumerate([*names, "jwt:i|5"]):
            until = 10.0 * max(number, 1) if number < 4 else 10.0
            for at, is_refused in ((until, True), (until + 1, False), (None, True)):
                found = revocations.find_issued(Identity(name, via="jwt", issued_at=at))
                assert (found is not None) is is_refused, (name, at)


def test_what_another_process_revokes_is_refused_here() -> None:
    first, other = gate(CI, BOB), gate(CI, BOB)
    kept = (*first.revoke("token:ci", NOW).saved, *first.revoke(ALICE, NOW).saved)
    before = other.epoch
    assert other.receive_revoked(kept) and not other.receive_revoked(kept)
    assert other.epoch > before, "streams that are open are asked about again"
    assert [is_let_in(other, each) for each in (OLD, OTHER)] == [False, True]
    assert not is_let_in(other, issued(NOW - 60)) and is_let_in(other, issued(NOW + 1))


def test_hashes_that_are_not_configured_any_more_are_forgotten_at_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes that are configured stay, however many they are."""
    monkeypatch.setattr("isthmus.core.access.revocations.REVOCATIONS_MAX", 1)
    here = Revocations(Revocation("token:a", float(number), f"{number}") for number in range(4))
    changed = here.revoke_tokens("token:b", ["9"], {"0", "9"}, 50.0)
    assert [each.sha256 for each in changed.forgotten] == ["1", "2"]
    assert [bool(here.find_token(sha256)) for sha256 in "01239"] == [True, False, False, True, True]


def test_revocations_are_kept_as_they_are_written() -> None:
    """The names of their members must not change: earlier runs have written them."""
    raw = b'{"principal":"token:ci","at_unix":1.5,"sha256":"00"}'
    assert msgspec.json.encode(msgspec.json.decode(raw, type=Revocation)) == raw


def test_what_another_process_has_revoked_is_refused_here() -> None:
    """A revocation that is known, or older, asks about nobody again."""
    there, here = gate(CI, BOB), gate(CI, BOB)
    identities = [shows(here, token) for token in (OLD, OTHER, issued(NOW - 1))]
    saved = [each for name in ("token:ci", ALICE) for each in there.revoke(name, NOW).saved]
    before = here.epoch
    assert here.receive_revoked(saved)
    assert here.epoch == before + 2
    held = [here.still_holds(each, NOW) for each in identities if isinstance(each, Identity)]
    assert held == [False, True, False]
    assert not is_let_in(here, OLD)
    assert is_let_in(here, issued(NOW + 1))
    older = msgspec.structs.replace(saved[1], at_unix=NOW - 100)
    assert not here.receive_revoked([*saved, older])
    assert here.epoch == before + 2
    assert not is_let_in(here, issued(NOW))


def test_what_other_processes_have_revoked_stays_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process comes to the same as the one that revokes, and lets nobody in again."""
    monkeypatch.setattr("isthmus.core.access.revocations.REVOCATIONS_MAX", 2)
    there, here = Revocations(), Revocations()
    for number in range(5):
        for each in there.revoke_caller(f"jwt:i|{number}", 10.0 * number).saved:
            here.receive(each, ())
        there.revoke_tokens("token:a", [f"{number}"], (), 10.0 * number)
        here.receive(Revocation("token:a", 10.0 * number, f"{number}"), ())
    assert len(here) == len(there) == 6
    for number in range(5):
        until = 10.0 * max(number, 2)
        for at, is_refused in ((until, True), (until + 1, False)):
            found = here.find_issued(Identity(f"jwt:i|{number}", via="jwt", issued_at=at))
            assert (found is not None) is is_refused
        assert (here.find_token(f"{number}") is not None) is (there.find_token(f"{number}") is not None)
