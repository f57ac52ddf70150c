"""Storage orders: each is answered once, in time or not, and a late result is undone."""

from __future__ import annotations

import pytest
from isthmus.core.base.effects import Effect
from isthmus.core.base.ids import Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.base.storage import Load, Loaded, Saved, StorageAnswer, StorageFailed
from isthmus.core.state import storage_orders
from isthmus.core.state.context import Context
from isthmus.core.state.storage_orders import StorageOrders, reason_of

PLAN = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),), link_keys=(b"k" * 16,), workspaces_path="/w")


def context() -> Context:
    made = Context(PLAN, entropy=bytes, unix_at_zero=0.0, limits=Limits(storage_timeout_s=7.0))
    made.now = 100.0
    return made


def load(ticket: Ticket) -> Effect:
    return Load(ticket=ticket, key="k")


def test_an_answer_goes_to_its_order_once() -> None:
    target = context()
    orders, got, late = StorageOrders(target), [], []
    for name in "ab":
        orders.order(load, lambda answer, name=name: got.append((name, answer)), late=late.append)  # type: ignore[misc]
    first, second = target.out
    assert isinstance(first, Load) and isinstance(second, Load)
    assert first.ticket != second.ticket
    for _ in range(2):
        orders.receive_answer(second.ticket, Loaded(b"2"))
    assert got == [("b", Loaded(b"2"))]
    orders.receive_answer(first.ticket, Loaded(b"1"))
    assert got[1:] == [("a", Loaded(b"1"))]
    assert late == []
    assert target.timers.next_timeout() is None


def test_an_order_without_an_answer_fails_and_its_answer_is_late() -> None:
    target = context()
    got: list[StorageAnswer] = []
    late: list[StorageAnswer] = []
    orders = StorageOrders(target)
    orders.order(load, got.append, late=late.append)
    orders.order(load, got.append)
    deadline = target.timers.next_timeout()
    assert deadline is not None
    assert deadline.at == 107.0
    tickets = [order.ticket for order in target.out if isinstance(order, Load)]
    for ticket in tickets:
        orders.handle_timeout(ticket)
    assert got == [StorageFailed(reason="storage did not answer within 7 s")] * 2
    for ticket in tickets * 2:
        orders.receive_answer(ticket, Loaded(b"1"))
    assert late == [Loaded(b"1")]
    assert len(got) == 2


def test_late_answers_are_awaited_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that has waited longest is forgotten first."""
    monkeypatch.setattr(storage_orders, "LATE_MAX", 2)
    target = context()
    orders = StorageOrders(target)
    late: list[int] = []
    for number in range(3):
        orders.order(load, lambda answer: None, late=lambda answer, number=number: late.append(number))  # type: ignore[misc]
    tickets = [order.ticket for order in target.out if isinstance(order, Load)]
    for ticket in tickets[:2]:
        orders.handle_timeout(ticket)
    orders.receive_answer(tickets[0], Saved())
    for ticket in tickets[2:]:
        orders.handle_timeout(ticket)
    orders.order(load, lambda answer: None, late=lambda answer: late.append(3))
    (last,) = [order.ticket for order in target.out[3:] if isinstance(order, Load)]
    orders.handle_timeout(last)
    for ticket in (*tickets, last):
        orders.receive_answer(ticket, Saved())
    assert late == [0, 2, 3]


def test_a_failure_has_the_storages_reason() -> None:
    assert reason_of(StorageFailed(reason="full")) == "full"
    assert reason_of(Saved()) == "got an answer of another kind: Saved"
