"""Tests of somebody else's server: conversations are made up, played, judged by `core.oracle`, and made small."""
