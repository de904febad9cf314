"""Shared parts of all fronts: event loop and thread, sockets, TLS, waiting receives, unread answers."""
