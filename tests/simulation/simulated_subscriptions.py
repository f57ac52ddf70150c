"""Subscriptions to resources, changes of them, and the check of who is notified and who is not.

A client with a session subscribes to single resources, a client of the stateless era lists them in a subscription
(2026-07-28 `subscriptions/listen`). Each change has a number, which the server puts into its notifications.
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
CANCELLED: Final = "notifications/cancelled"
CHANGES: Final = re.compile(rb'"change": (\d+)')
COUNT: Final = 3
"""The number of resources of each server."""
LOSSY_FAULTS: Final = frozenset(
    {"cuts", "crashes", "forgets", "leaves", "never", "rude", "garbage", "cancels", "sleeps", "halves"}
)
"""Faults by which a notification may be missed, or a subscription be lost."""
SURE_S: Final = 10.0
"""The time after which a message has arrived; `SLOW_S` where each one takes seconds."""
SLOW_S: Final = 60.0


def uri_of(server: str, number: int) -> str:
    return f"res://{server}/{number}"


class Resources:
    """The resources of a server, and its notifications of changes."""

    def __init__(self, server: Server) -> None:
        self.server, self.network = server, server.network
        self.listens: dict[tuple[int, Any], tuple[Channel, frozenset[str]]] = {}

    def answer(self, channel: Channel, session: Session, id: Any, method: str, params: dict[str, Any]) -> None:
        server = self.server
        if method == "subscriptions/listen" and server.is_modern:
            wanted = params["notifications"].get("resourceSubscriptions", [])
            self.listens[channel.number, id] = channel, frozenset(wanted)
            acknowledged = {"notifications": {"resourceSubscriptions": wanted}, "_meta": {SUBSCRIPTION: id}}
            server.say(channel, method="notifications/subscriptions/acknowledged", params=acknowledged)
        elif method == "resources/subscribe" and not server.is_modern and server.has_way:
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

    def _end_listen(self, rng: random.Random) -> None:
        """Ends a subscription: with a result, with an error, or without a response."""
        number, id = rng.choice(list(self.listens))
        channel, _ = self.listens.pop((number, id))
        how = rng.choice(("result", "error", "nothing"))
        if how == "result":
            result = {"resultType": "complete", "_meta": {SUBSCRIPTION: id}}
            self.server.answer_post(channel, id=id, result=result)
        elif how == "error":
            self.server.answer_post(channel, id=id, error={"code": -32603, "message": "no"})
        elif self.server.is_http:
            self.server.answer_post(channel)
        if how != "error" and not self.server.is_http:
            self.server.say(channel, method=CANCELLED, params={"requestId": id})

    def publish(self, uri: str, change: int, rng: random.Random) -> None:
        """Notifies all subscribers of a change."""
        server, params = self.server, {"uri": uri, "_meta": {"change": change}}
        if self.listens and self.network.strikes("forgets", 0.3, rng):
            self._end_listen(rng)
        for (_, id), (channel, uris) in list(self.listens.items()):
            if uri in uris:
                meta = {**params["_meta"], SUBSCRIPTION: id}
                server.say(channel, method=UPDATED, params={**params, "_meta": meta})
        for channel, session in list(server.processes.items()):
            if uri in session.subscribed and self.network.channels.get(channel.number) is channel:
                server.say(channel, method=UPDATED, params=params)
        for session in list(server.sessions.values()):
            if uri in session.subscribed and OWN in session.streams:
                server.put(session.streams[OWN], method=UPDATED, params=params)


class Interest:
    """The subscription of one client to one resource, from its confirmation to its end.

    Attributes:
        received: the changes of which the client was notified.
        channel: the channel that it ends with. The proxy may know of that end before the client does.
    """

    def __init__(self, client: Client, uri: str, since: float, channel: Channel | None = None) -> None:
        self.client, self.uri, self.since, self.channel = client, uri, since, channel
        self.until: float | None = None
        self.received: set[int] = set()

    def covers(self, at: float) -> bool:
        """True if a change at that time has reached the client before it unsubscribed."""
        slow = {"far", "stalls"} & self.client.network.faults
        return self.since < at and (self.until is None or at < self.until - (SLOW_S if slow else SURE_S))


class ChangeLog:
    """All changes, and all subscriptions that ever were."""

    def __init__(self) -> None:
        self.changes: list[tuple[float, str]] = []
        self.interests: list[Interest] = []

    def publish(self, resources: Resources, rng: random.Random) -> None:
        uri = uri_of(resources.server.name, rng.randrange(COUNT))
        self.changes.append((resources.network.now, uri))
        resources.publish(uri, len(self.changes) - 1, rng)

    def check(self, *, before: float) -> int:
        """Checks that each subscriber was notified of each change. Returns the number of notifications checked."""
        found = 0
        overtaken = set() if not self.interests else _overtaken(self.interests[0].client.network)
        for interest in self.interests:
            for change, (at, uri) in enumerate(self.changes):
                if uri != interest.uri or at > before or not interest.covers(at):
                    continue
                found += 1
                if change in overtaken:
                    continue  # it was in flight when a newer stream of the server replaced its own
                if change not in interest.received and interest.client.gets_updates:
                    raise Wrong(
                        f"{interest.client.mark} was subscribed to {uri} since {interest.since:.3f}, and did not hear"
                        f" of its change {change} at {at:.3f}, but of {sorted(interest.received)}"
                    )
        return found


def _overtaken(network: Network) -> set[int]:
    """Returns the changes that a server sent on a stream that the proxy had already closed."""
    return {int(found) for message in network.overtaken for found in CHANGES.findall(message)}


class Subscriptions:
    """The subscriptions of one client.

    Attributes:
        mine: for clients with sessions, the subscription by URI; None until it is confirmed.
        asked: the URIs that it has ever subscribed to in this session.
        leaving: the URIs that it has unsubscribed from, without an answer yet.
        listens: for clients of the stateless era, the URIs of each subscription by its id, and its interests once it is
            confirmed.
    """

    def __init__(self, client: Client, change_log: ChangeLog) -> None:
        self.client, self.network, self.change_log = client, client.network, change_log
        self.mine: dict[str, Interest | None] = {}
        self.asked: set[str] = set()
        self.leaving: set[str] = set()
        self.listens: dict[int, tuple[frozenset[str], list[Interest]]] = {}

    def act(self, rng: random.Random) -> bool:
        client = self.client
        uris = [uri_of(server, number) for server in client.places for number in range(COUNT)]
        if client.is_modern:
            if self.listens and (len(self.listens) > 2 or rng.random() < 0.3):
                self.end_listen(rng.choice(list(self.listens)))
            else:
                self._listen(frozenset(rng.sample(uris, rng.randint(1, 2))))
            return True
        if "resources" not in client.server_capabilities:
            return False
        uri = rng.choice(uris)
        if uri not in self.mine:
            self._subscribe(uri)
        elif self.mine[uri] is not None and rng.random() < 0.5:
            self._unsubscribe(uri)
        return True

    def _shown(self, uri: str) -> str:
        """Returns a URI of a server as the client sees it."""
        return f"{uri.split('/')[2]}+{uri}" if self.client.members else uri

    def _raw(self, uri: str) -> str:
        """Returns the server's own form of a URI that the client sees."""
        if not self.client.members:
            return uri
        server, _, raw = uri.partition("+")
        if raw.split("/")[2:3] != [server]:
            raise Wrong(f"{self.client.mark} was told of {uri}")
        return raw

    def lose(self) -> None:
        """Ends the session's subscriptions."""
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
        self.change_log.interests.append(interest)
        return interest

    def _end(self, interest: Interest | None) -> None:
        if interest is not None and interest.until is None:
            interest.until = self.network.now

    # --- Handshake era ----------------------------------------------------------------------------------------------

    def _subscribe(self, uri: str) -> None:
        self.mine[uri] = None
        self.asked.add(uri)
        may_overtake = uri in self.leaving  # the server may carry out the earlier unsubscription last

        def settle(_: Owed, frame: dict[str, Any]) -> None:
            if "error" in frame:
                self.mine.pop(uri, None)
                # A profile declares subscriptions for all servers.
                is_undeclared = self.client.members and frame["error"]["code"] == -32601
                self.client.outcomes["news undeclared" if is_undeclared else "news refused"] += 1
            else:
                self.mine[uri] = Interest(self.client, uri, self.network.now) if may_overtake else self._begin(uri)
                self.client.outcomes["news subscribed"] += 1

        self.client.request(
            "resources/subscribe", {"uri": self._shown(uri)}, settle=settle, lost=lambda: self.mine.pop(uri, None)
        )

    def _unsubscribe(self, uri: str) -> None:
        self._end(self.mine.pop(uri))
        self.leaving.add(uri)

        def over(*_: Any) -> None:
            self.leaving.discard(uri)

        self.client.request("resources/unsubscribe", {"uri": self._shown(uri)}, settle=over, lost=over)

    # --- Stateless era ----------------------------------------------------------------------------------------------

    def _listen(self, uris: frozenset[str]) -> None:
        params = {"notifications": {"resourceSubscriptions": sorted(map(self._shown, uris))}}

        def settle(_: Owed, frame: dict[str, Any]) -> None:
            if "result" in frame:
                if frame["result"]["_meta"][SUBSCRIPTION] != number:
                    raise Wrong(f"{self.client.mark} was told of the end of {frame['result']}, not of {number}")
                self.client.outcomes["news ended"] += 1
            self._forget(number)

        def lost() -> None:
            self._forget(number)

        number = self.client.request("subscriptions/listen", params, settle=settle, lost=lost)
        self.client.owed[number].lasts = True
        self.listens[number] = uris, []

    def is_live(self, number: int) -> bool:
        """True if a subscription is confirmed: it may end without a response."""
        return number in self.listens and bool(self.listens[number][1])

    def end_listen(self, number: int) -> None:
        """Ends a subscription: over HTTP by closing its reply, on a pipe by cancelling it."""
        self._forget(number)
        if number in self.client.owed:
            self.client.cancel(number)

    def _forget(self, number: int) -> None:
        for interest in self.listens.pop(number, (frozenset(), []))[1]:
            self._end(interest)

    # --- Notifications ----------------------------------------------------------------------------------------------

    def receive(self, channel: Channel, frame: dict[str, Any]) -> None:
        """Takes a notification, which may be about a change."""
        params = frame.get("params", {})
        meta = params.get("_meta", {})
        if frame["method"] == "notifications/subscriptions/acknowledged":
            self._receive_acknowledged(channel, params, meta)
        elif frame["method"] == CANCELLED and self.is_live(params["requestId"]):
            self.client.drop(params["requestId"])
            self._forget(params["requestId"])
        elif frame["method"] == UPDATED:
            change, uri = meta.get("change"), self._raw(params["uri"])
            if change is not None and self.change_log.changes[change][1] != uri:
                raise Wrong(f"{self.client.mark} was told that change {change} is of {uri}")
            self.client.outcomes["news"] += 1
            if self.client.is_modern:
                self._receive_listened(channel, uri, meta.get(SUBSCRIPTION), change)
            else:
                self._receive_updated(uri, change)

    def _receive_acknowledged(self, channel: Channel, params: dict[str, Any], meta: dict[str, Any]) -> None:
        found = self.listens.get(meta.get(SUBSCRIPTION, -1))
        if found is None:
            return  # the client has given it up meanwhile
        uris, interests = found
        granted = frozenset(map(self._raw, params["notifications"].get("resourceSubscriptions", ())))
        if interests or not granted <= uris:
            raise Wrong(f"{self.client.mark} listens to {sorted(uris)}, and was granted {sorted(granted)}")
        interests += [self._begin(uri, channel) for uri in sorted(granted)]
        self.client.outcomes["news subscribed"] += 1

    def _receive_listened(self, channel: Channel, uri: str, number: int | None, change: int | None) -> None:
        if number not in self.listens:
            if number is None or number > self.client.last:
                raise Wrong(f"{self.client.mark} has no subscription {number!r}, and was told of {uri}")
            return  # the client has given it up meanwhile
        uris, interests = self.listens[number]
        if uri not in uris or not interests:
            raise Wrong(f"{self.client.mark} listens to {sorted(uris)}, and was told of {uri}")
        owed = self.client.owed.get(number)
        if owed is not None and owed.channel is not channel:
            raise Wrong(f"{self.client.mark} was told of {uri} on another channel than it listens on")
        self._note_change(interests, uri, change)

    def _receive_updated(self, uri: str, change: int | None) -> None:
        if uri not in self.asked and self._is_of_others(uri):
            raise Wrong(f"{self.client.mark} is not subscribed to {uri}, and was told of it: {sorted(self.asked)}")
        self._note_change([one for one in self.mine.values() if one is not None], uri, change)

    def _is_of_others(self, uri: str) -> bool:
        """True if another client is surely subscribed to the resource. If nobody is, a shared server's last subscriber
        has just unsubscribed, and every client with a subscription may be notified."""
        now = self.network.now
        return any(
            one.uri == uri and one.client is not self.client and one.until is None and one.since < now - SURE_S
            for one in self.change_log.interests
            if one.channel is None or one.channel.is_open
        )

    def _note_change(self, interests: list[Interest], uri: str, change: int | None) -> None:
        for interest in interests:
            if interest.uri == uri and change is not None:
                interest.received.add(change)
