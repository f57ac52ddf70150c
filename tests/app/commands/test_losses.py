"""The table of what is lost between two eras: of known words only, and what of it each pair of a server and its clients
is told."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from isthmus.app.commands.losses import LOSSES, SERVER_CAPABILITIES, Loss, losses_for_older, losses_of
from isthmus.core.base.revisions import Era

CLIENT_CAPABILITIES = {"roots", "elicitation", "sampling"}
CAPABILITIES = {  # 2025-11-25 and 2026-07-28 schema, ClientCapabilities and ServerCapabilities
    "roots.listChanged", "elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context",
    "tools", "resources", "resources.subscribe", "logging", "tasks", "extensions",
}  # fmt: skip
SERVERS = [frozenset(), frozenset({"tools"}), frozenset({"resources"}), frozenset({"resources", "resources.subscribe"}),
           frozenset({"logging", "tasks"}), frozenset({"extensions"}), frozenset(CAPABILITIES)]  # fmt: skip
OLDER = {
    "rich forms": "elicitation",
    "tools in sampling": "sampling.tools",
    "structured output": "tools",
    "audio": "",
    "link to a resource": "",
}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.feature)
def test_a_loss_is_told_in_known_words(loss: Loss) -> None:
    """Sides, speakers and fates are those that there are, capabilities those of the protocol, the rest sentences."""
    assert msgspec.convert(msgspec.to_builtins(loss), Loss) == loss
    assert not loss.capability or loss.capability in CAPABILITIES
    assert loss.carried.endswith(".")
    assert loss.feature == loss.feature.strip() != ""
    assert loss.from_era != "older", "the older side hears less; it says nothing that the other cannot hear"


def test_each_loss_is_there_once() -> None:
    assert len({loss.feature for loss in LOSSES}) == len(LOSSES)


def test_a_capability_is_a_servers_or_a_clients() -> None:
    roots = {loss.capability.partition(".")[0] for loss in LOSSES} - {""}
    assert roots - CLIENT_CAPABILITIES == SERVER_CAPABILITIES


def test_where_a_loss_comes_from() -> None:
    """What is said by one era and not heard by the other has two different sides, but where a session is lost."""
    alike = [loss.feature for loss in LOSSES if loss.from_era == loss.to_era]
    assert alike == ["lost upstream session"]


@pytest.mark.parametrize("server", list(Era))
@pytest.mark.parametrize("declared", SERVERS, ids=lambda declared: "+".join(sorted(declared)) or "none")
def test_what_clients_of_the_other_era_do_not_get(server: Era, declared: frozenset[str]) -> None:
    """All that one side of the pair says and the other cannot hear, in the order of the table: of what hangs on the
    server only what it declares, of what hangs on clients everything."""
    (client,) = set(Era) - {server}
    expected = []
    for loss in LOSSES:
        speaker, hearer = (server, client) if loss.speaker == "server" else (client, server)
        is_of_server = loss.capability.split(".")[0] in {"tools", "resources", "logging", "tasks", "extensions"}
        if (loss.from_era, loss.to_era) == (speaker.value, hearer.value):
            if not is_of_server or loss.capability in declared:
                expected.append(loss)
    assert losses_of(server, client, declared) == expected


def test_the_two_eras_lose_different_things() -> None:
    """With a server that declares everything, each loss between them is one of the one or of the other."""
    everything = [losses_of(server, client, CAPABILITIES) for server, client in itertools.permutations(Era)]
    features = [loss.feature for losses in everything for loss in losses]
    apart = [loss.feature for loss in LOSSES if {loss.from_era, loss.to_era} == {"handshake", "stateless"}]
    assert sorted(features) == sorted(apart)
    assert all(everything)


@pytest.mark.parametrize("declared", SERVERS, ids=lambda declared: "+".join(sorted(declared)) or "none")
def test_what_clients_of_older_revisions_do_not_get(declared: frozenset[str]) -> None:
    """Of a server without sessions all of that; of one with sessions what any revision may say."""
    stateless = [loss.feature for loss in losses_for_older(Era.STATELESS, declared)]
    assert stateless == [name for name, of in OLDER.items() if of != "tools" or "tools" in declared]
    assert [loss.feature for loss in losses_for_older(Era.HANDSHAKE, declared)] == ["audio", "link to a resource"]
