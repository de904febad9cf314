"""Tarry: a delayed-message broker that is on time to the millisecond and keeps what is far away in an open Delta table."""

__version__ = "0.1.0"
