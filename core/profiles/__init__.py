"""Profiles: one endpoint that shows several servers. Names and URIs of its servers, and messages in which they are
rewritten."""
