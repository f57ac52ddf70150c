"""Logins at servers: where credentials are kept."""
