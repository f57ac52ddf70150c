"""A client request: its state before anything has happened, and when it may be sent again."""

from __future__ import annotations

import itertools

from each_row import each_row
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.methods import SAFE_TO_REPEAT
from isthmus.core.state.exchange import (
    NO_TASK_OPTIONS,
    Exchange,
    ExchangeInput,
    ExchangeKey,
    ExchangeState,
    Reply,
    TaskOptions,
)
from isthmus.core.state.stream import Stream


def exchange(method: str = "tools/call", reply: Reply | None = None) -> Exchange:
    reply = reply or Reply(Stream(ChannelId(1)), ends_channel=True, can_stream=False)
    key = ExchangeKey(ChannelId(1), 0)
    return Exchange(
        key, reply, sid="s", id_raw=b"1", id_key=("n", 1), method=method, params=b"{}", token_raw=None
    )  # fmt: skip


def test_requests_that_are_safe_to_repeat() -> None:
    """Requests that read, or set a value, are safe; tool calls and unknown methods are not."""
    assert (
        frozenset(
            {
                "completion/complete",
                "logging/setLevel",
                "prompts/get",
                "prompts/list",
                "resources/list",
                "resources/read",
                "resources/subscribe",
                "resources/templates/list",
                "resources/unsubscribe",
                "subscriptions/listen",
                "tools/list",
            }
        )
        == SAFE_TO_REPEAT
    )


@each_row(("attempts", "retries"), list(itertools.product(range(4), range(3))))
@each_row("is_unsent", [False, True])
@each_row("method", ["tools/call", "tools/list", "vendor/unheard"])
def test_a_request_is_repeated_within_its_bound_and_only_if_it_cannot_run_twice(
    method: str, is_unsent: bool, attempts: int, retries: int
) -> None:
    tried = exchange(method)
    tried.attempts = attempts
    may = attempts in range(retries + 1) and (is_unsent or method == "tools/list")
    assert tried.may_repeat(is_unsent=is_unsent, retries=retries) is may


def test_a_new_exchange_has_its_defaults() -> None:
    """A new reply owes the response to the request that its body carries."""
    reply = Reply(Stream(ChannelId(1)), ends_channel=True, can_stream=False)
    fresh, _ = exchange(reply=reply), exchange(reply=reply)
    assert reply.remaining == 2
    assert (reply.gathered, reply.session, reply.status, reply.challenge) == (None, None, 200, "")
    assert fresh.state is ExchangeState.PREPARING
    assert (fresh.params, fresh.said) == (b"{}", b"{}")
    flags = (
        "may_have_run",
        "is_native",
        "is_plain",
        "is_plainly_translated",
        "is_augmented",
        "must_augment",
        "is_upstream",
    )
    assert [name for name in (*flags, "waits_for_client") if getattr(fresh, name)] == []
    nothing = (
        "upstream_id",
        "post",
        "request",
        "suspended_call",
        "lacking",
        "round",
        "upstream_task",
        "link",
        "task",
        "awaits",
    )
    assert [name for name in nothing if getattr(fresh, name) is not None] == []
    assert (fresh.attempts, fresh.told) == (0, float("-inf"))
    assert (fresh.mirrored, fresh.visited, fresh.known, fresh.headers) == ((), frozenset(), {}, ())
    assert fresh.task_options is NO_TASK_OPTIONS
    assert TaskOptions(False, None, False) == NO_TASK_OPTIONS


def test_an_exchange_is_upstream_while_it_has_a_number_or_a_task() -> None:
    sent = exchange()
    sent.upstream_id = 0
    assert sent.is_upstream
    sent.step(ExchangeInput.PREPARED)
    sent.upstream_id = None
    assert not sent.is_upstream
