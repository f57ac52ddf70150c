"""Configuration files of MCP clients and gateways, read as they are: a document in, one of our form out.

`documents.convert` is the way in. Where servers stand, who writes which key and what is a variable are tables.
"""
