"""The parsers of the commands about logins, callers' tokens and the lock: `login`, `logout`, `auth`, `token`, `pin`."""

from __future__ import annotations

import argparse

from .listen_options import DEFAULT_LISTEN
from .option_groups import AS_JSON, CONFIG_HELP, RUNNING_HELP, Add, as_help


def add_logins(add: Add, shared: argparse.ArgumentParser, running: argparse.ArgumentParser) -> None:
    target = argparse.ArgumentParser(add_help=False)
    target.add_argument(
        "target", nargs="+", metavar="[CONFIG] ID | URL", help="a server of a configuration, or its URL"
    )
    about = "Log in at a server that requires OAuth, with a browser."
    login = add(
        "login",
        parents=[shared, target],
        help=as_help(about),
        usage="isthmus login [options] [CONFIG] ID | isthmus login [options] URL",
        description=f"{about} Every isthmus of this user uses the login, and renews it automatically.",
        epilog="Example: isthmus login https://mcp.example.com/mcp",
    )
    login.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="further scope to request")
    login.add_argument(
        "--device", action="store_true", help="show a code to enter on another device, instead of opening a browser"
    )
    login.add_argument(
        "--paste", action="store_true", help="log in with a browser on another machine, and paste its final URL here"
    )
    login.add_argument("--no-browser", action="store_true", help="print the URL to open, instead of opening a browser")
    login.add_argument("--port", type=int, metavar="N", help="port of the redirect URI; default 33418, or a free one")
    caller = "caller of the gateway that the login is for, such as token:alice"
    login.add_argument("--as", dest="caller", default="", metavar="CALLER", help=caller)
    about = "Remove the login at a server."
    usage = "isthmus logout [CONFIG] ID | isthmus logout URL"
    logout = add("logout", parents=[shared, target], help=as_help(about), usage=usage, description=about)
    logout.add_argument("--as", dest="caller", default="", metavar="CALLER", help=caller)
    about = "List the stored logins, move them to another machine, or revoke the tokens of a caller."
    usage = (
        "isthmus auth ls [--json] [CONFIG] | isthmus auth export [CONFIG] FILE | isthmus auth import [CONFIG] FILE | "
        "isthmus auth revoke [options] CALLER"
    )
    auth = add("auth", parents=[shared], help=as_help(about), usage=usage, description=about)
    verbs = auth.add_subparsers(dest="verb", required=True, metavar="VERB", prog="isthmus auth", help="what to do")
    about = "List the logins."
    config = "the logins are those of this configuration, which may name storage.records; default: those of this user"
    verb = verbs.add_parser("ls", help=as_help(about), description=about, usage="isthmus auth ls [--json] [CONFIG]")
    verb.add_argument("words", nargs="*", metavar="CONFIG", help=config)
    verb.add_argument("--json", action="store_true", help=AS_JSON)
    for name, about in (
        ("export", "Move all logins into a new file, encrypted with a passphrase."),
        ("import", "Store the logins of a file that `export` has written."),
    ):
        more = f"{about} The passphrase is the value of ISTHMUS_EXPORT_KEY, or is asked for on the terminal."
        usage = f"isthmus auth {name} [CONFIG] FILE"
        verb = verbs.add_parser(name, help=as_help(about), description=more, usage=usage)
        verb.add_argument("words", nargs="+", metavar="[CONFIG] FILE", help=f"the file; with CONFIG, {config}")
    about = "Revoke all current tokens of a caller of a running isthmus."
    revoke = verbs.add_parser(
        "revoke",
        parents=[running],
        help=as_help(about),
        description=f"{about} The caller can use a token that is issued later. A static token stays revoked until its "
        "entry in the configuration has another sha256.",
        epilog="Example: isthmus auth revoke token:ci",
    )
    revoke.add_argument("name", metavar="CALLER", help="as the audit log shows it: token:ci, jwt:ISSUER|NAME")
    revoke.add_argument("--json", action="store_true", help=AS_JSON)


def add_token(add: Add, shared: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Adds `isthmus token` and its verbs."""
    about = "Create a static token for a caller, or print the local token of a running isthmus."
    usage = "isthmus token new [options] NAME | isthmus token show [options] [URL]"
    token = add("token", parents=[shared], help=as_help(about), usage=usage, description=about)
    verbs = token.add_subparsers(dest="verb", required=True, metavar="VERB", prog="isthmus token", help="what to do")
    about = "Create a static token for a caller, and its entry for the configuration."
    new = verbs.add_parser(
        "new",
        parents=[shared],
        help=as_help(about),
        usage="isthmus token new [options] NAME",
        description=f"{about} The token is printed on stdout, the entry on stderr.",
        epilog="Example: isthmus token new ci --group robots --expires 2027-01-31",
    )
    new.add_argument("name", metavar="NAME", help="the caller's name, in logs and as the owner of its files")
    new.add_argument("--group", action="append", default=[], metavar="GROUP", help="group of the caller")
    new.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="scope of the token")
    new.add_argument("--expires", metavar="DAY", help="expiry date in UTC, such as 2027-01-31; default: never")
    about = "Print the local token of a running isthmus of this user, for its management pages."
    show = verbs.add_parser(
        "show",
        parents=[shared],
        help=as_help(about),
        usage="isthmus token show [options] [URL]",
        description=f"{about} An isthmus has one if its configuration has neither auth nor core.management.token, and "
        "only this machine can reach it.",
        epilog=f'Example: curl -H "Authorization: Bearer $(isthmus token show)" http://{DEFAULT_LISTEN}/files',
    )
    show.add_argument("url", nargs="?", default=f"http://{DEFAULT_LISTEN}", metavar="URL", help=RUNNING_HELP)
    return list(verbs.choices.values())


def add_pin(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    about = "Write the current definitions of tools, prompts and resources to a lock file, as approved."
    pin = add(
        "pin",
        parents=parents,
        help=as_help(about),
        description=f"{about} Servers that are already in the lock file are compared with it. The lock file is "
        "pins.file, by default isthmus.lock beside the configuration. Exit code 1: a definition differs "
        "from the lock file, or a server does not answer.",
        epilog="Examples: isthmus pin; isthmus pin --diff; isthmus pin --approve github/search_code",
    )
    pin.add_argument("config", nargs="?", metavar="CONFIG", help=CONFIG_HELP)
    what = pin.add_mutually_exclusive_group()
    what.add_argument("--diff", action="store_true", help="show the differences, and write nothing")
    what.add_argument(
        "--approve",
        nargs="?",
        action="append",
        const="",
        metavar="ID[/NAME]",
        help="approve the changes of a server, or of one of its tools, prompts or resources; default: all",
    )
