"""`isthmus tasks`: the tasks of an isthmus that runs already, asked over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from .remote import Failed, Isthmus, Json, aligned, duration, short, shown
from .screen import plain
from .sizes import told_size

PREFIX_MIN_CHARS: Final = 8
"""The beginning of an id that may stand for it: as good as never are there two of the same."""
CANDIDATES_SHOWN: Final = 5


def listed(isthmus: Isthmus, filters: dict[str, str] | None = None) -> list[Json]:
    """The tasks, oldest first, each as `GET /tasks` tells it."""
    query = f"?{urlencode(filters)}" if filters else ""
    tasks = isthmus.ask("GET", f"/tasks{query}").get("tasks")
    if not isinstance(tasks, list) or not all(
        isinstance(one, dict) and isinstance(one.get("id"), str) for one in tasks
    ):
        raise isthmus.no_isthmus("it lists no tasks")
    return tasks


def find(isthmus: Isthmus, given: str) -> Json:
    """The task with this id, or the one whose id begins so.

    Raises:
        Failed: there is none, or more than one.
    """
    found = [task for task in listed(isthmus) if task["id"].startswith(given)]
    whole = [task for task in found if task["id"] == given]
    if len(whole or found) == 1:
        return (whole or found)[0]
    if not found:
        raise Failed(f"{isthmus.url} keeps no task {given}: it may have expired")
    ids = ", ".join(plain(task["id"]) for task in found[:CANDIDATES_SHOWN])
    more = f" and {len(found) - CANDIDATES_SHOWN} more" if len(found) > CANDIDATES_SHOWN else ""
    raise Failed(f"{given} is the beginning of {len(found)} tasks, give more of it: {ids}{more}")


def cancel(isthmus: Isthmus, id: str) -> Json:
    """Returns what is told of it afterwards."""
    return isthmus.ask("POST", f"/tasks/{quote(id, safe='')}/cancel")


def table(tasks: list[Json]) -> str:
    """A line for each task, below one of headings."""
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
    """A task in full, a line for each thing known of it."""
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
        ("created", _moment(task.get("created_at_unix"), task.get("age_s"), "ago")),
        ("updated", _moment(task.get("updated_at_unix"))),
        ("expires", _moment(task.get("expires_at_unix"), task.get("expires_in_s"), "left")),
        ("size", _size(task.get("size_bytes"))),
    ]
    return aligned([[name, shown(value)] for name, value in lines])


def _duration(seconds: object) -> str | None:
    return duration(seconds) if isinstance(seconds, (int, float)) else None


def _size(size_bytes: object) -> str | None:
    return told_size(size_bytes) if isinstance(size_bytes, int) and size_bytes else None


def _moment(at_unix: object, away_s: object = None, direction: str = "") -> str | None:
    if not isinstance(at_unix, (int, float)):
        return None
    try:
        moment = datetime.fromtimestamp(at_unix, UTC).isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return None
    away = _duration(away_s)
    return f"{moment} ({away} {direction})" if away else moment
