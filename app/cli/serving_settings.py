"""The settings of a configuration with what the options of a command say in their place."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec

from ..config.settings import Settings
from .listen_options import with_address


def settled(settings: Settings, options: argparse.Namespace) -> Settings:
    """Returns the settings with what the options of `isthmus serve` say in their place.

    Raises:
        ConfigError: the options say nothing that it can listen on.
    """
    settings = answered(settings, options)
    return msgspec.structs.replace(settings, core=with_address(settings.core, options))


def login_command_of(options: argparse.Namespace) -> Callable[[str], tuple[str, ...]]:
    """Returns the words of the command that logs in at a server of the file, from its id."""
    files = () if options.config is None else (options.config,)
    return lambda id: ("isthmus", "login", *files, id)


def answered(settings: Settings, options: argparse.Namespace) -> Settings:
    """Returns the settings with what the options say about callers who are not recognised."""
    if not options.allow_anonymous:
        return settings
    return msgspec.structs.replace(settings, auth=msgspec.structs.replace(settings.auth, anonymous="allow"))
