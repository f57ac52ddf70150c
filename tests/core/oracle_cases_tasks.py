"""Cases of the oracle: the rules of tasks."""

from __future__ import annotations

from typing import Any

from oracle_case import case, detailed, task
from wire_scenes import TASKS, K, Wire

# --- Tasks ------------------------------------------------------------------------------------------------------------


def begin_task(w: Wire, id: str = "a", **more: Any) -> Any:
    if w.is_stateless:
        call = w.call()
        w.reply(call, resultType="task", **detailed(id, **more))
    else:
        call = w.call(task={})
        w.reply(call, task=task(id, **more))
    return call


def look(w: Wire, id: str = "a", status: str = "working", *, asked_at: float | None = None, **more: Any) -> None:
    """Sends `tasks/get` and answers it with this status."""
    shape = detailed if w.is_stateless else task
    w.reply(w.request("tasks/get", taskId=id, at=asked_at), at=asked_at, **shape(id, status, **more))


@case("task-uncreated")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.reply(w.call(task={}), **({"content": []} if broken else {"task": task("a")}))


@case("task-unasked")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    if w.is_stateless:
        able = {} if broken else {"extensions": {TASKS: {}}}
        w.reply(w.call(meta=w.meta(able)), resultType="task", **detailed("a"))
    else:
        w.reply(w.call(**({} if broken else {"task": {}})), task=task("a"))


@case("task-unasked")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    if w.is_stateless:
        id = w.request("prompts/get" if broken else "tools/call", name="p")
        w.reply(id, resultType="task", **detailed("a"))
    else:
        w.tell("elicitation/create", id=1, mode="form", **({} if broken else {"x": 1}))
        w.respond(1, **({"task": task("a")} if broken else {"action": "cancel"}))


@case("task-shape")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    ttl = "ttlMs" if w.is_stateless else "ttl"
    look(w, **({ttl: ...} if broken else {ttl: 5}))


@case("task-shape")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    look(w, status="odd" if broken else "working")


@case("task-begins")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    begin_task(w, "a" if broken else "b")


@case("task-begins")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    if w.is_stateless:
        begin_task(w, status="completed")
        if broken:
            begin_task(w, status="completed")
    else:
        begin_task(w, status="completed" if broken else "working")


@case("task-status")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    look(w, status="cancelled")
    look(w, status="working" if broken else "cancelled")


@case("task-cancelled")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    look(w, status="completed" if broken else "working")
    id = w.request("tasks/cancel", taskId="a")
    w.reply(id, **task("a", "completed" if broken else "cancelled"))


@case("task-cancelled")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    w.reply(w.request("tasks/cancel", taskId="a"), **task("a", "working" if broken else "cancelled"))
    if not broken:
        w.reply(w.request("tasks/list"), tasks=[task("a", "cancelled")])
        w.answer(w.request("tasks/cancel", taskId="a"), error={"code": -32602, "message": ""})


@case("related-task")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    w.reply(w.request("tasks/result", taskId="a"), _meta={K + "related-task": {"taskId": "b" if broken else "a"}})


@case("related-task-needless")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    related = {K + "related-task": {"taskId": "a"}} if broken else {}
    w.reply(w.request("tasks/get", taskId="a", meta=related), **task("a"))


@case("related-task-needless")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    related = {K + "related-task": {"taskId": "a"}} if broken else {}
    w.tell("notifications/tasks/status", **task("a", "completed"), _meta=related)


@case("related-task-needless")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    look(w, _meta={K + "related-task": {"taskId": "a"}} if broken else {})


for _status, _detail in (("input_required", "inputRequests"), ("completed", "result"), ("failed", "error")):

    def _with_detail(w: Wire, broken: bool, status: str = _status, detail: str = _detail) -> None:
        begin_task(w)
        look(w, status=status, **{detail: ... if broken else {}})

    case("task-detail")(_with_detail)


@case("task-key-reused")
def _(w: Wire, broken: bool) -> None:
    begin_task(w)
    for text in ("a", "b" if broken else "a"):
        question = {"method": "elicitation/create", "params": {"message": text}}
        look(w, status="input_required", inputRequests={"k": question})


@case("task-polled-early")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    begin_task(w)
    interval = "pollIntervalMs" if w.is_stateless else "pollInterval"
    look(w, asked_at=10.0, **{interval: 1000})
    look(w, asked_at=10.5 if broken else 11.0)
