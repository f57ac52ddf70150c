"""Choice of the event loop and of the driver that moves bytes, from the environment and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from ...transports.base.driver import Drive
from ..base.errors import ConfigError, StartError
from ..config.settings import Core

DRIVER: Final = "ISTHMUS_DRIVER"
LOOP: Final = "ISTHMUS_LOOP"
DRIVERS: Final = ("protocols", "anyio")
LOOPS: Final = ("asyncio", "uvloop", "trio")


def drive_of(core: Core, environ: Mapping[str, str]) -> Drive:
    """Returns the driver of all transports; the environment takes precedence over the settings.

    Raises:
        ConfigError: the environment names an unknown driver.
    """
    driver = _chosen(environ, DRIVER, DRIVERS) or core.driver
    return Drive(protocols=driver == "protocols", only_h11=core.http == "h11")


def loop_of(environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns arguments for `anyio.run`: the event loop that the environment names, else uvloop if installed, else
    asyncio's own.

    Raises:
        ConfigError: the environment names an unknown event loop.
        StartError: the event loop is not installed.
    """
    loop = _chosen(environ, LOOP, LOOPS)
    if loop in ("uvloop", "trio") and find_spec(loop) is None:
        extra = "fast" if loop == "uvloop" else "trio"
        raise StartError(f"{LOOP} is {loop}, which is not installed: pip install 'isthmus[{extra}]'")
    if loop == "trio":
        return {"backend": "trio"}
    has_uvloop = loop == "uvloop" or (loop is None and find_spec("uvloop") is not None)
    return {"backend": "asyncio", "backend_options": {"use_uvloop": has_uvloop}}


def _chosen(environ: Mapping[str, str], name: str, values: tuple[str, ...]) -> str | None:
    value = environ.get(name, "")
    if value and value not in values:
        raise ConfigError(f"{name} is {value!r}, expected {', '.join(values[:-1])} or {values[-1]}")
    return value or None
