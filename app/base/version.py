"""What this is called. As in `pyproject.toml`; asking the installed package for it would slow every start down."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
DESCRIPTION: Final = "A sans-IO proxy engine for the Model Context Protocol, and the proxy built on it."
