"""Explicit-state models of what the code does, and what their runs have to find."""
