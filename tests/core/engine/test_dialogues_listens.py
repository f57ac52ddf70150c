"""Dialogues of clients of the stateless era about what has changed, with servers of either era."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import META, Client, Request, Server
from expected_values import Containing
from isthmus.core import Cause, End, Era, Kind, Limits, NameFilter, ServerPlan, Sharing

CHANGES = {"listChanged": True}
ABLE = {"tools": CHANGES, "prompts": CHANGES, "logging": {}, "resources": CHANGES | {"subscribe": True}}
A, B, C = {"uri": "a:1"}, {"uri": "a:2"}, {"uri": "a:3"}
TOOLS, PROMPTS, RESOURCES = ({f"{kind}ListChanged": True} for kind in ("tools", "prompts", "resources"))
CHANGED, UPDATED = "tools/list_changed", "resources/updated"
SUBSCRIBE, UNSUBSCRIBE, LISTEN = "resources/subscribe", "resources/unsubscribe", "subscriptions/listen"
HIDING = {"tools": NameFilter(exclude=("hidden",))}  # a filter keeps subscriptions of clients from the server
UPS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP], ids=["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])


def meeting(
    down: str = "http",
    up: Kind = Kind.PIPE,
    era: Era = Era.HANDSHAKE,
    *,
    able: Any = ABLE,
    limits: Limits | None = None,
    **plan: Any,
) -> tuple[Dialogue, Server, Client]:
    play = Dialogue(ServerPlan(id="files", kind=up, era=era, **plan), limits=limits)
    alice = play.client("alice", down, era=Era.STATELESS)
    alice.meets(play.server, able=able, **({} if era is Era.STATELESS else {"listens": True}))
    return play, play.server, alice


def resources(*named: dict[str, str]) -> dict[str, Any]:
    return {"resourceSubscriptions": [each["uri"] for each in named]}


def listens(client: Client, wanted: dict[str, Any]) -> Request:
    return client.asks(LISTEN, {"notifications": wanted})


def subscribed(client: Client, files: Server, *named: dict[str, str]) -> Request:
    """A client listens for resources, which the server has not been asked for yet; it grants them."""
    listen = listens(client, resources(*named))
    for asked in [files.is_asked(SUBSCRIBE, each) for each in named]:
        files.answers(asked)
    client.is_granted(listen, resources(*named))
    return listen


def asked_anew(play: Dialogue, wanted: dict[str, Any]) -> Request:
    """The proxy's own `subscriptions/listen` comes some moments after a change."""
    play.waits(0.05)
    return play.server.is_asked(LISTEN, {"notifications": wanted})


def live(play: Dialogue, client: Client, wanted: dict[str, Any], all_wanted: dict[str, Any] | None = None) -> Request:
    """A client listens for what the server grants."""
    old, listen = getattr(play.server, "listen", None), listens(client, wanted)
    play.server.grants(asked_anew(play, all_wanted or wanted))
    if old is not None:
        play.server.is_cancelled(old)
    client.is_granted(listen, wanted)
    return listen


# --- With servers that have sessions ----------------------------------------------------------------------------------


@DOWNS
@pytest.mark.parametrize("is_live", [False, True], ids=["opening", "live"])
def test_a_proxy_that_stops_ends_each_subscription_with_its_result(down: str, is_live: bool) -> None:
    """A pipe also gets its cancellation."""
    play, files, alice = meeting(down)
    listen = subscribed(alice, files, A) if is_live else listens(alice, resources(A))
    if not is_live:
        files.is_asked(SUBSCRIBE, A)
    play.stops()
    meta = {META + "subscriptionId": listen.id, META + "serverInfo": {"name": "files", "version": "1"}}
    alice.is_answered(listen, {"resultType": "complete", "_meta": meta})
    if down == "pipe":
        alice.is_cancelled(listen)
        alice.is_closed()
    files.is_closed()
    assert play.engine.session_count == 0


@UPS
@DOWNS
@pytest.mark.parametrize("id", [1, "1", 1.0])
def test_the_confirmation_comes_first_and_each_notification_has_the_subscription_id(
    up: Kind, down: str, id: Any
) -> None:
    """Changes before the confirmation wait for it. The id keeps its type. Other changes are dropped, as are those that
    come without a subscription."""
    _, files, alice = meeting(down, up)
    for _ in range(100):
        files.notifies(CHANGED)
        files.notifies(UPDATED, A)
    listen = alice.asks(LISTEN, {"notifications": TOOLS | resources(A)}, id=id)
    asked = files.is_asked(SUBSCRIBE, A)
    for method, params in ((UPDATED, A), (CHANGED, None), (CHANGED, None), ("prompts/list_changed", None)):
        files.notifies(method, params)
    files.answers(asked)
    alice.is_granted(listen, TOOLS | resources(A))
    alice.is_told(listen, UPDATED, A)
    alice.is_told(listen, CHANGED)
    files.notifies(UPDATED, {"uri": "a:1/c"})
    alice.is_told(listen, UPDATED, {"uri": "a:1/c"})
    files.notifies("resources/list_changed")
    files.notifies(UPDATED, {"uri": "x:y"})


@pytest.mark.parametrize("wanted", [None, 5, [], {"toolsListChanged": 1}, {"resourceSubscriptions": [5]}])
def test_a_subscription_that_cannot_be_read_is_refused(wanted: Any) -> None:
    play, _, alice = meeting()
    alice.is_answered(listens(alice, wanted), error=-32602)
    play.waits(10)


@UPS
def test_changes_that_the_server_does_not_notify_of_are_not_confirmed(up: Kind) -> None:
    """Flags that the server does not declare, and resources that it refuses to subscribe to, are left out."""
    _, files, alice = meeting(up=up, able={"tools": CHANGES, "resources": {"subscribe": True}})
    listen = listens(alice, TOOLS | PROMPTS | RESOURCES | resources(A, B))
    good, bad = files.is_asked(SUBSCRIBE, A), files.is_asked(SUBSCRIBE, B)
    files.answers(good)
    files.answers(bad, error=-32602)
    alice.is_granted(listen, TOOLS | resources(A))
    for method in ("elicitation/complete", "vendor", "message"):
        files.notifies(method, {"elicitationId": "x", "level": "error", "data": 1})
    files.notifies(CHANGED)
    alice.is_told(listen, CHANGED)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_server_that_takes_too_long_to_confirm_is_not_waited_for(is_lost: bool) -> None:
    """The confirmation lists what is confirmed by the deadline; a later answer of the server adds nothing."""
    play, files, alice = meeting(limits=Limits(listen_ack_s=10.0))
    listen = listens(alice, TOOLS | resources(A))
    asked = files.is_asked(SUBSCRIBE, A)
    if is_lost:
        files.dies()
        files.starts(able=ABLE)
        asked = files.is_asked(SUBSCRIBE, A)
    play.waits(9.9)
    play.waits(0.1)
    alice.is_granted(listen, TOOLS)
    files.answers(asked)
    files.notifies(UPDATED, A)


@UPS
@DOWNS
def test_a_resource_is_subscribed_once_for_all_subscriptions(up: Kind, down: str) -> None:
    """Each gets updates under its own id. The upstream subscription ends with the last of them."""
    _, files, alice = meeting(down, up)
    first = subscribed(alice, files, A)
    second = listens(alice, resources(A, A))
    alice.is_granted(second, resources(A))
    files.notifies(UPDATED, A)
    alice.is_told(first, UPDATED, A)
    alice.is_told(second, UPDATED, A)
    alice.cancels(first)
    files.notifies(UPDATED, A)
    alice.is_told(second, UPDATED, A)
    alice.cancels(second)
    files.answers(files.is_asked(UNSUBSCRIBE, A))
    files.notifies(UPDATED, A)
    files.notifies(CHANGED)


@UPS
def test_no_other_principal_is_notified(up: Kind) -> None:
    """A subscription belongs to its principal: notifications of another principal's session do not reach it."""
    play, files, alice = meeting(up=up)
    hers = subscribed(alice, files, A)
    source = files.stream if up is Kind.HTTP else files.channel
    bob = play.client("bob", "http", era=Era.STATELESS, principal="bob")
    bob.meets(files, able=ABLE, session="S2", listens=True)
    subscribed(bob, files, A)
    files.notifies(UPDATED, A, on=source)
    alice.is_told(hers, UPDATED, A)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_server_that_is_back_is_subscribed_to_again(is_cancelled: bool) -> None:
    """The subscription comes before anything else. The client gets one notification for each confirmed part.
    A subscription that was cancelled is not made again."""
    _, files, alice = meeting()
    wanted = TOOLS | PROMPTS | RESOURCES | resources(A)
    listen = listens(alice, wanted)
    files.answers(files.is_asked(SUBSCRIBE, A))
    alice.is_granted(listen, wanted)
    if is_cancelled:
        dropped = subscribed(alice, files, B)
        alice.cancels(dropped)
        files.answers(files.is_asked(UNSUBSCRIBE, B))
    files.dies()
    files.is_started()
    alice.asks("tools/list")
    files.connects()
    files.is_greeted(able=ABLE)
    files.answers(files.is_asked(SUBSCRIBE, A))
    files.is_asked("tools/list")
    for method in (CHANGED, "prompts/list_changed", "resources/list_changed"):
        alice.is_told(listen, method)
    alice.is_told(listen, UPDATED, A)
    files.notifies(CHANGED)
    alice.is_told(listen, CHANGED)


def test_a_subscription_that_finds_its_session_forgotten_starts_a_new_one() -> None:
    _, files, alice = meeting(up=Kind.HTTP)
    listen = listens(alice, resources(A))
    files.refuses(files.is_asked(SUBSCRIBE, A), 404)
    files.is_closed(files.stream)
    files.starts(able=ABLE, session="S2", listens=True)
    again = files.is_asked(SUBSCRIBE, A)
    assert again.post is not None
    assert again.post.session == "S2"
    files.answers(again)
    alice.is_granted(listen, resources(A))


@pytest.mark.parametrize("how", ["granted", "refused", "cancelled"])
def test_a_subscription_that_the_lost_server_did_not_answer_is_up_to_the_next(how: str) -> None:
    """The confirmation comes with the answer of the next server, before its deadline. A subscription that was
    cancelled meanwhile is not made."""
    _, files, alice = meeting()
    listen = listens(alice, resources(A))
    files.is_asked(SUBSCRIBE, A)
    files.dies()
    files.is_started()
    if how == "cancelled":
        alice.cancels(listen)
        alice.asks("tools/list")
    files.connects()
    files.is_greeted(able=ABLE)
    if how == "cancelled":
        files.is_asked("tools/list")
        return None
    files.answers(files.is_asked(SUBSCRIBE, A), error=-32602 if how == "refused" else None)
    return alice.is_granted(listen, {} if how == "refused" else resources(A))


@pytest.mark.parametrize("cause", [Cause(End.BROKEN, "reset"), Cause(End.REFUSED, status=500)])
def test_a_subscription_that_the_next_server_cannot_be_asked_for_is_not_waited_for(cause: Cause) -> None:
    _, files, alice = meeting(up=Kind.HTTP)
    listen = listens(alice, resources(A))
    files.refuses(files.is_asked(SUBSCRIBE, A), 404)
    files.is_closed(files.stream)
    files.starts(able=ABLE, session="S2", listens=True)
    files.breaks_off(files.is_asked(SUBSCRIBE, A), cause)
    alice.is_granted(listen, {})


@pytest.mark.parametrize("how", ["answer", "error", "broken", "refused", "cancelled"])
def test_a_resource_is_subscribed_again_only_once_it_is_unsubscribed(how: str) -> None:
    """Requests on separate connections may overtake each other, which would leave the client unsubscribed."""
    _, files, alice = meeting(up=Kind.HTTP)
    alice.cancels(subscribed(alice, files, A))
    leaving = files.is_asked(UNSUBSCRIBE, A)
    again = listens(alice, resources(A))
    if how == "cancelled":
        alice.cancels(again)
        once_more = files.is_asked(UNSUBSCRIBE, A)
        files.answers(leaving)
        return files.answers(once_more)
    if how in ("answer", "error"):
        files.answers(leaving, error=-32602 if how == "error" else None)
    else:
        files.breaks_off(leaving, Cause(End.BROKEN) if how == "broken" else Cause(End.REFUSED, status=500))
    files.answers(files.is_asked(SUBSCRIBE, A))
    return alice.is_granted(again, resources(A))


@DOWNS
def test_a_subscription_can_be_cancelled_before_it_is_confirmed(down: str) -> None:
    """The client gets nothing more, and the server is unsubscribed from. Nor gets it changes that it did not want."""
    play, files, alice = meeting(down)
    listen = listens(alice, TOOLS | resources(A))
    asked = files.is_asked(SUBSCRIBE, A)
    alice.cancels(listen)
    leaving = files.is_asked(UNSUBSCRIBE, A)
    files.answers(asked)
    files.answers(leaving)
    files.notifies(CHANGED)
    files.notifies(UPDATED, A)
    play.waits(10)
    later = listens(alice, TOOLS)
    alice.is_granted(later, TOOLS)


@DOWNS
def test_subscriptions_and_their_resources_are_bounded(down: str) -> None:
    """One that ends makes room; a refused one takes none."""
    _, files, alice = meeting(down, limits=Limits(listens_per_session_max=2, subscriptions_per_session_max=3))
    first = subscribed(alice, files, A, B)
    alice.is_answered(listens(alice, resources(C, {"uri": "a:4"})), error=-31007)
    subscribed(alice, files, C)
    for wanted in (TOOLS, resources({"uri": "a:4"})):
        alice.is_answered(listens(alice, wanted), error=-31007)
    alice.cancels(first)
    for asked in [files.is_asked(UNSUBSCRIBE, each) for each in (A, B)]:
        files.answers(asked)
    subscribed(alice, files, A, B)


def test_on_a_shared_server_a_resource_is_subscribed_until_the_last_session_unsubscribes() -> None:
    play, files, alice = meeting(sharing=Sharing.CONCURRENT)
    hers = subscribed(alice, files, A)
    bob = play.client("bob", "http", era=Era.STATELESS, able={"experimental": {"bob": {}}})
    his = listens(bob, resources(A))
    files.answers(files.is_asked(SUBSCRIBE, A))
    bob.is_granted(his, resources(A))
    alice.cancels(hers)
    files.notifies(UPDATED, A)
    bob.is_told(his, UPDATED, A)
    bob.cancels(his)
    files.is_asked(UNSUBSCRIBE, A)


# --- With servers without sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", [Sharing.CONCURRENT, Sharing.SERIAL])
def test_on_a_shared_server_each_client_gets_updates_of_its_own_resources(sharing: Sharing) -> None:
    """A client gets updates of no other resources, and of none once its subscription is over."""
    play, files, alice = meeting("pipe", era=Era.STATELESS, able={"resources": {"subscribe": True}}, sharing=sharing)
    bob = play.client("bob", era=Era.STATELESS)
    hers, his = listens(alice, resources(A)), listens(bob, resources(B))
    files.grants(old := asked_anew(play, resources(A, B)))
    alice.is_granted(hers, resources(A))
    bob.is_granted(his, resources(B))
    files.tells(old, UPDATED, B)
    bob.is_told(his, UPDATED, B)
    bob.cancels(his)
    files.grants(asked_anew(play, resources(A)))
    files.is_cancelled(old)
    for each in (B, A):
        files.tells(files.listen, UPDATED, each)
    alice.is_told(hers, UPDATED, A)


@UPS
@DOWNS
def test_ids_of_our_own_subscriptions_stay_with_the_server(up: Kind, down: str) -> None:
    """Notifications under the proxy's id reach the client under the client's."""
    play, files, alice = meeting(down, up, Era.STATELESS, **HIDING)
    listen = alice.asks(LISTEN, {"notifications": TOOLS}, id="mine")
    files.grants(asked := asked_anew(play, TOOLS))
    alice.is_granted(listen, TOOLS)
    files.tells(asked, CHANGED)
    alice.is_told(listen, CHANGED)
    alice.cancels(listen)
    play.waits(1)
    files.is_cancelled(asked)


@pytest.mark.parametrize("how", ["result", "cut off"])
def test_a_server_that_ends_our_subscription_is_asked_again(how: str) -> None:
    """Client subscriptions stay open, and clients are told that something may have changed."""
    play, files, alice = meeting(up=Kind.HTTP, era=Era.STATELESS, **HIDING)
    listen = live(play, alice, TOOLS)
    if how == "result":
        files.answers(files.listen, {"resultType": "complete"})
    else:
        files.breaks_off(files.listen, Cause(End.BROKEN))
    play.waits(Limits().listen_retry_s)
    files.grants(files.is_asked(LISTEN, {"notifications": TOOLS}))
    alice.is_told(listen, CHANGED)


def test_a_subscription_that_a_stateless_server_grants_after_a_loss_is_confirmed() -> None:
    play, files, alice = meeting(era=Era.STATELESS, **HIDING)
    listen = listens(alice, TOOLS | resources(A))
    asked_anew(play, TOOLS | resources(A))
    files.dies()
    files.starts(able=ABLE)
    files.grants(files.is_asked(LISTEN, {"notifications": TOOLS | resources(A)}))
    alice.is_granted(listen, TOOLS | resources(A))


@DOWNS
def test_a_confirmation_counts_only_for_subscriptions_that_were_in_the_request(down: str) -> None:
    """A later one waits for the next such request; one that the request covers is confirmed without another."""
    play, files, alice = meeting(down, Kind.HTTP, Era.STATELESS, **HIDING)
    first = listens(alice, TOOLS)
    early = asked_anew(play, TOOLS)
    later = listens(alice, PROMPTS)
    files.grants(early)
    alice.is_granted(first, TOOLS)
    files.grants(asked_anew(play, TOOLS | PROMPTS))
    files.is_cancelled(early)
    alice.is_granted(later, PROMPTS)
    last = listens(alice, TOOLS)
    play.waits(0.05)
    alice.is_granted(last, TOOLS)


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_filter_that_changes_while_the_server_is_away_is_sent_when_it_is_back(when: str) -> None:
    """A filter that changed just before the loss is sent then too."""
    play, files, alice = meeting(era=Era.STATELESS, **HIDING)
    first = live(play, alice, TOOLS)
    second = live(play, alice, PROMPTS, TOOLS | PROMPTS)
    if when == "before":
        alice.cancels(first)
    files.dies()
    files.is_started()
    if when == "while":
        alice.cancels(first)
    play.waits(0.05)
    files.connects()
    files.is_greeted(able=ABLE)
    files.grants(files.is_asked(LISTEN, {"notifications": PROMPTS}))
    for _ in range(2):  # for the new process, and for the request that was granted
        alice.is_told(second, "prompts/list_changed")


@pytest.mark.parametrize("how", ["all", "some"])
def test_a_filter_that_no_client_has_any_more_is_not_sent(how: str) -> None:
    """The pause begins anew with each change. The upstream subscription ends with the last client, or when the one that
    takes its place is confirmed."""
    play, files, alice = meeting(up=Kind.HTTP, era=Era.STATELESS, **HIDING)
    first = live(play, alice, TOOLS)
    second = live(play, alice, PROMPTS, TOOLS | PROMPTS)
    old = files.listen
    alice.cancels(first)
    if how == "all":
        play.waits(0.04)
        alice.cancels(second)
        play.waits(0.04)
        play.waits(0.01)
        return files.is_cancelled(old)
    files.grants(asked_anew(play, PROMPTS))
    files.is_cancelled(old)
    files.tells(files.listen, "prompts/list_changed")
    return alice.is_told(second, "prompts/list_changed")


@pytest.mark.parametrize("id", [None, 999, "x", ...])
def test_a_server_cancels_nothing_but_subscriptions(id: Any) -> None:
    _, files, alice = meeting(era=Era.STATELESS)
    call = alice.asks("prompts/get", {"name": "t"})
    asked = files.is_asked("prompts/get", {"name": "t"})
    files.notifies("cancelled", {"requestId": asked.id if id is ... else id})
    files.answers(asked, {"resultType": "complete", "messages": []})
    alice.is_answered(call, Containing({"messages": []}))
