"""Logins of callers at servers, which a person makes in a browser at `/connect/ID`."""
