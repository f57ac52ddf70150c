"""Tests of the table of losses between eras: its vocabulary, and the entries for each pair of a server and its
clients."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from each_row import each_row
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


@each_row("loss", LOSSES)
def test_losses_use_a_fixed_vocabulary(loss: Loss) -> None:
    """Sides, speakers and fates are existing ones, capabilities are the protocol's, and the rest are sentences."""
    assert msgspec.convert(msgspec.to_builtins(loss), Loss) == loss
    assert not loss.capability or loss.capability in CAPABILITIES
    assert loss.carried.endswith(".")
    assert loss.feature == loss.feature.strip() != ""
    assert loss.from_era != "older", "the older side receives less; it sends nothing that the other cannot receive"


def test_each_loss_is_there_once() -> None:
    assert len({loss.feature for loss in LOSSES}) == len(LOSSES)


def test_a_capability_is_a_servers_or_a_clients() -> None:
    roots = {loss.capability.partition(".")[0] for loss in LOSSES} - {""}
    assert roots - CLIENT_CAPABILITIES == SERVER_CAPABILITIES


def test_where_a_loss_comes_from() -> None:
    """A feature that only one era can send has two different sides, except where a session is lost."""
    alike = [loss.feature for loss in LOSSES if loss.from_era == loss.to_era]
    assert alike == ["lost upstream session"]


@pytest.mark.parametrize("server", list(Era))
@pytest.mark.parametrize("declared", SERVERS, ids=lambda declared: "+".join(sorted(declared)) or "none")
def test_what_clients_of_the_other_era_do_not_get(server: Era, declared: frozenset[str]) -> None:
    """The entries are all features that one side sends and the other cannot receive, in the order of the table:
    those that depend on the server only if it declares them, those that depend on clients always."""
    (client,) = set(Era) - {server}
    expected = []
    for loss in LOSSES:
        speaker, listener = (server, client) if loss.speaker == "server" else (client, server)
        is_of_server = loss.capability.split(".")[0] in {"tools", "resources", "logging", "tasks", "extensions"}
        if (loss.from_era, loss.to_era) == (speaker.value, listener.value):
            if not is_of_server or loss.capability in declared:
                expected.append(loss)
    assert losses_of(server, client, declared) == expected


def test_the_two_eras_lose_different_things() -> None:
    """Each loss between the eras belongs to exactly one of them, for a server that declares everything."""
    everything = [losses_of(server, client, CAPABILITIES) for server, client in itertools.permutations(Era)]
    features = [loss.feature for losses in everything for loss in losses]
    apart = [loss.feature for loss in LOSSES if {loss.from_era, loss.to_era} == {"handshake", "stateless"}]
    assert sorted(features) == sorted(apart)
    assert all(everything)


@pytest.mark.parametrize("declared", SERVERS, ids=lambda declared: "+".join(sorted(declared)) or "none")
def test_what_clients_of_older_revisions_do_not_get(declared: frozenset[str]) -> None:
    """Clients of a stateless server get all entries; those of a server with sessions get the entries of any
    revision."""
    stateless = [loss.feature for loss in losses_for_older(Era.STATELESS, declared)]
    assert stateless == [name for name, of in OLDER.items() if of != "tools" or "tools" in declared]
    assert [loss.feature for loss in losses_for_older(Era.HANDSHAKE, declared)] == ["audio", "link to a resource"]
