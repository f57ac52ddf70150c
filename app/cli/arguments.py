"""The argument parser of all commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ..admin.files import KINDS
from ..admin.tasks import STATUSES
from ..base import logs
from ..base.durations import parse_duration
from ..base.errors import ConfigError
from ..base.sizes import parse_size
from ..base.version import VERSION
from ..config.settings import Core
from ..config.value_checks import check_token
from .targets import DEFAULT_LISTEN, how_to_wrap

CONFIG_NAMES = (
    *("isthmus.yaml", "isthmus.yml", "isthmus.toml", "isthmus.json"),
    *(".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"),
)
"""Files that are looked for in the current folder: ours, then those of MCP clients."""
TOKEN_VARIABLE: Final = "ISTHMUS_TOKEN"
T = TypeVar("T")
ENV_HELP: Final = "environment of the command; ${NAME} is replaced as in a configuration"
HEADER_HELP: Final = "header sent to the URL; ${NAME} is replaced as in a configuration"
AS_JSON: Final = "print what it tells as JSON, instead of a table"


def token_of(given: str | None) -> str | None:
    """Returns the management token to present: `given`, or that of the environment; None if neither is set.

    Raises:
        ConfigError: the token cannot stand in a header.
    """
    token = given or os.environ.get(TOKEN_VARIABLE) or None
    for problem in check_token(TOKEN_VARIABLE if given is None else "--token", token):
        raise ConfigError(f"{problem.key}: {problem.seen}, expected {problem.expected}")
    return token


def config_path(given: str | None) -> Path:
    """Returns the path of the configuration: `given`, or that of this folder.

    Raises:
        ConfigError: there is none.
    """
    if given is not None:
        return Path(given)
    for name in CONFIG_NAMES:
        if os.path.exists(name):
            return Path(name)
    raise ConfigError(f"no configuration given, and none of {', '.join(CONFIG_NAMES)} is in this folder")


def parser() -> argparse.ArgumentParser:
    """Builds the argument parser of all commands."""
    # These options are accepted before and after the command, hence without defaults: a default of the second place
    # would overwrite a value given in the first.
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--log-level", choices=logs.LEVELS, help="least level that is logged to stderr")
    shared.add_argument("--log-format", choices=("text", "json"), help="how log lines look; default text")
    isthmus = argparse.ArgumentParser(
        prog="isthmus",
        parents=[shared],
        description="A proxy for the Model Context Protocol: joins transports, and carries files across machines.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage or configuration.",
    )
    isthmus.add_argument("--version", action="version", version=f"isthmus {VERSION}")
    commands = isthmus.add_subparsers(dest="command", required=True, metavar="COMMAND")
    trace = argparse.ArgumentParser(add_help=False)
    trace.add_argument(
        "--trace", metavar="FILE", help="record the run as JSON Lines; it holds all that crossed the wire, secrets too"
    )

    quiet = argparse.ArgumentParser(add_help=False)
    quiet.add_argument(
        "--quiet-start",
        action="store_true",
        help="ask servers nothing, and start none, before a client needs them; default: the summary asks who they are",
    )

    open_access = argparse.ArgumentParser(add_help=False)
    open_access.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="let callers in who are not recognised, from other machines too",
    )

    config_help = (
        "YAML, TOML or JSON, in our form or in that of an MCP client; default: the first of "
        f"{', '.join(CONFIG_NAMES)} in this folder"
    )
    inputs = argparse.ArgumentParser(add_help=False)
    inputs.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="ID=VALUE",
        help="value of an input that the file of a client asks for; default: the environment variable of that name, "
        "or what is entered on the terminal",
    )
    serve = commands.add_parser(
        "serve",
        parents=[shared, trace, quiet, open_access, inputs],
        help="run the gateway of a configuration file",
        usage="isthmus serve [options] [CONFIG]\n       isthmus serve --stdio [NAME] [options] [CONFIG]",
        description="Serve every server of a configuration file over HTTP, until SIGINT, SIGTERM or SIGHUP. Each has "
        "an endpoint of its own, /mcp/ID, and /mcp shows all of them.",
        epilog="Examples: isthmus serve --all ~/.cursor/mcp.json; isthmus serve --all --stdio ~/.cursor/mcp.json.",
    )
    serve.add_argument("config", nargs="?", metavar="CONFIG", help=config_help)
    serve.add_argument(
        "--all", action="store_true", help="show one endpoint for all servers, its URL first; the others are there too"
    )
    serve.add_argument(
        "--stdio",
        nargs="?",
        const="",
        metavar="NAME",
        help="serve one client on stdin and stdout instead, with this profile or server; default: all servers. Nothing "
        "listens, and what is stored is gone when it ends",
    )

    wrap = commands.add_parser(
        "wrap",
        parents=[shared, trace, quiet, open_access],
        help="put a server on another transport, or several on one, without a configuration file",
        usage="isthmus wrap [options] URL\n       isthmus wrap [options] -- COMMAND [ARG …]\n"
        "       isthmus wrap [options] --server [NAME=]TARGET …",
        description="Relay one server untouched: over HTTP (/mcp, /sse, /ws), or on stdin and stdout with "
        "--listen stdio; with --files, have files cross. With several --server, show them as one.",
        epilog="Examples: isthmus wrap -- npx -y @modelcontextprotocol/server-everything; "
        "isthmus wrap --listen stdio --header 'Authorization: Bearer ${TOKEN}' https://host/mcp; "
        "isthmus wrap --server notes='npx -y notes' --server https://host/mcp. "
        f"Where {TOKEN_VARIABLE} is set it is what `isthmus ps` must show. A listener that other machines reach asks "
        f"every caller for that token, or for one that it makes and prints.",
    )
    wrap.add_argument(
        "target",
        nargs="?",
        metavar="URL",
        help="where the server listens: http(s)://…, sse+http(s)://…, ws(s)://…, or unix:///…",
    )
    wrap.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="[NAME=]TARGET",
        help="a URL, or a command in one word, as a shell reads it; its tools are NAME__tool where there are several; "
        "default name: from the URL or the command",
    )
    wrap.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT|stdio|unix:PATH",
        help=f"default {DEFAULT_LISTEN}; port 0 picks one; stdio: serve one client on stdin and stdout; "
        "unix:PATH: HTTP on a Unix domain socket; stdio+unix:PATH: many clients there, each as on stdio",
    )
    wrap.add_argument(
        "--tls-certificate",
        metavar="FILE",
        help="listen with TLS: its certificate, followed by those of intermediate authorities, as PEM; needs --tls-key",
    )
    wrap.add_argument("--tls-key", metavar="FILE", help="the private key of --tls-certificate, as PEM")
    wrap.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help=ENV_HELP)
    wrap.add_argument("--open", action="store_true", help="open a browser if the server wants a login; else none is")
    wrap.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help=HEADER_HELP)
    wrap.add_argument(
        "--ca-file",
        metavar="FILE",
        help="certificates to trust at the URL in place of the system's, as PEM; SSL_CERT_FILE in the environment can "
        "name one too",
    )
    wrap.add_argument(
        "--proxy",
        metavar="URL",
        help="proxy to the URL, as http(s)://USER:PASSWORD@HOST:PORT, or none; ${NAME} is replaced; default: what "
        "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY of the environment say",
    )
    wrap.add_argument(
        "--pass-header",
        action="append",
        default=[],
        metavar="NAME",
        help="header of clients' requests that goes on to the URL, such as Authorization",
    )
    wrap.add_argument(
        "--max-request-bytes",
        type=_typed(parse_size),
        default=Core().max_request_bytes,
        metavar="SIZE",
        help="largest message of a client, such as 64Mi; over HTTP a larger one is answered 413; default 16Mi",
    )
    wrap.add_argument(
        "--no-inspect", action="store_true", help="pass on all requests to the URL as they are; ws:// and wss:// too"
    )
    for option, about in (
        ("--include-tool", "tool that clients see, or a pattern such as 'get_*'; no other is seen then"),
        ("--exclude-tool", "tool that clients do not see, or a pattern"),
    ):
        wrap.add_argument(option, action="append", default=[], metavar="NAME", help=about)
    wrap.add_argument(
        "--era",
        choices=("auto", "handshake", "stateless"),
        default="auto",
        help="how the server is spoken to: with initialize and sessions, or as 2026-07-28 has it; default auto, as "
        "each client speaks if the server can",
    )
    wrap.add_argument(
        "--share",
        choices=("none", "concurrent", "serial"),
        default="none",
        help="whether all sessions use one process of the command, for one that can run only once: concurrent, or one "
        "call at a time; default none",
    )
    wrap.add_argument(
        "--tasks",
        choices=("auto", "always", "own", "never"),
        default="own",
        help="which calls may run as tasks: own, those of a server that has tasks; auto, those of any other too; "
        "always, at once for clients of 2026-07-28 that know them; default own",
    )
    wrap.add_argument(
        "--files",
        action="store_true",
        help="carry files for all tools: handles in arguments become paths, what they write becomes artifact:// "
        "resources. The command runs in a folder of its session; {ws}, {in}, {out} and {tmp} in it are such folders. "
        "With --listen stdio there is no address to upload to: what tools write can be read, and handed back to them",
    )
    wrap.add_argument(
        "--artifact-root",
        action="append",
        default=[],
        metavar="DIR",
        help="with --files: folder, beside the session's own, whose files are taken in when a tool names them",
    )
    wrap.add_argument(
        "--links",
        choices=("both", "resource_link", "text"),
        help="with --files: how results lead to the files: by resource_link blocks, texts, or both; default both. text "
        "is for clients that fail at a resource_link, as those of AutoGen and Semantic Kernel do",
    )
    wrap.add_argument("--storage", metavar="DIR", help="keep files and records there; default: until it ends")
    wrap.add_argument("--cwd", metavar="DIR", help="working directory of the command")
    wrap.add_argument("--inherit-env", action="store_true", help="hand this whole environment on to the command")
    wrap.add_argument(
        "--allow-host", action="append", default=[], metavar="HOST", help="Host header accepted beside --listen's own"
    )
    wrap.add_argument(
        "--allow-origin", action="append", default=[], metavar="ORIGIN", help="origin of web pages that may call"
    )

    check_about = "Validate a configuration, ask every upstream, say what is wired."
    check = commands.add_parser(
        "check",
        parents=[shared, inputs],
        help=_as_help(check_about),
        description=f"{check_about} Exit code 1: a server does not answer, or lacks a tool or argument it is to have.",
    )
    check.add_argument("config", nargs="?", metavar="CONFIG", help=config_help)
    convert_about = "Write the configuration of an MCP client in our form."
    convert = commands.add_parser(
        "convert",
        parents=[shared, inputs],
        help=_as_help(convert_about),
        description=f"{convert_about} Variables stay variables; an input without a value becomes one. What an envFile "
        "holds is written out.",
    )
    convert.add_argument("config", nargs="?", metavar="CONFIG", help=config_help)
    convert.add_argument(
        "--output",
        metavar="FILE",
        help="write to FILE, as JSON if it ends in .json, else as YAML; default: stdout",
    )
    convert.add_argument("--force", action="store_true", help="replace a file that is there")
    running = argparse.ArgumentParser(add_help=False)
    _add_running(running)
    ps_about = "Show how the servers of a running isthmus fare."
    ps = commands.add_parser("ps", parents=[shared, running], help=_as_help(ps_about), description=ps_about)
    ps.add_argument("--json", action="store_true", help=AS_JSON)
    for name, about in (
        ("start", "Start a server of a running isthmus, and keep it running."),
        ("stop", "Stop a server of a running isthmus; it stays stopped until it is started."),
        ("restart", "Stop a server of a running isthmus, and start it."),
    ):
        order = commands.add_parser(name, parents=[shared, running], help=_as_help(about), description=about)
        order.add_argument("id", metavar="ID", help="the server's id, as `isthmus ps` shows it")

    verbs = _add_tasks(commands.add_parser, shared, running) + _add_files(commands.add_parser, shared, running)

    _add_logins(commands.add_parser, shared, running)
    _add_token(commands.add_parser, shared)
    _add_pin(commands.add_parser, [shared, inputs], config_help)
    _add_conform(commands.add_parser, shared)
    _add_replay(commands.add_parser, shared)
    _add_vendor(commands.add_parser, shared)
    _add_check_driver(commands.add_parser, shared)

    for name, about in (
        ("demo", "Upload, use, produce and read back a file, step by step."),
        ("schema", "Print the JSON Schema of the configuration file."),
    ):
        commands.add_parser(name, parents=[shared], help=_as_help(about), description=about)
    for each in (*commands.choices.values(), *verbs):
        each.set_defaults(complain=each.error)  # so that errors show the command's own usage
    return isthmus


def _add_running(to: argparse.ArgumentParser, default: str = f"http://{DEFAULT_LISTEN}") -> None:
    to.add_argument(
        "--url",
        default=default,
        metavar="URL",
        help=f"where isthmus listens, http(s)://HOST:PORT or unix:PATH; default http://{DEFAULT_LISTEN}",
    )
    to.add_argument(
        "--token",
        default=argparse.SUPPRESS if default == argparse.SUPPRESS else None,
        metavar="TOKEN",
        help=f"its core.management.token; default: what {TOKEN_VARIABLE} is set to",
    )


def _add_filters(to: argparse.ArgumentParser, default: str | None = None) -> None:
    to.add_argument("--server", default=default, metavar="ID", help="only tasks of this server")
    to.add_argument("--status", default=default, choices=STATUSES, help="only tasks with this status")


def _add_tasks(
    add: Callable[..., argparse.ArgumentParser], shared: argparse.ArgumentParser, running: argparse.ArgumentParser
) -> list[argparse.ArgumentParser]:
    """Adds `isthmus tasks` and its verbs.

    An option may stand before or after the verb. Only the parser before it has defaults: a default after the verb
    would overwrite a value given before it.
    """
    about = "Show the tasks of a running isthmus, or cancel one."
    usage = "isthmus tasks [options] [list | show ID | cancel ID]"
    tasks = add("tasks", parents=[shared, running], help=_as_help(about), usage=usage, description=about)
    _add_filters(tasks)
    tasks.add_argument("--json", action="store_true", help=AS_JSON)
    again = argparse.ArgumentParser(add_help=False)
    _add_running(again, argparse.SUPPRESS)
    again.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=AS_JSON)

    verbs = tasks.add_subparsers(dest="verb", required=False, metavar="VERB", prog="isthmus tasks", help="default list")
    tasks.set_defaults(verb="list")
    for name, about in (
        ("list", "Show all tasks, the oldest first."),
        ("show", "Show all that is known of a task, but not its result."),
        ("cancel", "Cancel a task that is not over; its client sees so, and its server is told."),
    ):
        verb = verbs.add_parser(name, parents=[shared, again], help=_as_help(about), description=about)
        if name == "list":
            _add_filters(verb, argparse.SUPPRESS)
        else:
            verb.add_argument("id", metavar="ID", help="the task's id, or at least its first 8 characters")
    return list(verbs.choices.values())


def _add_logins(
    add: Callable[..., argparse.ArgumentParser], shared: argparse.ArgumentParser, running: argparse.ArgumentParser
) -> None:
    target = argparse.ArgumentParser(add_help=False)
    target.add_argument(
        "target", nargs="+", metavar="[CONFIG] ID | URL", help="a server of a configuration, or its URL"
    )
    about = "Log in at a server that wants a login, with a browser."
    login = add(
        "login",
        parents=[shared, target],
        help=_as_help(about),
        usage="isthmus login [options] [CONFIG] ID | isthmus login [options] URL",
        description=f"{about} The login is kept for every isthmus of this user, and renewed by itself.",
        epilog="Example: isthmus login https://mcp.example.com/mcp",
    )
    login.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="a scope to request as well")
    login.add_argument("--device", action="store_true", help="show a code to type on another device; open no browser")
    login.add_argument(
        "--paste", action="store_true", help="for a browser on another machine: paste the address where it ends here"
    )
    login.add_argument("--no-browser", action="store_true", help="print the page to open, and open none")
    login.add_argument("--port", type=int, metavar="N", help="port of the redirect URI; default 33418, or a free one")
    caller = "the caller of a gateway whose login it is, such as token:alice"
    login.add_argument("--as", dest="caller", default="", metavar="CALLER", help=caller)
    about = "Remove the login at a server."
    usage = "isthmus logout [CONFIG] ID | isthmus logout URL"
    logout = add("logout", parents=[shared, target], help=_as_help(about), usage=usage, description=about)
    logout.add_argument("--as", dest="caller", default="", metavar="CALLER", help=caller)
    about = (
        "Show the logins that are kept, and never a token; move them to another machine; or revoke a caller's tokens."
    )
    usage = (
        "isthmus auth ls [--json] | isthmus auth export FILE | isthmus auth import FILE | "
        "isthmus auth revoke [options] CALLER"
    )
    auth = add("auth", parents=[shared], help=_as_help(about), usage=usage, description=about)
    verbs = auth.add_subparsers(dest="verb", required=True, metavar="VERB", prog="isthmus auth", help="what to do")
    about = "List the logins."
    verbs.add_parser("ls", help=_as_help(about), description=about).add_argument(
        "--json", action="store_true", help=AS_JSON
    )
    for name, about in (
        ("export", "Move all logins into a new file, sealed with a passphrase."),
        ("import", "Take the logins of such a file."),
    ):
        more = f"{about} The passphrase is that of ISTHMUS_EXPORT_KEY, or asked for on the terminal."
        verb = verbs.add_parser(name, help=_as_help(about), description=more)
        verb.add_argument("file", metavar="FILE", help="the file")
    about = "Revoke what a caller of a running isthmus has shown so far."
    revoke = verbs.add_parser(
        "revoke",
        parents=[running],
        help=_as_help(about),
        description=f"{about} A new token lets it in again, as the same caller. A static token stays refused until its "
        "entry in the configuration has another sha256.",
        epilog="Example: isthmus auth revoke token:ci",
    )
    revoke.add_argument("name", metavar="CALLER", help="as the audit log shows it: token:ci, jwt:ISSUER|NAME")
    revoke.add_argument("--json", action="store_true", help=AS_JSON)


def _add_conform(add: Callable[..., argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    about = "Test a server or client: make up conversations, and say which clauses of the specification it breaks."
    conform = add(
        "conform",
        parents=[shared],
        help=_as_help(about),
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
    _add_peer_options(conform)
    conform.add_argument("--revision", metavar="R", help="speak this one only; default: all that the server speaks")
    conform.add_argument("--json", metavar="FILE", help="write what was found as JSON, too")
    conform.add_argument("--junit", metavar="FILE", help="write a test case for each rule, as JUnit has it, too")
    conform.add_argument("--record", metavar="FILE", help="write the conversations that broke a rule, as JSON Lines")
    conform.add_argument("--replay", metavar="FILE", help="play the conversations of such a file again, and no other")


def _add_peer_options(command: argparse.ArgumentParser) -> None:
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
    command.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help=ENV_HELP)
    command.add_argument("--inherit-env", action="store_true", help="hand this whole environment on to the command")
    command.add_argument("--cwd", metavar="DIR", help="working directory of the command")


def _add_token(add: Callable[..., argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    about = "Make a static token for a caller, and the lines of a configuration that let it in."
    token = add(
        "token",
        parents=[shared],
        help=_as_help(about),
        usage="isthmus token new [options] NAME",
        description=f"{about} The token is printed on stdout, the lines on stderr.",
        epilog="Example: isthmus token new ci --group robots --expires 2027-01-31",
    )
    token.add_argument("verb", choices=("new",), help="make one")
    token.add_argument("name", metavar="NAME", help="the caller's name, in logs and as the owner of its files")
    token.add_argument("--group", action="append", default=[], metavar="GROUP", help="a group that the caller is in")
    token.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="something that the token allows")
    token.add_argument("--expires", metavar="DAY", help="the day on which it ends, such as 2027-01-31; default: never")


def _add_pin(
    add: Callable[..., argparse.ArgumentParser], parents: list[argparse.ArgumentParser], config_help: str
) -> None:
    about = "Write the lock: what servers list now is what you approve."
    pin = add(
        "pin",
        parents=parents,
        help=_as_help(about),
        description=f"{about} A server that is in the lock is compared with it. The lock is isthmus.lock beside "
        "the configuration, or pins.file. Exit code 1: something differs from the lock, or a server cannot be asked.",
        epilog="Examples: isthmus pin; isthmus pin --diff; isthmus pin --approve github/search_code",
    )
    pin.add_argument("config", nargs="?", metavar="CONFIG", help=config_help)
    what = pin.add_mutually_exclusive_group()
    what.add_argument("--diff", action="store_true", help="show what differs, and write nothing")
    what.add_argument(
        "--approve",
        nargs="?",
        action="append",
        const="",
        metavar="ID[/NAME]",
        help="accept what differs: of a server, or of one of its tools, prompts or resources; default: all",
    )


def _add_replay(add: Callable[..., argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    about = "Play again what was recorded: conversations that broke a rule, or a trace."
    replay = add(
        "replay",
        parents=[shared],
        help=_as_help(about),
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
    _add_peer_options(replay)


def _add_vendor(add: Callable[..., argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    about = "Write a copy of the engine into another program, or say what became of one."
    vendor = add(
        "vendor",
        parents=[shared],
        help=_as_help(about),
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


def _add_check_driver(add: Callable[..., argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    about = "Check a driver of the engine: play conversations that go wrong where it breaks its contract."
    check_driver = add(
        "check-driver",
        parents=[shared],
        help=_as_help(about),
        description=about,
        epilog="Exit codes: 0 each check is kept or skipped, 1 one is broken, 2 usage. "
        "Example: isthmus check-driver my_driver:start",
    )
    check_driver.add_argument("start", metavar="MODULE:FUNCTION", help="starts the gateway with a server of a check")
    check_driver.add_argument("check", nargs="*", metavar="CHECK", help="play only these")


def _add_files(
    add: Callable[..., argparse.ArgumentParser], shared: argparse.ArgumentParser, running: argparse.ArgumentParser
) -> list[argparse.ArgumentParser]:
    """Adds `isthmus files` and its verbs, as `_add_tasks` does."""
    about = "Show the stored files of a running isthmus, copy them here, or delete them."
    usage = "isthmus files [options] [list | show ID | export ID [PATH] | delete [ID …]]"
    files = add("files", parents=[shared, running], help=_as_help(about), usage=usage, description=about)
    again = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    _add_running(again, argparse.SUPPRESS)
    for parser, default in ((files, None), (again, argparse.SUPPRESS)):
        parser.add_argument(
            "--root", default=default, metavar="DIR", help="ask the storage folder of one that does not run instead"
        )
        parser.add_argument("--server", default=default, metavar="ID", help="only files of this server")
        parser.add_argument("--session", default=default, metavar="ID", help="only files of this session, by its name")
        parser.add_argument("--kind", default=default, choices=KINDS, help="only files of this kind")
        parser.add_argument(
            "--older-than", default=default, metavar="TIME", type=_typed(parse_duration), help="such as 90s, 2h or 7d"
        )
        parser.add_argument(
            "--larger-than", default=default, metavar="SIZE", type=_typed(parse_size), help="such as 512k or 10MB"
        )
        parser.add_argument("--json", action="store_true", default=False if default is None else default, help=AS_JSON)

    verbs = files.add_subparsers(dest="verb", required=False, metavar="VERB", prog="isthmus files", help="default list")
    files.set_defaults(verb="list")
    id_help = "the file's id, at least its first 8 characters, or its URI"
    listing, showing, exporting, deleting = (
        verbs.add_parser(name, parents=[shared, again], help=_as_help(about), description=about)
        for name, about in (
            ("list", "Show all files, those used last last."),
            ("show", "Show all that is known of a file, but not its content."),
            ("export", "Copy the content of a file to PATH, a folder, or - for stdout; default: here, as it is named."),
            ("delete", "Delete the files that are named, or those that the options choose."),
        )
    )
    showing.add_argument("id", metavar="ID", help=id_help)
    exporting.add_argument("id", metavar="ID", help=id_help)
    exporting.add_argument("path", nargs="?", metavar="PATH", help="where to; a file there stays as it is")
    exporting.add_argument("--force", action="store_true", help="replace a file that is there")
    deleting.add_argument("id", nargs="*", metavar="ID", help=id_help)
    deleting.add_argument("--yes", action="store_true", help="delete what options choose, instead of showing it")
    return [listing, showing, exporting, deleting]


def _typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Wraps `parse` for argparse, which then reports its `ValueError` with the name of the option."""

    def typed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


def why_unknown(options: argparse.Namespace, unknown: list[str], arguments: list[str]) -> str:
    """Describes arguments that no parser took. They may hold secrets, so only names of options are repeated."""
    first, target = unknown[0], getattr(options, "target", None)
    is_option = first.startswith("-")
    if target is not None and "://" not in target:
        if not is_option or arguments.index(target) < arguments.index(first):
            return how_to_wrap(target, has_more=True)
    return f"unknown option {first.partition('=')[0]}" if is_option else "too many arguments"


def _as_help(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:].removesuffix(".")
