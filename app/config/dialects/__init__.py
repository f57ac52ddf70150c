"""Configuration files of MCP clients and gateways, read as they are: a document in, one of our form out.

`conversion.convert` is the way in. A dialect is a row of `clients.CLIENTS`: where its servers stand, whose keys these
are, and the units. What a key of a server means is a row of `keys.KEYS`, for all clients. Keys beside the servers are
in `particulars`, and a place that is new is in `recognition`. Each row has a sample in the tests.
"""
