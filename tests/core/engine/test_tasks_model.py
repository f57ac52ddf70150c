"""Tasks against a plain model: a dict of what each client began, and what it may still find.

Clients of both eras, named and anonymous, call, look, fetch, list, answer, cancel and leave, and ask for what is not
theirs; their servers, with tasks and without, accept, report, ask, answer, forget and die; time passes, the storage
fails, and the proxy is started again. The model reads what a client or a server would. It holds that

- only who began a task finds it, and nobody else can tell it from none;
- a task ends once, and its outcome is the same however often it is asked for, after a restart too;
- a question is asked under one key, or in one request, and answered upstream once at most;
- whatever stops a task that works (its client, its time, the end of its session) reaches its server, once;
- the limits hold; what is in the storage is what can be found;
- when every time is over, nothing is left of anything.
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
from task_clients import Asked, Party, handle
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
    ask_timeout_s=1e6,
    restart_backoff_s=0.001,
    restart_backoff_max_s=0.001,
    crash_loop_failures=10_000,
)
NOTICED_S = 2.1
"""In this time what a server has to say of its tasks is known here."""

WAYS = [
    (LEGACY, "http", "ann"),
    (LEGACY, "pipe", "ann"),
    (LEGACY, "http", ""),
    (MODERN, "http", "mia"),
    (MODERN, "pipe", "ned"),
    # These begin nothing, and only look for what others have.
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
"""How long servers keep their own tasks."""


@dataclass(eq=False)
class Begun:
    """One task.

    Attributes:
        owner: who finds it: a name and an era, or a party alone.
        counts_for: the party whose session it counts for.
    home: the party whose session it runs in, or None: nobody's, but of whoever names it first (`owner`).
        at: when it ends for everybody, by what its client was told.
        said: what was told of its outcome, but for who told it, once anybody asked.
        is_sure: its outcome is the server's, and not what a restart made of it.
        is_followed: the proxy knows what it becomes; not so after a restart, until somebody asks.
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
    said: dict[str, Any] | None = None
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

    # --- What the model knows ---------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.scene.world.now

    def owner(self, index: int) -> tuple[Era, str]:
        return WAYS[index][0], "nobody" if index == STRANGER else WAYS[index][2]

    def mine(self, index: int) -> list[Begun]:
        """What a party finds."""
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
        """Time passes, but never to within an inch of anybody's end."""
        end = self.now + seconds
        while any(abs(task.at - end) < 0.02 for task in self.tasks.values()):
            end += 0.05
        self.scene.wait(end - self.now)
        for task in list(self.tasks.values()):
            if task.at <= self.now:
                self.stop(task)
                self.forget(task)

    def stop(self, task: Begun) -> None:
        """Nobody wants it any more: if it works its server has heard so, once."""
        if task.status == "working" and task.is_followed:
            was_over = (
                task.work.is_away
                or task.work.outcome is not None
                or task.work.is_lost
                or task.work.status in TERMINAL - {"cancelled"}
            )
            assert len(task.work.stops) <= 1
            assert was_over or len(task.work.stops) == 1, (task, self.scene.server.heard[-10:])

    def forget(self, task: Begun) -> None:
        del self.tasks[task.id]
        self.gone.append(task.id)

    def end(self, task: Begun, status: str) -> None:
        assert task.status == "working"
        task.status = status

    def notice(self) -> None:
        """What servers have ended is known here: of a task that is looked after."""
        self.wait(NOTICED_S)
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
        says=st.sampled_from(["accept", "silence", "result", "error"]),
        fails=st.booleans(),
    )
    def call(self, index: int, ttl: int | None, says: str, fails: bool) -> None:
        """Somebody calls for a task, and the server says its first word, or does not."""
        self.count += 1
        tag, party, server = f"t{self.count}", self.parties[index], self.scene.server
        is_full = self.is_full(index)
        if says == "silence" and party.is_modern and self.has_tasks and self.offer is not Offer.ALWAYS:
            says = "accept"  # it is for the server to say whether it is a task
        fails = fails and self.count % 4 == 0
        self.scene.store.is_failing = fails
        asked = party.call(tag, ttl=ttl)
        self.scene.run()
        at_once = party.is_modern and self.offer is Offer.ALWAYS
        if is_full and party.is_modern:
            self.call_in_vain(asked, server.work(tag))
            return
        if is_full:
            assert tag not in server.works, "it is refused before its server hears of it"
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
        self.first_word(work, says)
        self.wait(GRACE_S if not party.is_modern or at_once else LIMITS.task_after_s + GRACE_S)
        self.scene.store.is_failing = False
        is_plain = says == "error" and not at_once
        is_plain |= says == "result" and party.is_modern and not at_once
        if is_plain:
            assert asked.code == (4242 if says == "error" else None)
            assert "task" not in asked.result if says == "result" else True
            return
        if fails:
            assert asked.code is not None, "what is not saved is not promised"
            assert work.outcome is not None or len(work.stops) == 1
            return
        id = handle(asked)
        assert id not in self.tasks
        assert id not in self.gone
        said = asked.result if party.is_modern else asked.result["task"]
        kept_ms = said["ttlMs" if party.is_modern else "ttl"]
        expected = LIMITS.task_ttl_s if ttl is None or party.is_modern else min(ttl / 1000, LIMITS.task_ttl_max_s)
        if work.id is not None and not at_once:
            expected = UP_TTL_S
        assert kept_ms == expected * 1000
        begun = datetime.fromisoformat(said["createdAt"]).timestamp() - UNIX_AT_ZERO
        task = Begun(id, tag, self.owner(index), index, index, begun, begun + kept_ms / 1000, work)
        self.tasks[id] = task
        self.follow_ttl(task)
        if task.at <= self.now:
            self.stop(task)
            self.forget(task)
        self.notice()

    def call_in_vain(self, asked: Asked, work: Work) -> None:
        """There is no room for a task: who asked for none has a plain call."""
        self.wait(GRACE_S)
        assert asked.reply is None
        assert not work.as_task
        self.scene.server.finish(work, text(work.tag))
        self.scene.run()
        self.scene.store.is_failing = False
        assert asked.result["content"] == text(work.tag)["content"]

    def follow_ttl(self, task: Begun) -> None:
        """A task of the server's is kept as long as there."""
        if task.work.id is not None:
            task.at = task.begun + UP_TTL_S

    def first_word(self, work: Work, says: str) -> None:
        server = self.scene.server
        if work.stops:
            pass  # nobody wants it any more
        elif says == "accept" and work.as_task:
            server.accept(work, ttl_ms=UP_TTL_MS)
        elif says in ("accept", "silence"):
            pass
        elif says == "result":
            server.finish(work, text(work.tag))
        elif says == "error":
            server.fail(work, 4242, work.tag)
        self.scene.run()

    def pick(self, data: st.DataObject, tasks: list[Begun]) -> Begun:
        return data.draw(st.sampled_from(tasks), label="task")

    def a_party_of(self, data: st.DataObject, task: Begun) -> int:
        """Whoever may find it; to name what is nobody's is to take it."""
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
        index = self.a_party_of(data, task)
        party = self.parties[index]
        asked = party.get(task.id)
        self.scene.run()
        if not task.is_followed:  # its server is asked for the first time since the restart
            task.is_followed = True
            self.notice()
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

    def check_status(self, task: Begun, said: str) -> None:
        if task.status == "working":
            expected = {"input_required"} if task.work.asked else {"working"}
            assert said in expected, (task, said)
        else:
            assert said == task.status, (task, said)

    def check_outcome(self, task: Begun, asked: Asked, shown: dict[str, Any]) -> None:
        """It is its own, and what was said before."""
        outcome = task.work.outcome
        if outcome is not None and task.is_sure:
            key = "error" if "error" in outcome else "result"
            assert outcome[key].items() <= shown[key].items(), (outcome, shown)
        said = {key: value for key, value in shown.items() if key not in ("_meta", "id")}  # who said it, and to what
        assert task.said is None or said == task.said
        task.said = said

    @precondition(lambda self: any(t.owner[0] is LEGACY and t.status != "working" for t in self.tasks.values()))
    @rule(data=st.data())
    def fetch_twice(self, data: st.DataObject) -> None:
        ended = [t for t in self.tasks.values() if t.owner[0] is LEGACY and t.status != "working"]
        task = self.pick(data, ended)
        party = self.parties[self.a_party_of(data, task)]
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
        """Some or all of what is asked, twice, and what nobody asked."""
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
            asked = party.heard("elicitation/create")
            for key in sorted(keys):
                (one,) = (frame for frame in asked if frame["params"]["message"] == key)
                assert one["params"]["_meta"][RELATED] == {"taskId": task.id}
                for _ in range(2):
                    party.reply(one["id"], {**ACCEPT, "content": {"for": key}})
                    self.scene.run()
        self.notice()

    @precondition(lambda self: self.tasks and self.count % 3 == 1)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = self.pick(data, list(self.tasks.values()))
        if not task.is_followed:
            return
        party = self.parties[self.a_party_of(data, task)]
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
        self.notice()

    @precondition(lambda self: self.tasks or self.gone)
    @rule(data=st.data(), verb=st.sampled_from(["get", "cancel", "result", "update"]))
    def pry(self, data: st.DataObject, verb: str) -> None:
        """Somebody asks for what is another's, or over: it is as if it never was."""
        id = data.draw(st.sampled_from([*self.tasks, *self.gone]), label="id")
        task = self.tasks.get(id)
        others = [i for i in range(len(WAYS)) if task is None or self.owner(i) != task.owner]
        if task is not None and task.home is None and STRANGER in others:
            others.remove(STRANGER)  # who names what is nobody's has it
        party = self.parties[data.draw(st.sampled_from(others), label="thief")]
        if verb == ("result" if party.is_modern else "update"):
            verb = "get"
        said = []
        for name in (id, UNKNOWN):
            asked = party.update(name, {}) if verb == "update" else getattr(Party, verb)(party, name)
            said.append(self.scene.ask(asked).error)
        assert said[0] == said[1]
        assert said[0]["code"] == -32602

    @precondition(lambda self: self.count % 3 == 2)
    @rule(index=st.integers(0, 2))
    def list_all(self, index: int) -> None:
        """Page by page: all that is one's own, the oldest first, and nothing else."""
        found, cursor, party = [], None, self.parties[index]
        while True:
            said = self.scene.ask(party.listing(cursor)).result
            assert len(said["tasks"]) <= LIMITS.task_page_max
            found += said["tasks"]
            if (cursor := said.get("nextCursor")) is None:
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
        """What a server says of its own task is said of ours."""
        task = self.pick(data, self.working())
        if task.work.id is None or not task.is_followed:
            return
        self.count += 1
        task.work.message = f"m{self.count}"
        if not self.scene.server.is_modern:
            self.scene.server.announce(task.work)
        self.notice()
        if task.id in self.tasks:
            (kept,) = (kept for kept in self.scene.engine.tasks() if kept.id == task.id)
            assert kept.message == task.work.message

    @precondition(lambda self: any(task.work.id for task in self.working()) and self.count % 3 == 0)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """A server forgets a task of its own."""
        self.scene.server.lose(self.pick(data, [task for task in self.working() if task.work.id]).work)
        self.notice()

    @precondition(lambda self: self.working())
    @rule(data=st.data(), says=st.sampled_from(["result", "large", "isError", "error"]))
    def serve(self, data: st.DataObject, says: str) -> None:
        """What may be asked is not wanted any more."""
        task = self.pick(data, self.working())
        work, server = task.work, self.scene.server
        if work.is_away:
            return  # it waits to be called again
        if says == "error":
            server.fail(work, 4242, task.tag)
        else:
            server.finish(work, text(task.tag * (400 if says == "large" else 1), isError=says == "isError"))
        self.notice()

    @precondition(lambda self: any(self.may_ask(task) for task in self.working()))
    @rule(data=st.data())
    def question(self, data: st.DataObject) -> None:
        task = self.pick(data, [task for task in self.working() if self.may_ask(task)])
        self.count += 1
        self.scene.server.ask(task.work, f"q{self.count}")
        self.notice()

    def may_ask(self, task: Begun) -> bool:
        """On a pipe without tasks a question must have one call alone that it can belong to; and a server without
        sessions that has asked has answered."""
        work = task.work
        if not task.is_followed or work.is_answered != (work.id is not None):
            return False
        if work.id is not None or work.heard.post is not None or self.scene.server.is_modern:
            return True
        same = [w for w in self.scene.server.works.values() if w.heard.channel == work.heard.channel and not w.is_over]
        return same == [work]

    @precondition(lambda self: any(not t.work.is_answered and t.work.as_task for t in self.working()))
    @rule(data=st.data())
    def accept_late(self, data: st.DataObject) -> None:
        late = [t for t in self.working() if not t.work.is_answered and t.work.as_task]
        task = self.pick(data, late)
        self.scene.server.accept(task.work, ttl_ms=UP_TTL_MS)
        self.scene.run()
        # Counted from when the server has made it; but nothing is kept for longer than the proxy keeps anything.
        task.at = min(self.now + UP_TTL_S, task.begun + LIMITS.task_ttl_max_s)
        self.notice()

    @precondition(lambda self: self.kind is Kind.PIPE and self.working() and self.count % 3 == 0)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """With all that its process ran."""
        self.scene.server.die(self.pick(data, self.working()).work)
        self.notice()

    # --- Time, and ends ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.count % 2 == 0)
    @rule(seconds=st.sampled_from([0.5, 4.0]))
    def pass_time(self, seconds: float) -> None:
        self.wait(seconds)
        self.notice()

    @precondition(lambda self: self.count % 5 == 3)
    @rule(seconds=st.sampled_from([30.0, 45.0]))
    def pass_much_time(self, seconds: float) -> None:
        self.pass_time(seconds)

    @precondition(lambda self: self.count % 4 == 2)
    @rule(index=st.integers(0, 2))
    def leave(self, index: int) -> None:
        """The end of a session stops what works in it, in the same breath; who comes again finds what was finished."""
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
        self.notice()

    @precondition(lambda self: not any(t.work.asked for t in self.working()) and self.count % 4 == 0)
    @rule()
    def restart(self) -> None:
        """What was finished is; what goes on elsewhere does, for the first who asks; the rest has failed."""
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

    # --- What holds always ------------------------------------------------------------------------------------------

    @invariant()
    def what_is_kept_is_what_can_be_found(self) -> None:
        kept = {task.id: task for task in self.scene.engine.tasks()}
        assert kept.keys() == self.tasks.keys()
        assert set(self.scene.store.tasks) == set(self.tasks)
        for id, task in self.tasks.items():
            if task.is_followed:
                self.check_status(task, kept[id].status)

    @invariant()
    def nobody_is_told_twice(self) -> None:
        for work in self.scene.server.works.values():
            assert len(work.stops) <= 1, work
            for key, said in work.given.items():
                real = [one for one in said if one.get("action") == "accept"]
                assert len(said) <= 1
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
        self.scene.wait(LIMITS.task_farewell_s + LIMITS.notice_timeout_s)
        assert_empty(self.scene.world)


TestTasks = TasksWorld.TestCase
TestTasks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
