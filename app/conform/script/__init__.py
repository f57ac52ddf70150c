"""Conversations of clients and behaviours of servers, as plain data.

`steps` and `behaviour` hold the data, `answers` and `simulated_tasks` the reactions to the peer, `survey` and
`client_survey` what a peer can do, `schema` the official JSON Schemas.
"""
