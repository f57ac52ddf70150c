"""`isthmus token new`: makes a static token, and shows the lines that let it in."""

from __future__ import annotations

import argparse
import json
import os

from ...core.access.static_tokens import digest_of, new_token
from ..base import logs, output
from ..base.errors import ConfigError
from ..config.access_checks import day_of


def new(options: argparse.Namespace) -> None:
    """Prints a new token on stdout, alone, and on stderr the entry of a configuration that lets it in.

    Raises:
        ConfigError: a value cannot be used.
    """
    if not options.name or not options.name.isprintable():
        raise ConfigError(f"got the name {options.name!r}, expected printable characters")
    if options.expires is not None and day_of(options.expires) is None:
        raise ConfigError(f"got --expires {options.expires!r}, expected a day such as 2027-01-31")
    token = new_token(os.urandom)
    entry = {"name": options.name, "sha256": digest_of(token).hex()}
    members = [f"{name}: {json.dumps(value)}" for name, value in entry.items()]
    for name, values in (("groups", options.group), ("scopes", options.scope)):
        if values:
            members.append(f"{name}: [{', '.join(map(json.dumps, values))}]")
    if options.expires is not None:
        members.append(f'expires: "{options.expires}"')
    logs.say("put this into the configuration, and give the token to the caller; it is shown only now")
    logs.say(f"auth:\n  tokens:\n    - {{{', '.join(members)}}}")
    output.say(token)
