"""Sessions' folders are removed when the last that puts something into them is done."""

from __future__ import annotations

import pytest
from isthmus.core.base.effects import StorageAnswer, StorageFailed, Survey, Sweep
from isthmus.core.base.ids import Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.files.store.workspaces import Folders
from isthmus.core.state.context import Desk
from isthmus.core.state.storage_orders import Waiting

DONE = StorageFailed(reason="done, whatever came of it")


class Scene:
    """Orders for the workspaces of sessions, of which `used` go on."""

    def __init__(self, *used: str) -> None:
        plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),))
        self.desk = Desk(plan, entropy=bytes, unix_at_zero=0.0, limits=Limits(storage_timeout_s=10.0))
        self.waiting = Waiting(self.desk)
        self.folders = Folders(self.desk, self.waiting, lambda workspace: workspace in used)
        self.answers: list[StorageAnswer] = []

    def order(self, workspace: str) -> Ticket:
        tickets: list[Ticket] = []

        def make(ticket: Ticket) -> Survey:
            tickets.append(ticket)
            return Survey(ticket=ticket, server="s", workspace=workspace)

        self.folders.order(workspace, make, self.answers.append)
        return tickets[0]

    def swept(self) -> list[str]:
        """Which were ordered to go since the last time."""
        out, self.desk.out = self.desk.out, []
        return [effect.workspace for effect in out if isinstance(effect, Sweep)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_they_are_removed_at_once_and_again_after_the_last_order(count: int) -> None:
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


def test_where_nothing_is_under_way_they_are_removed_once() -> None:
    scene = Scene()
    scene.waiting.receive_answer(scene.order("w"), DONE)
    scene.folders.sweep("w")
    assert scene.swept() == ["w"]
    scene.waiting.receive_answer(scene.order("w"), DONE)
    assert scene.swept() == [], "that was put there later, and nobody has said that it must go"


def test_without_a_word_they_stay() -> None:
    scene = Scene()
    first, second = scene.order("w"), scene.order("w")
    for ticket in (first, second):
        scene.waiting.receive_answer(ticket, DONE)
    assert scene.swept() == []


@pytest.mark.parametrize(("used", "swept"), [((), ["w"]), (("w",), []), (("v",), ["w"])])
def test_what_comes_too_late_is_removed_unless_the_session_goes_on(used: tuple[str, ...], swept: list[str]) -> None:
    scene = Scene(*used)
    ticket = scene.order("w")
    scene.waiting.handle_timeout(ticket)
    assert scene.answers == [StorageFailed(reason="storage did not answer within 10 s")]
    assert scene.swept() == []
    scene.waiting.receive_answer(ticket, DONE)
    assert scene.swept() == swept
    assert len(scene.answers) == 1, "nobody waits for it"
    scene.waiting.receive_answer(ticket, DONE)
    assert scene.swept() == [], "once"
