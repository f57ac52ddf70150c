"""The parsers of the commands for engineers: `conform`, `replay`, `vendor` and `check-driver`."""

from __future__ import annotations

import argparse

from .option_groups import ENV_FORM, ENV_HELP, HEADER_HELP, Add, as_help


def add_conform(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Test a server or client against the specification with generated conversations."
    conform = add(
        "conform",
        parents=[shared],
        help=as_help(about),
        usage="isthmus conform [options] URL | isthmus conform [options] [--client] -- COMMAND [ARG …]",
        description=f"{about} The test calls the server's tools with generated arguments. With --safe it calls only "
        "read-only tools.",
        epilog="Exit codes: 0 every MUST rule is kept, 1 a MUST rule is broken or the peer cannot be tested, 2 usage. "
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
        help="test a client; {url} or {server} (stdio) in its command is replaced with the test server",
    )
    conform.add_argument("--safe", action="store_true", help="call only tools whose annotations say readOnlyHint true")
    conform.add_argument(
        "--examples", type=int, default=200, metavar="N", help="number of generated conversations; default 200"
    )
    conform.add_argument("--seconds", type=float, metavar="N", help="start no new conversation after N seconds")
    conform.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random generator; default 0")
    add_peer_options(conform)
    conform.add_argument("--revision", metavar="R", help="test only revision R; default: all revisions of the server")
    conform.add_argument("--json", metavar="FILE", help="also write the findings as JSON")
    conform.add_argument("--junit", metavar="FILE", help="also write a JUnit report with a test case for each rule")
    conform.add_argument("--record", metavar="FILE", help="write the conversations that broke a rule, as JSON Lines")
    conform.add_argument("--replay", metavar="FILE", help="run only the recorded conversations of FILE")


def add_peer_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that `conform` and `replay` share: how to connect to the peer, and which rules to judge by."""
    command.add_argument(
        "--transport",
        choices=("auto", "streamable_http", "sse", "websocket"),
        default="auto",
        help="transport at the URL; default auto: by the scheme of the URL, and HTTP+SSE (sse) if the server rejects "
        "Streamable HTTP; for a client Streamable HTTP",
    )
    command.add_argument(
        "--timeout", type=float, metavar="N", help="seconds to wait for a response; default 20, for a client 10"
    )
    command.add_argument("--only", action="append", default=[], metavar="RULE", help="check only this rule")
    command.add_argument("--ignore", action="append", default=[], metavar="RULE", help="do not check this rule")
    command.add_argument("--strict", action="store_true", help="also fail for broken SHOULD rules")
    command.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help=HEADER_HELP)
    command.add_argument("--env", action="append", default=[], metavar=ENV_FORM, help=ENV_HELP)
    command.add_argument("--inherit-env", action="store_true", help="pass the whole environment to the command")
    command.add_argument("--cwd", metavar="DIR", help="working directory of the command")


def add_replay(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Replay a recording: conversations that broke a rule, or a trace."
    replay = add(
        "replay",
        parents=[shared],
        help=as_help(about),
        usage="isthmus replay [options] RECORD URL | isthmus replay [options] RECORD -- COMMAND [ARG …] | "
        "isthmus replay TRACE",
        description=about,
        epilog="A recording of `isthmus conform` is replayed against the server or client, and shows which rules are "
        "still broken. In the command of a client, {url} or {server} is replaced with the test server. A trace "
        "of `isthmus serve` or `wrap` is replayed without a peer, and shows whether this version behaves the "
        "same. Exit codes: 0 no MUST rule is broken, or no difference; 1 a MUST rule is broken, a difference, or the "
        "peer cannot be tested; 2 usage. "
        "Example: isthmus replay broken.jsonl -- python my_server.py",
    )
    replay.add_argument("file", metavar="FILE", help="file of `conform --record` or of `--trace`")
    replay.add_argument("target", nargs="?", metavar="URL", help="URL of the server of a recording: http(s)://…")
    add_peer_options(replay)


def add_vendor(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Write a copy of the engine into another program, or verify a copy."
    vendor = add(
        "vendor",
        parents=[shared],
        help=as_help(about),
        description=f"{about} An existing unedited copy is replaced. An edited copy and other folders are not.",
        epilog="Exit codes: 0 done, or the copy is unedited; 1 the copy is edited, or DIR is no copy; 2 usage. "
        "Example: isthmus vendor src/acme/mcp_core --without tasks,oracle",
    )
    vendor.add_argument("folder", metavar="DIR", help="folder of the copy; its name is the package name")
    vendor.add_argument(
        "--without",
        metavar="PART,…",
        help="folders to leave out: files, input_required, oracle, tasks, testing; "
        "default: those that the existing copy leaves out",
    )
    vendor.add_argument(
        "--verify",
        action="store_true",
        help="list edited files and the changes since that copy, and write nothing",
    )


def add_check_driver(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Test a driver of the engine with conversations that fail if it breaks the contract."
    check_driver = add(
        "check-driver",
        parents=[shared],
        help=as_help(about),
        description=about,
        epilog="Exit codes: 0 every check passes or is skipped, 1 a check fails, 2 usage. "
        "Example: isthmus check-driver my_driver:start",
    )
    check_driver.add_argument(
        "start", metavar="MODULE:FUNCTION", help="function that starts the gateway with the server of a check"
    )
    check_driver.add_argument("check", nargs="*", metavar="CHECK", help="run only these checks; default: all")
