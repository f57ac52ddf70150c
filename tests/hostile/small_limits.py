"""The `isthmus` command with smaller limits, for those that an attack is to reach and that no key of the configuration
sets. At their usual values each would take gigabytes, or a minute, of the machine of the test."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from isthmus.core.base.limits import Limits

CONNECTIONS_MAX: Final = 512
UNREAD_MAX_BYTES: Final = 64 * 1024 * 1024
"""The longest answer of a server just fits."""


def small(limits: Limits) -> Limits:
    """Returns the limits with the smaller ones in their place."""
    import msgspec  # attacks read the values above, without any package

    return msgspec.structs.replace(
        limits, connections_per_address_max=CONNECTIONS_MAX, outboxes_max_bytes=UNREAD_MAX_BYTES
    )


def main() -> int:
    from isthmus.app import gateway
    from isthmus.app.cli.cli import main as isthmus

    to_limits = gateway.to_limits
    gateway.to_limits = lambda settings: small(to_limits(settings))
    return isthmus()


if __name__ == "__main__":
    sys.exit(main())
