"""Tests of the workspace orders: the folders of a session are removed when the last order that writes into them is
done."""

from __future__ import annotations

import pytest
from isthmus.core.base.ids import Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.base.storage import StorageAnswer, StorageFailed, Survey, Sweep
from isthmus.core.files.store.workspaces import WorkspaceOrders
from isthmus.core.state.context import Context
from isthmus.core.state.storage_orders import StorageOrders

DONE = StorageFailed(reason="done, whatever came of it")


class Scene:
    """A scene of orders for workspaces. The sessions of those in `used` go on."""

    def __init__(self, *used: str) -> None:
        plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),))
        self.context = Context(plan, entropy=bytes, unix_at_zero=0.0, limits=Limits(storage_timeout_s=10.0))
        self.waiting = StorageOrders(self.context)
        self.folders = WorkspaceOrders(self.context, self.waiting, lambda workspace: workspace in used)
        self.answers: list[StorageAnswer] = []

    def order(self, workspace: str) -> Ticket:
        tickets: list[Ticket] = []

        def make(ticket: Ticket) -> Survey:
            tickets.append(ticket)
            return Survey(ticket=ticket, server="s", workspace=workspace)

        self.folders.order(workspace, make, self.answers.append)
        return tickets[0]

    def swept(self) -> list[str]:
        """Takes the workspaces whose removal was ordered since the last call."""
        out, self.context.out = self.context.out, []
        return [effect.workspace for effect in out if isinstance(effect, Sweep)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_folders_are_removed_at_once_and_again_after_the_last_order(count: int) -> None:
    scene = Scene()
    tickets = [scene.order("w") for _ in range(count)]
    other = scene.order("v")
    assert scene.swept() == []
    scene.folders.sweep("w")
    assert scene.swept() == ["w"]
    for ticket in tickets[:-1]:
        scene.waiting.receive_answer(ticket, DONE)
        assert scene.swept() == []
    scene.waiting.receive_answer(tickets[-1], DONE)
    assert scene.swept() == ["w"]
    scene.waiting.receive_answer(other, DONE)
    assert scene.swept() == [], "those of another session stay"
    assert scene.answers == [DONE] * (count + 1)


def test_without_open_orders_folders_are_removed_once() -> None:
    scene = Scene()
    scene.waiting.receive_answer(scene.order("w"), DONE)
    scene.folders.sweep("w")
    assert scene.swept() == ["w"]
    scene.waiting.receive_answer(scene.order("w"), DONE)
    assert scene.swept() == [], "the later order came after the removal"


def test_folders_without_a_removal_stay() -> None:
    scene = Scene()
    first, second = scene.order("w"), scene.order("w")
    for ticket in (first, second):
        scene.waiting.receive_answer(ticket, DONE)
    assert scene.swept() == []


@pytest.mark.parametrize(("used", "swept"), [((), ["w"]), (("w",), []), (("v",), ["w"])])
def test_a_late_write_is_removed_unless_the_session_goes_on(used: tuple[str, ...], swept: list[str]) -> None:
    scene = Scene(*used)
    ticket = scene.order("w")
    scene.waiting.handle_timeout(ticket)
    assert scene.answers == [StorageFailed(reason="storage did not answer within 10 s")]
    assert scene.swept() == []
    scene.waiting.receive_answer(ticket, DONE)
    assert scene.swept() == swept
    assert len(scene.answers) == 1, "the late answer is dropped"
    scene.waiting.receive_answer(ticket, DONE)
    assert scene.swept() == [], "once"
