"""The settings of a configuration with what the options of a command say in their place."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec

from ..base.errors import ConfigError
from ..config.settings import Settings
from ..config.ui_checks import check_ui
from .listen_options import with_address


def settled(settings: Settings, options: argparse.Namespace) -> Settings:
    """Returns the settings with what the options of `isthmus serve` say in their place.

    Raises:
        ConfigError: the options say nothing that it can listen on.
    """
    settings = with_ui(answered(settings, options), options)
    return msgspec.structs.replace(settings, core=with_address(settings.core, options))


def with_ui(settings: Settings, options: argparse.Namespace) -> Settings:
    """Returns the settings with the live page that the options ask for.

    Raises:
        ConfigError: other machines could reach it, and nothing says who may.
    """
    if options.ui is None:
        return settings
    settings = msgspec.structs.replace(settings, ui=msgspec.structs.replace(settings.ui, listen=options.ui))
    for problem in check_ui(settings, lambda key: True):
        raise ConfigError(f"got --ui-listen {options.ui}, expected {problem.expected}")
    return settings


def login_command_of(options: argparse.Namespace) -> Callable[[str], tuple[str, ...]]:
    """Returns the words of the command that logs in at a server of the file, from its id."""
    files = () if options.config is None else (options.config,)
    return lambda id: ("isthmus", "login", *files, id)


def answered(settings: Settings, options: argparse.Namespace) -> Settings:
    """Returns the settings with what the options say about callers who are not recognised."""
    if not options.allow_anonymous:
        return settings
    return msgspec.structs.replace(settings, auth=msgspec.structs.replace(settings.auth, anonymous="allow"))
