"""The parsers of the commands for engineers: `conform`, `replay`, `vendor` and `check-driver`."""

from __future__ import annotations

import argparse

from .option_groups import ENV_FORM, ENV_HELP, HEADER_HELP, Add, as_help


def add_conform(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Test a server or client: make up conversations, and say which clauses of the specification it breaks."
    conform = add(
        "conform",
        parents=[shared],
        help=as_help(about),
        usage="isthmus conform [options] URL | isthmus conform [options] [--client] -- COMMAND [ARG …]",
        description=f"{about} It calls the server's tools with made-up arguments, unless --safe says otherwise.",
        epilog="Exit codes: 0 nothing that must be kept is broken, 1 something is, or it cannot be tested, 2 usage. "
        "Example: isthmus conform --safe -- npx -y @modelcontextprotocol/server-everything",
    )
    conform.add_argument(
        "target",
        nargs="?",
        metavar="URL",
        help="where the server listens: http(s)://…, sse+http(s)://… or ws(s)://…",
    )
    conform.add_argument(
        "--client",
        action="store_true",
        help="test a client: {url} or {server} (stdio) in its command stands for our end",
    )
    conform.add_argument("--safe", action="store_true", help="call only tools whose annotations say readOnlyHint true")
    conform.add_argument(
        "--examples", type=int, default=200, metavar="N", help="conversations that are made up; default 200"
    )
    conform.add_argument("--seconds", type=float, metavar="N", help="begin no new conversation after so many seconds")
    conform.add_argument("--seed", type=int, default=0, metavar="N", help="what all choices follow from; default 0")
    add_peer_options(conform)
    conform.add_argument("--revision", metavar="R", help="speak this one only; default: all that the server speaks")
    conform.add_argument("--json", metavar="FILE", help="write what was found as JSON, too")
    conform.add_argument("--junit", metavar="FILE", help="write a test case for each rule, as JUnit has it, too")
    conform.add_argument("--record", metavar="FILE", help="write the conversations that broke a rule, as JSON Lines")
    conform.add_argument("--replay", metavar="FILE", help="play the conversations of such a file again, and no other")


def add_peer_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that `conform` and `replay` share: how to connect to the peer, and which rules to judge by."""
    command.add_argument(
        "--transport",
        choices=("auto", "streamable_http", "sse", "websocket"),
        default="auto",
        help="what is spoken at the URL; default auto: what the URL says, and HTTP+SSE (sse) with a server that "
        "refuses Streamable HTTP; to a client Streamable HTTP",
    )
    command.add_argument("--timeout", type=float, metavar="N", help="seconds for an answer; default 20, of a client 10")
    command.add_argument("--only", action="append", default=[], metavar="RULE", help="look for this rule only")
    command.add_argument("--ignore", action="append", default=[], metavar="RULE", help="do not look for this rule")
    command.add_argument("--strict", action="store_true", help="fail for what should be kept, too")
    command.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help=HEADER_HELP)
    command.add_argument("--env", action="append", default=[], metavar=ENV_FORM, help=ENV_HELP)
    command.add_argument("--inherit-env", action="store_true", help="hand this whole environment on to the command")
    command.add_argument("--cwd", metavar="DIR", help="working directory of the command")


def add_replay(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Play again what was recorded: conversations that broke a rule, or a trace."
    replay = add(
        "replay",
        parents=[shared],
        help=as_help(about),
        usage="isthmus replay [options] RECORD URL | isthmus replay [options] RECORD -- COMMAND [ARG …] | "
        "isthmus replay TRACE",
        description=about,
        epilog="A record of `isthmus conform` is played with the server, or with the client, in whose command {url} or "
        "{server} stands for our end, to see which of its rules are still broken; a trace of `isthmus serve` or `wrap` "
        "is played by itself, to see whether this version does the same. Exit codes: 0 nothing that must be kept is "
        "broken, or nothing differs; 1 something is or does, or it cannot be tested; 2 usage. "
        "Example: isthmus replay broken.jsonl -- python my_server.py",
    )
    replay.add_argument("file", metavar="FILE", help="what `conform --record` or `--trace` has written")
    replay.add_argument("target", nargs="?", metavar="URL", help="where the server of a record listens: http(s)://…")
    add_peer_options(replay)


def add_vendor(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Write a copy of the engine into another program, or say what became of one."
    vendor = add(
        "vendor",
        parents=[shared],
        help=as_help(about),
        description=f"{about} An unedited copy that is there is replaced; an edited one is not, nor anything else.",
        epilog="Exit codes: 0 done, or not edited; 1 edited, or something else is there; 2 usage. "
        "Example: isthmus vendor src/acme/mcp_core --without tasks,oracle",
    )
    vendor.add_argument("folder", metavar="DIR", help="the folder of the copy, whose name is that of the package")
    vendor.add_argument(
        "--without",
        metavar="PART,…",
        help="folders to leave out: files, input_required, oracle, tasks, testing; "
        "default: those that the replaced copy lacks",
    )
    vendor.add_argument(
        "--verify",
        action="store_true",
        help="write nothing: say which files were edited, and what changed from that copy to this isthmus",
    )


def add_check_driver(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Check a driver of the engine: play conversations that go wrong where it breaks its contract."
    check_driver = add(
        "check-driver",
        parents=[shared],
        help=as_help(about),
        description=about,
        epilog="Exit codes: 0 each check is kept or skipped, 1 one is broken, 2 usage. "
        "Example: isthmus check-driver my_driver:start",
    )
    check_driver.add_argument("start", metavar="MODULE:FUNCTION", help="starts the gateway with a server of a check")
    check_driver.add_argument("check", nargs="*", metavar="CHECK", help="play only these")
