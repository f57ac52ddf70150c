"""The parsers of the commands that serve clients, `serve` and `wrap`, and of those that read the same file."""

from __future__ import annotations

import argparse
from typing import Final, Literal

from ..base.sizes import parse_size
from ..config.settings import Core
from .listen_options import DEFAULT_LISTEN, add_listen_options
from .option_groups import CONFIG_HELP, ENV_FORM, ENV_HELP, HEADER_HELP, TOKEN_VARIABLE, Add, as_help, typed_option

WARM_MAX: Final = 64


def add_serve(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    serve = add(
        "serve",
        parents=parents,
        help="run the gateway of a configuration file",
        usage="isthmus serve [options] [CONFIG]\n       isthmus serve --stdio [NAME] [options] [CONFIG]",
        description="Serve every server of a configuration file over HTTP, until SIGINT, SIGTERM or SIGHUP. Each has "
        "an endpoint of its own, /mcp/ID, and /mcp shows all of them.",
        epilog="Examples: isthmus serve --all ~/.cursor/mcp.json; isthmus serve --all --stdio ~/.cursor/mcp.json.",
    )
    serve.add_argument("config", nargs="?", metavar="CONFIG", help=CONFIG_HELP)
    serve.add_argument(
        "--all", action="store_true", help="show one endpoint for all servers, its URL first; the others are there too"
    )
    add_listen_options(
        serve,
        metavar="[HOST:]PORT|unix:PATH",
        about="where to listen, in place of what core says in the file",
        defaults="default core.port",
    )
    serve.add_argument(
        "--stdio",
        nargs="?",
        const="",
        metavar="NAME",
        help="serve one client on stdin and stdout instead, with this profile or server; default: all servers. Nothing "
        "listens, and what is stored is gone when it ends",
    )


def add_wrap(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    wrap = add(
        "wrap",
        parents=parents,
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
    add_listen_options(
        wrap,
        metavar="[HOST:]PORT|stdio|unix:PATH",
        about=f"default {DEFAULT_LISTEN}; stdio: serve one client on stdin and stdout; "
        "unix:PATH: HTTP on a Unix domain socket; stdio+unix:PATH: many clients there, each as on stdio",
        defaults="default 8932",
    )
    wrap.add_argument(
        "--tls-certificate",
        metavar="FILE",
        help="listen with TLS: its certificate, followed by those of intermediate authorities, as PEM; needs --tls-key",
    )
    wrap.add_argument("--tls-key", metavar="FILE", help="the private key of --tls-certificate, as PEM")
    wrap.add_argument("--env", action="append", default=[], metavar=ENV_FORM, help=ENV_HELP)
    wrap.add_argument("--open", action="store_true", help="open a browser if the server wants a login; else none is")
    wrap.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help=HEADER_HELP)
    wrap.add_argument(
        "--ca-file",
        metavar="FILE",
        help="certificates to trust at the URL in place of the system's, as PEM; SSL_CERT_FILE in the environment can "
        "name one too",
    )
    wrap.add_argument(
        "--insecure",
        action="store_true",
        help="do not check the certificate at the URL: anybody on the way can then read and change what is said",
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
        type=typed_option(parse_size),
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
        "--warm",
        type=typed_option(_parse_warm),
        metavar="N|auto",
        help="processes of the command that are kept ready for the next sessions; default auto: one, once it was used",
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


def _parse_warm(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not (text.isascii() and text.isdigit() and int(text) <= WARM_MAX):
        raise ValueError(f"got {text!r}, expected auto, or a number from 0 to {WARM_MAX}")
    return int(text)


def add_check_and_convert(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    check_about = "Validate a configuration, ask every upstream, say what is wired."
    check = add(
        "check",
        parents=parents,
        help=as_help(check_about),
        description=f"{check_about} Exit code 1: a server does not answer, or lacks a tool or argument it is to have.",
    )
    check.add_argument("config", nargs="?", metavar="CONFIG", help=CONFIG_HELP)
    check.add_argument(
        "--eras",
        action="store_true",
        help="say which protocol revisions each server speaks, and what is translated for clients of others",
    )
    convert_about = "Write the configuration of an MCP client in our form."
    convert = add(
        "convert",
        parents=parents,
        help=as_help(convert_about),
        description=f"{convert_about} Variables stay variables; an input without a value becomes one. What an envFile "
        "holds is written out.",
    )
    convert.add_argument("config", nargs="?", metavar="CONFIG", help=CONFIG_HELP)
    convert.add_argument(
        "--output",
        metavar="FILE",
        help="write to FILE, as JSON if it ends in .json, else as YAML; default: stdout",
    )
    convert.add_argument("--force", action="store_true", help="replace a file that is there")
