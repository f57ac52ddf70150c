"""Lists the packages by rule: every folder with Python files below the four that are installed under `isthmus`, and the
change notes, which `isthmus vendor` reads."""

from setuptools import find_packages, setup

PARTS = ("core", "transports", "storage", "app")

setup(packages=["isthmus.changes", *(f"isthmus.{name}" for name in find_packages() if name.partition(".")[0] in PARTS)])
