"""Who is subscribed to which resource, what changes, and who must hear of it, and who must not.

A client with sessions subscribes to single resources, one without names them in a subscription (2026-07-28
`subscriptions/listen`). Each change has a number, which a server puts into what it tells.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, Final

from simulated_network import Channel, Network, Wrong
from simulated_streams import OWN

if TYPE_CHECKING:
    from simulated_clients import Client, Owed
    from simulated_servers import Server, Session

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
UPDATED: Final = "notifications/resources/updated"
CHANGES: Final = re.compile(rb'"change": (\d+)')
COUNT: Final = 3
"""Resources of each server."""
DEAFENING: Final = frozenset(
    {"cuts", "crashes", "forgets", "leaves", "never", "rude", "garbage", "cancels", "sleeps", "halves"}
)
"""Faults by which a change may be missed, or a subscription be lost."""
SURE_S: Final = 10.0
"""After this long a message has arrived, and after `SLOW_S` where each takes seconds."""
SLOW_S: Final = 60.0


def uri_of(server: str, number: int) -> str:
    return f"res://{server}/{number}"


class Newsroom:
    """What a server tells of its resources."""

    def __init__(self, server: Server) -> None:
        self.server, self.network = server, server.network
        self.listens: dict[tuple[int, Any], tuple[Channel, frozenset[str]]] = {}

    def answer(self, channel: Channel, session: Session, id: Any, method: str, params: dict[str, Any]) -> None:
        server = self.server
        if method == "subscriptions/listen" and server.is_modern:
            wanted = params["notifications"].get("resourceSubscriptions", [])
            self.listens[channel.number, id] = channel, frozenset(wanted)
            said = {"notifications": {"resourceSubscriptions": wanted}, "_meta": {SUBSCRIPTION: id}}
            server.say(channel, method="notifications/subscriptions/acknowledged", params=said)
        elif method == "resources/subscribe" and not server.is_modern:
            session.subscribed.add(params["uri"])
            server.reply(channel, session, id, {})
        elif method == "resources/unsubscribe" and not server.is_modern:
            session.subscribed.discard(params["uri"])
            server.reply(channel, session, id, {})
        else:
            server.reply(channel, session, id, error=-32601)

    def cancel(self, channel: Channel, id: Any) -> None:
        self.listens.pop((channel.number, id), None)

    def receive_end(self, channel: Channel) -> None:
        for key in [key for key in self.listens if key[0] == channel.number]:
            del self.listens[key]

    def publish(self, uri: str, change: int) -> None:
        """A resource is another now."""
        server, said = self.server, {"uri": uri, "_meta": {"change": change}}
        for (_, id), (channel, uris) in list(self.listens.items()):
            if uri in uris:
                meta = {**said["_meta"], SUBSCRIPTION: id}
                server.say(channel, method=UPDATED, params={**said, "_meta": meta})
        for channel, session in list(server.processes.items()):
            if uri in session.subscribed and self.network.channels.get(channel.number) is channel:
                server.say(channel, method=UPDATED, params=said)
        for session in list(server.sessions.values()):
            if uri in session.subscribed and OWN in session.streams:
                server.put(session.streams[OWN], method=UPDATED, params=said)


class Interest:
    """One client's in one resource, from when that was confirmed until it was given up.

    Attributes:
        heard: the changes that it was told of.
        channel: the one that it ends with, which the proxy may know to be over before the client does.
    """

    def __init__(self, client: Client, uri: str, since: float, channel: Channel | None = None) -> None:
        self.client, self.uri, self.since, self.channel = client, uri, since, channel
        self.until: float | None = None
        self.heard: set[int] = set()

    def covers(self, at: float) -> bool:
        """Whether what changed then has reached the client before it gave this up."""
        slow = {"far", "stalls"} & self.client.network.faults
        return self.since < at and (self.until is None or at < self.until - (SLOW_S if slow else SURE_S))


class Paper:
    """All changes, and all interests that anybody had."""

    def __init__(self) -> None:
        self.changes: list[tuple[float, str]] = []
        self.interests: list[Interest] = []

    def publish(self, room: Newsroom, rng: random.Random) -> None:
        uri = uri_of(room.server.name, rng.randrange(COUNT))
        self.changes.append((room.network.now, uri))
        room.publish(uri, len(self.changes) - 1)

    def check(self, *, before: float) -> int:
        """Each who was subscribed has heard of each change. How often that was so."""
        found = 0
        overtaken = set() if not self.interests else _overtaken(self.interests[0].client.network)
        for interest in self.interests:
            for change, (at, uri) in enumerate(self.changes):
                if uri != interest.uri or at > before or not interest.covers(at):
                    continue
                found += 1
                if change in overtaken:
                    continue  # it was on its way when another stream took the place of its own
                if change not in interest.heard and interest.client.hears_news:
                    raise Wrong(
                        f"{interest.client.mark} was subscribed to {uri} since {interest.since:.3f}, and did not hear"
                        f" of its change {change} at {at:.3f}, but of {sorted(interest.heard)}"
                    )
        return found


def _overtaken(network: Network) -> set[int]:
    """What a server has told on a stream that the proxy had closed before it came."""
    return {int(found) for message in network.overtaken for found in CHANGES.findall(message)}


class News:
    """What one client does with subscriptions.

    Attributes:
        mine: of clients with sessions, by URI, what it is subscribed to; None while that is not confirmed.
        asked: those that it has ever asked for in this session.
        leaving: those that it has asked not to be told of, without an answer yet.
        listens: of clients without, the URIs of each subscription by its id, and its interests once it is confirmed.
    """

    def __init__(self, client: Client, paper: Paper) -> None:
        self.client, self.network, self.paper = client, client.network, paper
        self.mine: dict[str, Interest | None] = {}
        self.asked: set[str] = set()
        self.leaving: set[str] = set()
        self.listens: dict[int, tuple[frozenset[str], list[Interest]]] = {}

    def act(self, rng: random.Random) -> bool:
        client = self.client
        uris = [uri_of(client.server, number) for number in range(COUNT)]
        if client.is_modern:
            if self.listens and (len(self.listens) > 2 or rng.random() < 0.3):
                self.end_listen(rng.choice(list(self.listens)))
            else:
                self._listen(frozenset(rng.sample(uris, rng.randint(1, 2))))
            return True
        if "resources" not in client.greeting:
            return False
        uri = rng.choice(uris)
        if uri not in self.mine:
            self._subscribe(uri)
        elif self.mine[uri] is not None and rng.random() < 0.5:
            self._unsubscribe(uri)
        return True

    def lose(self) -> None:
        """The session is over, with all that was subscribed in it."""
        for interest in (*self.mine.values(), *(one for _, found in self.listens.values() for one in found)):
            self._end(interest)
        self.mine.clear()
        self.asked.clear()
        self.leaving.clear()
        self.listens.clear()

    def stop(self) -> None:
        for number in list(self.listens):
            self.end_listen(number)

    def _begin(self, uri: str, channel: Channel | None = None) -> Interest:
        interest = Interest(self.client, uri, self.network.now, channel)
        self.paper.interests.append(interest)
        return interest

    def _end(self, interest: Interest | None) -> None:
        if interest is not None and interest.until is None:
            interest.until = self.network.now

    # --- With sessions ----------------------------------------------------------------------------------------------

    def _subscribe(self, uri: str) -> None:
        self.mine[uri] = None
        self.asked.add(uri)
        may_overtake = uri in self.leaving  # it is the last for who comes later

        def settle(_: Owed, frame: dict[str, Any]) -> None:
            if "error" in frame:
                self.mine.pop(uri, None)
                self.client.outcomes["news refused"] += 1
            else:
                self.mine[uri] = Interest(self.client, uri, self.network.now) if may_overtake else self._begin(uri)
                self.client.outcomes["news subscribed"] += 1

        self.client.request("resources/subscribe", {"uri": uri}, settle=settle, lost=lambda: self.mine.pop(uri, None))

    def _unsubscribe(self, uri: str) -> None:
        self._end(self.mine.pop(uri))
        self.leaving.add(uri)

        def over(*_: Any) -> None:
            self.leaving.discard(uri)

        self.client.request("resources/unsubscribe", {"uri": uri}, settle=over, lost=over)

    # --- Without ----------------------------------------------------------------------------------------------------

    def _listen(self, uris: frozenset[str]) -> None:
        params = {"notifications": {"resourceSubscriptions": sorted(uris)}}

        def over(*_: Any) -> None:
            self._forget(number)

        number = self.client.request("subscriptions/listen", params, settle=over, lost=over)
        self.client.owed[number].lasts = True
        self.listens[number] = uris, []

    def end_listen(self, number: int) -> None:
        """Over HTTP its reply is closed; on a pipe it is cancelled."""
        self._forget(number)
        if number in self.client.owed:
            self.client.cancel(number)

    def _forget(self, number: int) -> None:
        for interest in self.listens.pop(number, (frozenset(), []))[1]:
            self._end(interest)

    # --- What comes -------------------------------------------------------------------------------------------------

    def receive(self, channel: Channel, frame: dict[str, Any]) -> None:
        """A notification that may be of a change."""
        params = frame.get("params", {})
        meta = params.get("_meta", {})
        if frame["method"] == "notifications/subscriptions/acknowledged":
            self._receive_acknowledged(channel, params, meta)
        elif frame["method"] == UPDATED:
            change = meta.get("change")
            if change is not None and self.paper.changes[change][1] != params["uri"]:
                raise Wrong(f"{self.client.mark} was told that change {change} is of {params['uri']}")
            self.client.outcomes["news"] += 1
            if self.client.is_modern:
                self._receive_listened(channel, params["uri"], meta.get(SUBSCRIPTION), change)
            else:
                self._receive_updated(params["uri"], change)

    def _receive_acknowledged(self, channel: Channel, params: dict[str, Any], meta: dict[str, Any]) -> None:
        found = self.listens.get(meta.get(SUBSCRIPTION, -1))
        if found is None:
            return  # it was given up meanwhile
        uris, interests = found
        granted = frozenset(params["notifications"].get("resourceSubscriptions", ()))
        if interests or not granted <= uris:
            raise Wrong(f"{self.client.mark} listens to {sorted(uris)}, and was granted {sorted(granted)}")
        interests += [self._begin(uri, channel) for uri in sorted(granted)]
        self.client.outcomes["news subscribed"] += 1

    def _receive_listened(self, channel: Channel, uri: str, number: int | None, change: int | None) -> None:
        if number not in self.listens:
            if number is None or number > self.client.last:
                raise Wrong(f"{self.client.mark} has no subscription {number!r}, and was told of {uri}")
            return  # it was given up meanwhile
        uris, interests = self.listens[number]
        if uri not in uris or not interests:
            raise Wrong(f"{self.client.mark} listens to {sorted(uris)}, and was told of {uri}")
        owed = self.client.owed.get(number)
        if owed is not None and owed.channel is not channel:
            raise Wrong(f"{self.client.mark} was told of {uri} on another channel than it listens on")
        self._hear(interests, uri, change)

    def _receive_updated(self, uri: str, change: int | None) -> None:
        if uri not in self.asked and self._is_of_others(uri):
            raise Wrong(f"{self.client.mark} is not subscribed to {uri}, and was told of it: {sorted(self.asked)}")
        self._hear([one for one in self.mine.values() if one is not None], uri, change)

    def _is_of_others(self, uri: str) -> bool:
        """Whether somebody else surely is subscribed to it. What nobody is, a shared server's last subscriber has just
        given up, and all who are subscribed to anything may hear of it."""
        now = self.network.now
        return any(
            one.uri == uri and one.client is not self.client and one.until is None and one.since < now - SURE_S
            for one in self.paper.interests
            if one.channel is None or one.channel.is_open
        )

    def _hear(self, interests: list[Interest], uri: str, change: int | None) -> None:
        for interest in interests:
            if interest.uri == uri and change is not None:
                interest.heard.add(change)
