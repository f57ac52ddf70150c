"""Logins at servers: the OAuth client, without IO.

A flow (`login`, `device`, `grants`) is a generator. It yields requests of `requests`, is sent their replies, and
returns a `Login` or raises `LoginFailed`. `credentials` keeps what a login gave: it says when a token is used, when it
is renewed, and when a person has to log in again. Both take the time and random bytes as arguments.
"""
