"""Searches for broken rules with Hypothesis.

`trial.run` runs a search; `server_trial` and `client_trial` make the trials of a server and of a client.
"""
