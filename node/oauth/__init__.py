"""Tokens of OAuth 2 providers (RFC 7519, 9068): which count here, and what they say. Pure: keys, token and time in, a
user or a reason out."""
