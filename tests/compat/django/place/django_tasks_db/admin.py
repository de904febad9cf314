"""Names that the tests import; those that use them are left out."""

from __future__ import annotations

from typing import Any

DBTaskResultAdmin: Any = None
