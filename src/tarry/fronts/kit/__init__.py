"""Shared parts of all fronts: event loop, sockets, TLS, receiving, settling, unread answers."""
