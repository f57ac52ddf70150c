"""The version, which `pyproject.toml` reads from here, and the description, as it stands there: reading the package
metadata would slow every start."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.2.0"
DESCRIPTION: Final = "A sans-IO proxy engine for the Model Context Protocol, and the proxy built on it."
