"""Lists the packages by rule: every folder with Python files below the four that are installed under `isthmus`."""

from setuptools import find_packages, setup

PARTS = ("core", "transports", "storage", "app")

setup(packages=[f"isthmus.{name}" for name in find_packages() if name.partition(".")[0] in PARTS])
