"""Tests of tasks against a plain model: a dict of the tasks of each client.

Clients of both eras, with principals and without, call, poll, fetch, list, answer, cancel and leave, and name tasks of
others. Their servers, with tasks and without, accept, report, ask, answer, forget and die. Time passes, the storage
fails, and the proxy is restarted. The model reads what a client or a server would, and checks that

- only the owner of a task finds it, and to others it is as unknown as no task;
- a task ends once, and its outcome is always the same, after a restart too;
- a question is sent under one key, or in one request, and answered upstream at most once;
- whatever stops a running task (its client, its ttl, the end of its session) reaches its server, once;
- the limits hold, and the stored tasks are those that can be found;
- when all ttls are over, no state is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from driving import UNIX_AT_ZERO
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, assert_empty
from task_clients import ClientRequest, Party, handle
from task_scenes import GRACE_S, Scene, scene
from task_servers import RELATED, TERMINAL, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
LIMITS = Limits(
    task_ttl_s=40.0,
    task_ttl_max_s=60.0,
    task_poll_max_s=2.0,
    task_inline_max_bytes=300,
    task_page_max=2,
    tasks_max=7,
    tasks_per_principal_max=4,
    tasks_per_session_max=3,
    session_idle_ttl_s=1e9,
    reply_timeout_s=1e9,
    question_timeout_s=1e6,
    restart_backoff_s=0.001,
    restart_backoff_max_s=0.001,
    crash_loop_failures=10_000,
)
SETTLE_S = 2.1
"""The time after which the proxy knows every change of a server's task."""

WAYS = [
    (LEGACY, "http", "ann"),
    (LEGACY, "pipe", "ann"),
    (LEGACY, "http", ""),
    (MODERN, "http", "mia"),
    (MODERN, "pipe", "ned"),
    # These make no tasks, and only name those of others.
    (MODERN, "http", "ann"),
    (LEGACY, "pipe", ""),
]
STRANGER = len(WAYS) - 1
CONFIGS = [
    (up, kind, has_tasks, offer)
    for up in (LEGACY, MODERN)
    for kind in (Kind.PIPE, Kind.HTTP)
    for has_tasks in (True, False)
    for offer in ((Offer.OWN, Offer.AUTO, Offer.ALWAYS) if has_tasks else (Offer.AUTO, Offer.ALWAYS))
]
UNKNOWN = "0" * 32
UP_TTL_S = 50.0
UP_TTL_MS = 50_000
"""The ttl of servers for their own tasks."""


@dataclass(eq=False)
class Begun:
    """One task.

    Attributes:
        owner: who finds the task: an era and a principal.
        counts_for: the party whose session the task counts for.
        home: the party whose session the task runs in; None: that of the first that names it.
        at: the time when the task expires, by what its client got.
        outcome: the first outcome that a client got.
        is_sure: the outcome is the server's, and not made by a restart.
        is_followed: the proxy follows the task; after a restart only once a client asks.
    """

    id: str
    tag: str
    owner: tuple[Era, str]
    home: int | None
    counts_for: int | None
    begun: float
    at: float
    work: Work
    status: str = "working"
    outcome: dict[str, Any] | None = None
    is_sure: bool = True
    is_followed: bool = True


class TasksWorld(RuleBasedStateMachine):
    @initialize(config=st.sampled_from(CONFIGS))
    def begin(self, config: tuple[Era, Kind, bool, Offer]) -> None:
        self.up, self.kind, self.has_tasks, self.offer = config
        self.scene: Scene = scene(self.up, self.kind, has_tasks=self.has_tasks, offer=self.offer, limits=LIMITS)
        self.tasks: dict[str, Begun] = {}
        self.gone: list[str] = []
        self.count = 0
        self.arrive()
        for index in (0, 2, 3):
            self.call(index, None, "accept", False)

    def arrive(self) -> None:
        self.parties = [self.scene.party(era, down=down, principal=name) for era, down, name in WAYS]

    # --- The model --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.scene.world.now

    def owner(self, index: int) -> tuple[Era, str]:
        return WAYS[index][0], "nobody" if index == STRANGER else WAYS[index][2]

    def mine(self, index: int) -> list[Begun]:
        """Returns the tasks that a party finds."""
        return [task for task in self.tasks.values() if task.owner == self.owner(index)]

    def working(self) -> list[Begun]:
        return [task for task in self.tasks.values() if task.status == "working" and not task.work.is_over]

    def is_full(self, index: int) -> bool:
        tasks = list(self.tasks.values())
        of_session = [task for task in tasks if task.counts_for == index]
        return (
            len(tasks) >= LIMITS.tasks_max
            or len(self.mine(index)) >= LIMITS.tasks_per_principal_max
            or len(of_session) >= LIMITS.tasks_per_session_max
        )

    def wait(self, seconds: float) -> None:
        """Advances the clock, but never close to the end of a task."""
        end = self.now + seconds
        while any(abs(task.at - end) < 0.02 for task in self.tasks.values()):
            end += 0.05
        self.scene.wait(end - self.now)
        for task in list(self.tasks.values()):
            if task.at <= self.now:
                self.stop(task)
                self.forget(task)

    def stop(self, task: Begun) -> None:
        """Checks that the server of a running task got one cancellation."""
        if task.status == "working" and task.is_followed:
            was_over = (
                task.work.is_away
                or task.work.outcome is not None
                or task.work.is_lost
                or task.work.status in TERMINAL - {"cancelled"}
            )
            assert len(task.work.stops) <= 1
            assert was_over or len(task.work.stops) == 1, (task, self.scene.server.received[-10:])

    def forget(self, task: Begun) -> None:
        del self.tasks[task.id]
        self.gone.append(task.id)

    def end(self, task: Begun, status: str) -> None:
        assert task.status == "working"
        task.status = status

    def settle(self) -> None:
        """Waits until the proxy knows what servers have ended, and updates the model."""
        self.wait(SETTLE_S)
        for task in self.tasks.values():
            work = task.work
            if task.status != "working" or not task.is_followed:
                continue
            if work.outcome is not None:
                is_failed = "error" in work.outcome
                is_failed |= task.owner[0] is LEGACY and bool(work.outcome.get("result", {}).get("isError"))
                self.end(task, "failed" if is_failed else "completed")
            elif work.is_lost:
                self.end(task, "failed")

    # --- Clients ----------------------------------------------------------------------------------------------------

    @rule(
        index=st.integers(0, 4),
        ttl=st.sampled_from([None, 5000, 10**9]),
        response=st.sampled_from(["accept", "silence", "result", "error"]),
        fails=st.booleans(),
    )
    def call(self, index: int, ttl: int | None, response: str, fails: bool) -> None:
        """Calls a tool for a task. The server responds at once, or not."""
        self.count += 1
        tag, party, server = f"t{self.count}", self.parties[index], self.scene.server
        is_full = self.is_full(index)
        if response == "silence" and party.is_modern and self.has_tasks and self.offer is not Offer.ALWAYS:
            response = "accept"  # only the server can make the task
        fails = fails and self.count % 4 == 0
        self.scene.store.is_failing = fails
        asked = party.call(tag, ttl=ttl)
        self.scene.run()
        at_once = party.is_modern and self.offer is Offer.ALWAYS
        if is_full and party.is_modern:
            self.call_over_the_limit(asked, server.work(tag))
            return
        if is_full:
            assert tag not in server.works, "the call is refused before it reaches its server"
            self.wait(GRACE_S)
            assert asked.code == OVERLOADED
            self.scene.store.is_failing = False
            return
        if fails and tag not in server.works:
            self.wait(LIMITS.task_after_s + GRACE_S if party.is_modern else GRACE_S)
            assert asked.code is not None
            self.scene.store.is_failing = False
            return
        work = server.work(tag)
        self.respond_first(work, response)
        self.wait(GRACE_S if not party.is_modern or at_once else LIMITS.task_after_s + GRACE_S)
        self.scene.store.is_failing = False
        is_plain = response == "error" and not at_once
        is_plain |= response == "result" and party.is_modern and not at_once
        if is_plain:
            assert asked.code == (4242 if response == "error" else None)
            assert "task" not in asked.result if response == "result" else True
            return
        if fails:
            assert asked.code is not None, "a task that is not saved has no handle"
            assert work.outcome is not None or len(work.stops) == 1
            return
        id = handle(asked)
        assert id not in self.tasks
        assert id not in self.gone
        shown = asked.result if party.is_modern else asked.result["task"]
        kept_ms = shown["ttlMs" if party.is_modern else "ttl"]
        expected = LIMITS.task_ttl_s if ttl is None or party.is_modern else min(ttl / 1000, LIMITS.task_ttl_max_s)
        if work.id is not None and not at_once:
            expected = UP_TTL_S
        assert kept_ms == expected * 1000
        begun = datetime.fromisoformat(shown["createdAt"]).timestamp() - UNIX_AT_ZERO
        task = Begun(id, tag, self.owner(index), index, index, begun, begun + kept_ms / 1000, work)
        self.tasks[id] = task
        self.follow_ttl(task)
        if task.at <= self.now:
            self.stop(task)
            self.forget(task)
        self.settle()

    def call_over_the_limit(self, asked: ClientRequest, work: Work) -> None:
        """Finishes a call of a stateless client that got no task, and checks its plain result."""
        self.wait(GRACE_S)
        assert asked.reply is None
        assert not work.as_task
        self.scene.server.finish(work, text(work.tag))
        self.scene.run()
        self.scene.store.is_failing = False
        assert asked.result["content"] == text(work.tag)["content"]

    def follow_ttl(self, task: Begun) -> None:
        """Sets the end of a task of the server's to the server's ttl."""
        if task.work.id is not None:
            task.at = task.begun + UP_TTL_S

    def respond_first(self, work: Work, response: str) -> None:
        server = self.scene.server
        if work.stops:
            pass  # the call was cancelled
        elif response == "accept" and work.as_task:
            server.accept(work, ttl_ms=UP_TTL_MS)
        elif response in ("accept", "silence"):
            pass
        elif response == "result":
            server.finish(work, text(work.tag))
        elif response == "error":
            server.fail(work, 4242, work.tag)
        self.scene.run()

    def pick(self, data: st.DataObject, tasks: list[Begun]) -> Begun:
        return data.draw(st.sampled_from(tasks), label="task")

    def party_of(self, data: st.DataObject, task: Begun) -> int:
        """Draws a party that may find the task. A task without a session becomes its own."""
        indexes = [index for index in range(5) if self.owner(index) == task.owner]
        index = data.draw(st.sampled_from(indexes), label="party")
        if task.home is None:
            task.home = index
            if not task.owner[1] or task.status == "working":
                task.counts_for = index
        return index

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        task = self.pick(data, list(self.tasks.values()))
        index = self.party_of(data, task)
        party = self.parties[index]
        asked = party.get(task.id)
        self.scene.run()
        if not task.is_followed:  # the first poll of its server since the restart
            task.is_followed = True
            self.settle()
            asked = self.scene.ask(party.get(task.id))
            if task.id not in self.tasks:
                assert asked.code == -32602
                return
        shown = asked.result
        assert shown["taskId"] == task.id
        self.check_status(task, shown["status"])
        if party.is_modern:
            assert ("result" in shown) == (task.status == "completed")
            assert ("error" in shown) == (task.status == "failed")
            assert ("inputRequests" in shown) == (shown["status"] == "input_required")
            if task.status in ("completed", "failed"):
                self.check_outcome(task, asked, shown)
        else:
            assert "result" not in shown

    def check_status(self, task: Begun, status: str) -> None:
        if task.status == "working":
            expected = {"input_required"} if task.work.asked else {"working"}
            assert status in expected, (task, status)
        else:
            assert status == task.status, (task, status)

    def check_outcome(self, task: Begun, asked: ClientRequest, shown: dict[str, Any]) -> None:
        """Checks that the outcome is that of the task, and always the same."""
        outcome = task.work.outcome
        if outcome is not None and task.is_sure:
            key = "error" if "error" in outcome else "result"
            assert outcome[key].items() <= shown[key].items(), (outcome, shown)
        found = {
            key: value for key, value in shown.items() if key not in ("_meta", "id")
        }  # without the server and the request
        assert task.outcome is None or found == task.outcome
        task.outcome = found

    @precondition(lambda self: any(t.owner[0] is LEGACY and t.status != "working" for t in self.tasks.values()))
    @rule(data=st.data())
    def fetch_twice(self, data: st.DataObject) -> None:
        ended = [t for t in self.tasks.values() if t.owner[0] is LEGACY and t.status != "working"]
        task = self.pick(data, ended)
        party = self.parties[self.party_of(data, task)]
        for _ in range(2):
            asked = self.scene.ask(party.result(task.id))
            reply = asked.reply
            assert reply is not None, task
            if task.status == "cancelled":
                assert asked.code == -32603
            elif "result" in reply:
                assert reply["result"]["_meta"][RELATED] == {"taskId": task.id}
                del reply["result"]["_meta"]
                self.check_outcome(task, asked, reply)
            else:
                assert task.status == "failed"
                self.check_outcome(task, asked, reply)

    @precondition(lambda self: any(t.work.asked for t in self.working()))
    @rule(data=st.data(), unknown=st.booleans())
    def answer(self, data: st.DataObject, unknown: bool) -> None:
        """Answers some or all of the questions, twice, and a key of no question."""
        task = self.pick(data, [t for t in self.working() if t.work.asked])
        assert task.home is not None
        party = self.parties[task.home]
        keys = data.draw(st.sets(st.sampled_from(sorted(task.work.asked)), min_size=1), label="answered")
        if party.is_modern:
            questions = self.scene.ask(party.get(task.id)).result["inputRequests"]
            found = {entry["params"]["message"]: key for key, entry in questions.items()}
            assert len(found) == len(questions)
            assert set(found) == set(task.work.asked)
            answers: dict[str, Any] = {found[key]: {**ACCEPT, "content": {"for": key}} for key in sorted(keys)}
            if unknown:
                answers["nobody asked"] = ACCEPT
            for _ in range(2):
                assert self.scene.ask(party.update(task.id, answers)).result["resultType"] == "complete"
        else:
            waiting = party.result(task.id)
            self.scene.run()
            assert waiting.reply is None
            asked = party.received("elicitation/create")
            for key in sorted(keys):
                (one,) = (frame for frame in asked if frame["params"]["message"] == key)
                assert one["params"]["_meta"][RELATED] == {"taskId": task.id}
                for _ in range(2):
                    party.reply(one["id"], {**ACCEPT, "content": {"for": key}})
                    self.scene.run()
        self.settle()

    @precondition(lambda self: self.tasks and self.count % 3 == 1)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = self.pick(data, list(self.tasks.values()))
        if not task.is_followed:
            return
        party = self.parties[self.party_of(data, task)]
        was_over = task.work.is_over or task.work.is_away
        asked = self.scene.ask(party.cancel(task.id))
        if party.is_modern:
            assert asked.result["resultType"] == "complete"
        elif task.status == "working":
            assert asked.result["status"] == "cancelled"
        else:
            assert asked.code == -32602
        if task.status == "working":
            self.end(task, "cancelled")
            assert was_over or len(task.work.stops) == 1
        self.settle()

    @precondition(lambda self: self.tasks or self.gone)
    @rule(data=st.data(), verb=st.sampled_from(["get", "cancel", "result", "update"]))
    def pry(self, data: st.DataObject, verb: str) -> None:
        """Names a task of another party, or an ended one: the error is the same as for an unknown id."""
        id = data.draw(st.sampled_from([*self.tasks, *self.gone]), label="id")
        task = self.tasks.get(id)
        others = [i for i in range(len(WAYS)) if task is None or self.owner(i) != task.owner]
        if task is not None and task.home is None and STRANGER in others:
            others.remove(STRANGER)  # the first that names a task without an owner gets it
        party = self.parties[data.draw(st.sampled_from(others), label="thief")]
        if verb == ("result" if party.is_modern else "update"):
            verb = "get"
        errors = []
        for name in (id, UNKNOWN):
            asked = party.update(name, {}) if verb == "update" else getattr(Party, verb)(party, name)
            errors.append(self.scene.ask(asked).error)
        assert errors[0] == errors[1]
        assert errors[0]["code"] == -32602

    @precondition(lambda self: self.count % 3 == 2)
    @rule(index=st.integers(0, 2))
    def list_all(self, index: int) -> None:
        """Lists all pages: a party gets exactly its own tasks, oldest first."""
        found, cursor, party = [], None, self.parties[index]
        while True:
            page = self.scene.ask(party.listing(cursor)).result
            assert len(page["tasks"]) <= LIMITS.task_page_max
            found += page["tasks"]
            if (cursor := page.get("nextCursor")) is None:
                break
        expected = [t for t in self.mine(index) if t.home is not None or t.owner[1]]
        assert [shown["taskId"] for shown in found] == [task.id for task in expected]
        for shown, task in zip(found, expected, strict=True):
            if task.is_followed:
                self.check_status(task, shown["status"])
        assert self.scene.ask(party.listing("not a cursor")).code == -32602

    # --- Servers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.working())
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        """Changes the status message of a server's task: the proxy's task gets it."""
        task = self.pick(data, self.working())
        if task.work.id is None or not task.is_followed:
            return
        self.count += 1
        task.work.message = f"m{self.count}"
        if not self.scene.server.is_modern:
            self.scene.server.announce(task.work)
        self.settle()
        if task.id in self.tasks:
            (kept,) = (kept for kept in self.scene.engine.tasks() if kept.id == task.id)
            assert kept.message == task.work.message

    @precondition(lambda self: any(task.work.id for task in self.working()) and self.count % 3 == 0)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Makes a server forget a task of its own."""
        self.scene.server.lose(self.pick(data, [task for task in self.working() if task.work.id]).work)
        self.settle()

    @precondition(lambda self: self.working())
    @rule(data=st.data(), response=st.sampled_from(["result", "large", "isError", "error"]))
    def serve(self, data: st.DataObject, response: str) -> None:
        """Finishes a task. Its open questions are void."""
        task = self.pick(data, self.working())
        work, server = task.work, self.scene.server
        if work.is_away:
            return  # it waits for a retry
        if response == "error":
            server.fail(work, 4242, task.tag)
        else:
            server.finish(work, text(task.tag * (400 if response == "large" else 1), isError=response == "isError"))
        self.settle()

    @precondition(lambda self: any(self.may_ask(task) for task in self.working()))
    @rule(data=st.data())
    def question(self, data: st.DataObject) -> None:
        task = self.pick(data, [task for task in self.working() if self.may_ask(task)])
        self.count += 1
        self.scene.server.ask(task.work, f"q{self.count}")
        self.settle()

    def may_ask(self, task: Begun) -> bool:
        """True if the server may ask: on a pipe without tasks only with one open call, and in the stateless era only
        once a round."""
        work = task.work
        if not task.is_followed or work.is_answered != (work.id is not None):
            return False
        if work.id is not None or work.received.post is not None or self.scene.server.is_modern:
            return True
        same = [
            w for w in self.scene.server.works.values() if w.received.channel == work.received.channel and not w.is_over
        ]
        return same == [work]

    @precondition(lambda self: any(not t.work.is_answered and t.work.as_task for t in self.working()))
    @rule(data=st.data())
    def accept_late(self, data: st.DataObject) -> None:
        late = [t for t in self.working() if not t.work.is_answered and t.work.as_task]
        task = self.pick(data, late)
        self.scene.server.accept(task.work, ttl_ms=UP_TTL_MS)
        self.scene.run()
        # The ttl runs from the creation by the server, within the limit of the proxy.
        task.at = min(self.now + UP_TTL_S, task.begun + LIMITS.task_ttl_max_s)
        self.settle()

    @precondition(lambda self: self.kind is Kind.PIPE and self.working() and self.count % 3 == 0)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Ends the process with all of its calls."""
        self.scene.server.die(self.pick(data, self.working()).work)
        self.settle()

    # --- Time, and ends ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.count % 2 == 0)
    @rule(seconds=st.sampled_from([0.5, 4.0]))
    def pass_time(self, seconds: float) -> None:
        self.wait(seconds)
        self.settle()

    @precondition(lambda self: self.count % 5 == 3)
    @rule(seconds=st.sampled_from([30.0, 45.0]))
    def pass_much_time(self, seconds: float) -> None:
        self.pass_time(seconds)

    @precondition(lambda self: self.count % 4 == 2)
    @rule(index=st.integers(0, 2))
    def leave(self, index: int) -> None:
        """Ends a session: its running tasks are cancelled at once. A new session finds the finished ones."""
        for task in self.tasks.values():
            if task.home == index and task.status == "working":
                assert not task.work.stops
        self.parties[index].leave()
        self.scene.run()
        for task in self.tasks.values():
            if task.home == index:
                if task.status == "working":
                    self.stop(task)
                    self.end(task, "cancelled")
                task.home = task.counts_for = None
        era, down, name = WAYS[index]
        self.wait(LIMITS.task_farewell_s + 0.1)
        self.parties[index] = self.scene.party(era, down=down, principal=name)
        self.settle()

    @precondition(lambda self: not any(t.work.asked for t in self.working()) and self.count % 4 == 0)
    @rule()
    def restart(self) -> None:
        """Restarts the proxy: finished tasks stay, tasks of HTTP servers go on for the first client that asks, and the
        rest has failed."""
        self.scene.restart()
        self.arrive()
        for task in self.tasks.values():
            task.home = task.counts_for = None
            if task.status == "working":
                if self.kind is Kind.HTTP and task.work.id is not None:
                    task.is_followed = False
                else:
                    task.is_sure = False
                    self.end(task, "failed")

    # --- Invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def stored_tasks_are_the_findable_ones(self) -> None:
        kept = {task.id: task for task in self.scene.engine.tasks()}
        assert kept.keys() == self.tasks.keys()
        assert set(self.scene.store.tasks) == set(self.tasks)
        for id, task in self.tasks.items():
            if task.is_followed:
                self.check_status(task, kept[id].status)

    @invariant()
    def servers_get_each_answer_once(self) -> None:
        for work in self.scene.server.works.values():
            assert len(work.stops) <= 1, work
            for key, answers in work.given.items():
                real = [one for one in answers if one.get("action") == "accept"]
                assert len(answers) <= 1
                assert all(one["content"] == {"for": key} for one in real)

    def teardown(self) -> None:
        if not hasattr(self, "parties"):
            return
        self.wait(LIMITS.task_ttl_max_s + 10.0)
        assert not self.tasks
        assert self.scene.engine.tasks() == ()
        assert not self.scene.store.tasks
        assert not self.scene.store.blobs
        self.scene.world.stop()
        self.scene.run()
        self.scene.wait(LIMITS.task_farewell_s + LIMITS.notification_timeout_s)
        assert_empty(self.scene.world)


TestTasks = TasksWorld.TestCase
TestTasks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
