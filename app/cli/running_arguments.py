"""The parsers of the commands that ask a running isthmus: `ps`, `start`, `stop`, `restart`, `tasks` and `files`."""

from __future__ import annotations

import argparse
from typing import Final

from ..admin.files import KINDS
from ..admin.tasks import STATUSES
from ..base.durations import parse_duration
from ..base.sizes import parse_size
from .option_groups import AS_JSON, Add, add_running, as_help, typed_option

CLIENTS: Final = (
    *("claude-desktop", "claude-code", "vscode", "cursor", "windsurf", "cline", "roo", "gemini", "codex", "copilot"),
    *("opencode", "zed", "continue", "librechat", "inspector", "mcp-remote", "json"),
)
"""The clients of `connect-info`, as in `commands.client_entries.TARGETS`, which takes time to import."""


def _add_filters(to: argparse.ArgumentParser, default: str | None = None) -> None:
    to.add_argument("--server", default=default, metavar="ID", help="only tasks of this server")
    to.add_argument("--status", default=default, choices=STATUSES, help="only tasks with this status")


def add_tasks(
    add: Add, shared: argparse.ArgumentParser, running: argparse.ArgumentParser
) -> list[argparse.ArgumentParser]:
    """Adds `isthmus tasks` and its verbs.

    An option may stand before or after the verb. Only the parser before it has defaults: a default after the verb
    would overwrite a value given before it.
    """
    about = "Show the tasks of a running isthmus, or cancel one."
    usage = "isthmus tasks [options] [list | show ID | cancel ID]"
    tasks = add("tasks", parents=[shared, running], help=as_help(about), usage=usage, description=about)
    _add_filters(tasks)
    tasks.add_argument("--json", action="store_true", help=AS_JSON)
    again = argparse.ArgumentParser(add_help=False)
    add_running(again, argparse.SUPPRESS)
    again.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=AS_JSON)

    verbs = tasks.add_subparsers(dest="verb", required=False, metavar="VERB", prog="isthmus tasks", help="default list")
    tasks.set_defaults(verb="list")
    for name, about in (
        ("list", "Show all tasks, the oldest first."),
        ("show", "Show the details of a task, without its result."),
        ("cancel", "Cancel a running task at its server."),
    ):
        verb = verbs.add_parser(name, parents=[shared, again], help=as_help(about), description=about)
        if name == "list":
            _add_filters(verb, argparse.SUPPRESS)
        else:
            verb.add_argument("id", metavar="ID", help="the task's id, or at least its first 8 characters")
    return list(verbs.choices.values())


def add_files(
    add: Add, shared: argparse.ArgumentParser, running: argparse.ArgumentParser
) -> list[argparse.ArgumentParser]:
    """Adds `isthmus files` and its verbs, as `add_tasks` does."""
    about = "List, copy or delete the stored files of a running isthmus."
    usage = "isthmus files [options] [list | show ID | export ID [PATH] | delete [ID …]]"
    files = add("files", parents=[shared, running], help=as_help(about), usage=usage, description=about)
    again = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    add_running(again, argparse.SUPPRESS)
    for parser, default in ((files, None), (again, argparse.SUPPRESS)):
        parser.add_argument(
            "--root", default=default, metavar="DIR", help="read the storage folder of an isthmus that does not run"
        )
        parser.add_argument("--server", default=default, metavar="ID", help="only files of this server")
        parser.add_argument("--session", default=default, metavar="ID", help="only files of this session, by its name")
        parser.add_argument("--kind", default=default, choices=KINDS, help="only files of this kind")
        parser.add_argument(
            "--older-than",
            default=default,
            metavar="TIME",
            type=typed_option(parse_duration),
            help="only files not used for TIME, such as 90s, 2h or 7d",
        )
        parser.add_argument(
            "--larger-than",
            default=default,
            metavar="SIZE",
            type=typed_option(parse_size),
            help="only files larger than SIZE, such as 512k or 10MB",
        )
        parser.add_argument("--json", action="store_true", default=False if default is None else default, help=AS_JSON)

    verbs = files.add_subparsers(dest="verb", required=False, metavar="VERB", prog="isthmus files", help="default list")
    files.set_defaults(verb="list")
    id_help = "the file's id, at least its first 8 characters, or its URI"
    listing, showing, exporting, deleting = (
        verbs.add_parser(name, parents=[shared, again], help=as_help(about), description=about)
        for name, about in (
            ("list", "List all files, the least recently used first."),
            ("show", "Show the details of a file, without its content."),
            ("export", "Copy a file to PATH, a folder, or - for stdout; default: the current folder."),
            ("delete", "Delete the named files, or those that the options select."),
        )
    )
    showing.add_argument("id", metavar="ID", help=id_help)
    exporting.add_argument("id", metavar="ID", help=id_help)
    exporting.add_argument("path", nargs="?", metavar="PATH", help="target; --force replaces an existing file")
    exporting.add_argument("--force", action="store_true", help="replace an existing file")
    deleting.add_argument("id", nargs="*", metavar="ID", help=id_help)
    deleting.add_argument("--yes", action="store_true", help="delete the selected files; default: only list them")
    return [listing, showing, exporting, deleting]


def add_looking_after(add: Add, shared: argparse.ArgumentParser, running: argparse.ArgumentParser) -> None:
    """Adds `ps`, `start`, `stop` and `restart`."""
    ps_about = "Show the status of each server of a running isthmus."
    ps = add("ps", parents=[shared, running], help=as_help(ps_about), description=ps_about)
    ps.add_argument("--json", action="store_true", help=AS_JSON)
    for name, about in (
        ("start", "Start a server of a running isthmus, and keep it running."),
        ("stop", "Stop a server of a running isthmus until `isthmus start`."),
        ("restart", "Stop a server of a running isthmus, and start it."),
    ):
        order = add(name, parents=[shared, running], help=as_help(about), description=about)
        order.add_argument("id", metavar="ID", help="the server's id, as `isthmus ps` shows it")


def add_connect_info(add: Add, shared: argparse.ArgumentParser, running: argparse.ArgumentParser) -> None:
    about = "Print the entry for the configuration file of an MCP client, and the path of that file on stderr."
    command = add(
        "connect-info",
        parents=[shared, running],
        help="print the entry for the configuration file of an MCP client",
        usage="isthmus connect-info [options] CLIENT [ID]",
        description=about,
        epilog="Example: isthmus connect-info cursor",
    )
    command.add_argument(
        "client", metavar="CLIENT", help=f"{', '.join(CLIENTS[:-1])}, or {CLIENTS[-1]} for any other client"
    )
    command.add_argument("id", nargs="?", metavar="ID", help="the server or profile; default: all servers")
