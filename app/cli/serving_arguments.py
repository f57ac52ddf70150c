"""The parsers of the commands that serve clients, `serve` and `wrap`, and of those that read the same file."""

from __future__ import annotations

import argparse
import re
from typing import Final, Literal

from ..base.sizes import parse_size
from ..config.settings import Core
from ..config.ui_settings import DEFAULT_UI_LISTEN
from .listen_options import DEFAULT_LISTEN, add_listen_options
from .option_groups import CONFIG_HELP, ENV_FORM, ENV_HELP, HEADER_HELP, TOKEN_VARIABLE, Add, as_help, typed_option

WARM_MAX: Final = 64
WORKERS_MAX: Final = 64
"""Workers of one supervisor. Each takes 60 MB, and machines with more cores are rare. At it: the command is refused."""


def add_serve(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    serve = add(
        "serve",
        parents=parents,
        help="serve the servers of a configuration file",
        usage="isthmus serve [options] [CONFIG]\n       isthmus serve --stdio [NAME] [options] [CONFIG]",
        description="Serve every server of a configuration file over HTTP, until SIGINT, SIGTERM or SIGHUP. Each "
        "server has the endpoint /mcp/ID. The endpoint /mcp has all servers.",
        epilog="Examples: isthmus serve --all ~/.cursor/mcp.json; isthmus serve --all --stdio ~/.cursor/mcp.json.",
    )
    serve.add_argument("config", nargs="?", metavar="CONFIG", help=CONFIG_HELP)
    serve.add_argument(
        "--all",
        action="store_true",
        help="print the URL of the endpoint with all servers first; every server keeps its own endpoint",
    )
    add_listen_options(
        serve,
        metavar="[HOST:]PORT|unix:PATH",
        about="address to listen on; overrides core in the file",
        defaults="default core.port",
    )
    serve.add_argument(
        "--stdio",
        nargs="?",
        const="",
        metavar="NAME",
        help="serve this profile or server to one client on stdin and stdout, and open no port; default: all servers. "
        "Stored files are removed at the end",
    )
    _add_ui(serve)
    serve.add_argument(
        "--workers",
        type=typed_option(_parse_workers),
        metavar="N",
        help="serve with N processes behind the same address, to use several cores; SIGHUP then reads the file again; "
        "default: one process",
    )


def _add_ui(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--ui",
        action="store_const",
        const=DEFAULT_UI_LISTEN,
        help=f"show what crosses in a browser, at {DEFAULT_UI_LISTEN}; the URL is printed",
    )
    to.add_argument(
        "--ui-listen",
        dest="ui",
        metavar="[HOST:]PORT",
        type=typed_option(_parse_ui),
        help="the same, at this address; port 0: any free port",
    )


def _parse_ui(text: str) -> str:
    if re.fullmatch(r"[0-9]{1,5}", text):
        text = f"127.0.0.1:{text}"
    if re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}", text) is None:
        raise ValueError(f"got {text!r}, expected PORT or HOST:PORT, such as {DEFAULT_UI_LISTEN}")
    return text


def add_wrap(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    wrap = add(
        "wrap",
        parents=parents,
        help="serve one or several servers without a configuration file, on any transport",
        usage="isthmus wrap [options] URL\n       isthmus wrap [options] -- COMMAND [ARG …]\n"
        "       isthmus wrap [options] --server [NAME=]TARGET …",
        description="Serve one server over HTTP (/mcp, /sse, /ws), or on stdin and stdout with --listen stdio. "
        "--files transfers files. Several --server options give one endpoint with the tools of all.",
        epilog="Examples: isthmus wrap -- npx -y @modelcontextprotocol/server-everything; "
        "isthmus wrap --listen stdio --header 'Authorization: Bearer ${TOKEN}' https://host/mcp; "
        "isthmus wrap --server notes='npx -y notes' --server https://host/mcp. "
        f"If {TOKEN_VARIABLE} is set, `isthmus ps` and the management pages require that token. If other machines can "
        f"reach the address, every caller needs a token: {TOKEN_VARIABLE}, or a new one that is printed.",
    )
    wrap.add_argument(
        "target",
        nargs="?",
        metavar="URL",
        help="URL of the server: http(s)://…, sse+http(s)://…, ws(s)://…, or unix:///…",
    )
    wrap.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="[NAME=]TARGET",
        help="a URL or a quoted command; with several servers, tools are named NAME__tool; default NAME: made from "
        "the URL or the command",
    )
    add_listen_options(
        wrap,
        metavar="[HOST:]PORT|stdio|unix:PATH",
        about=f"default {DEFAULT_LISTEN}; stdio: serve one client on stdin and stdout; "
        "unix:PATH: HTTP on a Unix domain socket; stdio+unix:PATH: many clients on a Unix domain socket, each with "
        "the protocol of stdio",
        defaults="default 8932",
    )
    _add_ui(wrap)
    wrap.add_argument(
        "--tls-certificate",
        metavar="FILE",
        help="listen with TLS: PEM file of the certificate, followed by intermediate certificates; requires --tls-key",
    )
    wrap.add_argument("--tls-key", metavar="FILE", help="PEM file of the private key of --tls-certificate")
    wrap.add_argument("--env", action="append", default=[], metavar=ENV_FORM, help=ENV_HELP)
    wrap.add_argument("--open", action="store_true", help="open a browser if the server requires a login")
    wrap.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help=HEADER_HELP)
    wrap.add_argument(
        "--ca-file",
        metavar="FILE",
        help="PEM file of certificates to trust instead of the system's; default: SSL_CERT_FILE, else the system's",
    )
    wrap.add_argument(
        "--insecure",
        action="store_true",
        help="do not verify the certificate of the URL; others on the network can then read and change messages",
    )
    wrap.add_argument(
        "--proxy",
        metavar="URL",
        help="proxy to the URL, as http(s)://USER:PASSWORD@HOST:PORT, or none; ${NAME} is replaced; default: "
        "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY of the environment",
    )
    wrap.add_argument(
        "--pass-header",
        action="append",
        default=[],
        metavar="NAME",
        help="header of client requests to forward to the URL, such as Authorization",
    )
    wrap.add_argument(
        "--max-request-bytes",
        type=typed_option(parse_size),
        default=Core().max_request_bytes,
        metavar="SIZE",
        help="maximum size of a client message, such as 64Mi; larger HTTP requests get 413; default 16Mi",
    )
    wrap.add_argument(
        "--no-inspect",
        action="store_true",
        help="forward all requests to the URL unchanged, including ws:// and wss://",
    )
    for option, about in (
        ("--include-tool", "show only this tool, or the tools of a pattern such as 'get_*'"),
        ("--exclude-tool", "hide this tool, or the tools of a pattern"),
    ):
        wrap.add_argument(option, action="append", default=[], metavar="NAME", help=about)
    wrap.add_argument(
        "--era",
        choices=("auto", "handshake", "stateless"),
        default="auto",
        help="protocol of the server: handshake, up to revision 2025-11-25; stateless, revision 2026-07-28; auto, "
        "that of each client if the server supports it; default auto",
    )
    wrap.add_argument(
        "--share",
        choices=("none", "concurrent", "serial"),
        default="none",
        help="sharing of the process of the command: none, a process for each session; concurrent, one process for "
        "all sessions; serial, one process and one call at a time; default none",
    )
    wrap.add_argument(
        "--warm",
        type=typed_option(_parse_warm),
        metavar="N|auto",
        help="number of spare processes for the next sessions; auto: one, after the first session; default auto",
    )
    wrap.add_argument(
        "--tasks",
        choices=("auto", "always", "own", "never"),
        default="own",
        help="calls that may run as tasks: own, only of servers with tasks; auto, of every server; always, at once "
        "for clients of 2026-07-28 that support tasks; never; default own",
    )
    wrap.add_argument(
        "--files",
        action="store_true",
        help="transfer files for all tools: handles in arguments become paths, and files that tools write become "
        "artifact:// resources. The command runs in a folder of its session. {ws}, {in}, {out} and {tmp} in the "
        "command are replaced with folders of the session",
    )
    wrap.add_argument(
        "--artifact-root",
        action="append",
        default=[],
        metavar="DIR",
        help="with --files: further folder from which tools may return files",
    )
    wrap.add_argument(
        "--links",
        choices=("both", "resource_link", "text"),
        help="with --files: how results refer to files: resource_link blocks, texts, or both; default both. Use text "
        "for clients that reject resource_link, such as AutoGen and Semantic Kernel",
    )
    wrap.add_argument(
        "--storage", metavar="DIR", help="folder to keep files and records in; default: a temporary folder"
    )
    wrap.add_argument("--cwd", metavar="DIR", help="working directory of the command")
    wrap.add_argument("--inherit-env", action="store_true", help="pass the whole environment to the command")
    wrap.add_argument("--allow-host", action="append", default=[], metavar="HOST", help="further Host header to accept")
    wrap.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="origin of web pages to accept, such as https://example.com",
    )


def _parse_workers(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= WORKERS_MAX):
        raise ValueError(f"got {text!r}, expected a number from 1 to {WORKERS_MAX}")
    return int(text)


def _parse_warm(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not (text.isascii() and text.isdigit() and int(text) <= WARM_MAX):
        raise ValueError(f"got {text!r}, expected auto, or a number from 0 to {WARM_MAX}")
    return int(text)


def add_check_and_convert(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    check_about = "Validate a configuration, start every server, and report problems."
    check = add(
        "check",
        parents=parents,
        help=as_help(check_about),
        description=f"{check_about} Exit code 1: a server does not answer, or lacks a tool or argument that the "
        "configuration names.",
    )
    check.add_argument("config", nargs="?", metavar="CONFIG", help=CONFIG_HELP)
    check.add_argument(
        "--eras",
        action="store_true",
        help="list the protocol revisions of each server, and the features that are translated for other clients",
    )
    convert_about = "Convert the configuration of an MCP client into one of Isthmus."
    convert = add(
        "convert",
        parents=parents,
        help=as_help(convert_about),
        description=f"{convert_about} Variables are kept. An input without a value becomes a variable. The values of "
        "an envFile are included.",
    )
    convert.add_argument("config", nargs="?", metavar="CONFIG", help=CONFIG_HELP)
    convert.add_argument(
        "--output",
        metavar="FILE",
        help="write to FILE, as JSON if it ends in .json, else as YAML; default: stdout",
    )
    convert.add_argument("--force", action="store_true", help="replace an existing file")
