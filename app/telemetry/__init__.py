"""What other programs learn of requests."""
