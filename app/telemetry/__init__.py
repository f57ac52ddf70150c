"""Records of requests for other programs, such as the audit log."""
