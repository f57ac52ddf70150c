"""The parsers of the commands about logins, callers' tokens and the lock: `login`, `logout`, `auth`, `token`, `pin`."""

from __future__ import annotations

import argparse

from .option_groups import AS_JSON, CONFIG_HELP, Add, as_help


def add_logins(add: Add, shared: argparse.ArgumentParser, running: argparse.ArgumentParser) -> None:
    target = argparse.ArgumentParser(add_help=False)
    target.add_argument(
        "target", nargs="+", metavar="[CONFIG] ID | URL", help="a server of a configuration, or its URL"
    )
    about = "Log in at a server that wants a login, with a browser."
    login = add(
        "login",
        parents=[shared, target],
        help=as_help(about),
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
    logout = add("logout", parents=[shared, target], help=as_help(about), usage=usage, description=about)
    logout.add_argument("--as", dest="caller", default="", metavar="CALLER", help=caller)
    about = (
        "Show the logins that are kept, and never a token; move them to another machine; or revoke a caller's tokens."
    )
    usage = (
        "isthmus auth ls [--json] | isthmus auth export FILE | isthmus auth import FILE | "
        "isthmus auth revoke [options] CALLER"
    )
    auth = add("auth", parents=[shared], help=as_help(about), usage=usage, description=about)
    verbs = auth.add_subparsers(dest="verb", required=True, metavar="VERB", prog="isthmus auth", help="what to do")
    about = "List the logins."
    verbs.add_parser("ls", help=as_help(about), description=about).add_argument(
        "--json", action="store_true", help=AS_JSON
    )
    for name, about in (
        ("export", "Move all logins into a new file, sealed with a passphrase."),
        ("import", "Take the logins of such a file."),
    ):
        more = f"{about} The passphrase is that of ISTHMUS_EXPORT_KEY, or asked for on the terminal."
        verb = verbs.add_parser(name, help=as_help(about), description=more)
        verb.add_argument("file", metavar="FILE", help="the file")
    about = "Revoke what a caller of a running isthmus has shown so far."
    revoke = verbs.add_parser(
        "revoke",
        parents=[running],
        help=as_help(about),
        description=f"{about} A new token lets it in again, as the same caller. A static token stays refused until its "
        "entry in the configuration has another sha256.",
        epilog="Example: isthmus auth revoke token:ci",
    )
    revoke.add_argument("name", metavar="CALLER", help="as the audit log shows it: token:ci, jwt:ISSUER|NAME")
    revoke.add_argument("--json", action="store_true", help=AS_JSON)


def add_token(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Make a static token for a caller, and the lines of a configuration that let it in."
    token = add(
        "token",
        parents=[shared],
        help=as_help(about),
        usage="isthmus token new [options] NAME",
        description=f"{about} The token is printed on stdout, the lines on stderr.",
        epilog="Example: isthmus token new ci --group robots --expires 2027-01-31",
    )
    token.add_argument("verb", choices=("new",), help="make one")
    token.add_argument("name", metavar="NAME", help="the caller's name, in logs and as the owner of its files")
    token.add_argument("--group", action="append", default=[], metavar="GROUP", help="a group that the caller is in")
    token.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="something that the token allows")
    token.add_argument("--expires", metavar="DAY", help="the day on which it ends, such as 2027-01-31; default: never")


def add_pin(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    about = "Write the lock: what servers list now is what you approve."
    pin = add(
        "pin",
        parents=parents,
        help=as_help(about),
        description=f"{about} A server that is in the lock is compared with it. The lock is isthmus.lock beside "
        "the configuration, or pins.file. Exit code 1: something differs from the lock, or a server cannot be asked.",
        epilog="Examples: isthmus pin; isthmus pin --diff; isthmus pin --approve github/search_code",
    )
    pin.add_argument("config", nargs="?", metavar="CONFIG", help=CONFIG_HELP)
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
