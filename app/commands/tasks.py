"""`isthmus tasks`: the tasks of a running isthmus, over HTTP."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from ..base.output import short
from ..base.sizes import format_size
from .http_client import Isthmus, Json, aligned, duration, moment, named, shown


def listed(isthmus: Isthmus, filters: dict[str, str] | None = None) -> list[Json]:
    """Returns the tasks, oldest first, each as `GET /tasks` shows it."""
    query = f"?{urlencode(filters)}" if filters else ""
    tasks = isthmus.ask("GET", f"/tasks{query}").get("tasks")
    if not isinstance(tasks, list) or not all(
        isinstance(one, dict) and isinstance(one.get("id"), str) for one in tasks
    ):
        raise isthmus.no_isthmus("it lists no tasks")
    return tasks


def find(isthmus: Isthmus, given: str) -> Json:
    """Returns the task with this id, or the only one whose id begins with it.

    Raises:
        Failed: no task matches, or more than one.
    """
    missing = f"{isthmus.url} keeps no task {given}: it may have expired"
    return named(listed(isthmus), given, "tasks", missing)


def cancel(isthmus: Isthmus, id: str) -> Json:
    """Cancels a task. Returns the body of the response, with the task as it is afterwards."""
    return isthmus.ask("POST", f"/tasks/{quote(id, safe='')}/cancel")


def table(tasks: list[Json]) -> str:
    """Formats the tasks as a table, with headings."""
    return aligned([["ID", "SERVER", "TOOL", "STATUS", "KIND", "AGE", "EXPIRES IN", "SIZE"], *map(_row, tasks)])


def _row(task: Json) -> list[str]:
    cells = [
        task["id"],
        task.get("server"),
        short(str(task.get("tool") or "")),
        task.get("status"),
        task.get("kind"),
        _duration(task.get("age_s")),
        _duration(task.get("expires_in_s")),
        _size(task.get("size_bytes")),
    ]
    return list(map(shown, cells))


def description(task: Json) -> str:
    """Formats all that is known of a task, a line for each member."""
    lines = [
        ("id", task["id"]),
        ("server", task.get("server")),
        ("tool", task.get("tool")),
        ("status", task.get("status")),
        ("message", task.get("message")),
        ("kind", task.get("kind")),
        ("era", task.get("era")),
        ("principal", task.get("principal")),
        ("session", task.get("session")),
        ("created", moment(task.get("created_at_unix"), task.get("age_s"), "ago")),
        ("updated", moment(task.get("updated_at_unix"))),
        ("expires", moment(task.get("expires_at_unix"), task.get("expires_in_s"), "left")),
        ("size", _size(task.get("size_bytes"))),
    ]
    return aligned([[name, shown(value)] for name, value in lines])


def _duration(seconds: object) -> str | None:
    return duration(seconds) if isinstance(seconds, (int, float)) else None


def _size(size_bytes: object) -> str | None:
    return format_size(size_bytes) if isinstance(size_bytes, int) and size_bytes else None
