"""Codecs: bytes to messages and back."""
