"""The owners of access tokens: see :mod:`tarry.identity.access_tokens`."""

from __future__ import annotations

from tarry.identity.access_tokens import KnownTokens

__all__ = ["KnownTokens"]
