"""Reasons of consumers for the last failed tries of messages: for the history, and for dead letters.

In memory alone: a dead letter has the reason durably, and a message that is tried again after a restart has a new one
soon. Only the latest of a group are kept, so that a topic on which every try fails does not fill the memory with texts.
"""

from __future__ import annotations

from tarry.base.types import Int64s

REASONS_MAX = 4096
"""Messages of a group whose reason is kept."""
TEXT_MAX = 500
"""Characters of a reason; a longer one is cut."""


class Reasons:
    """Reasons by offset; guarded by the group's lock."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def note(self, offsets: Int64s, text: str | None) -> None:
        """Note that a try of these offsets failed, for this reason or for an unknown one."""
        self.forget(offsets)
        if text:
            text = text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
            self._texts.update(dict.fromkeys(offsets[-REASONS_MAX:].tolist(), text))
            for offset in list(self._texts)[: len(self._texts) - REASONS_MAX]:
                del self._texts[offset]

    def get(self, offset: int) -> str | None:
        """Return the reason of an offset, if it is known."""
        return self._texts.get(offset)

    def of(self, offsets: Int64s) -> list[str | None] | None:
        """Return the reason of each of these offsets; None if no reason is known at all."""
        if not self._texts:
            return None
        texts = [self._texts.get(offset) for offset in offsets.tolist()]
        return texts if any(texts) else None

    def forget(self, offsets: Int64s) -> None:
        """Forget the reasons of offsets that are settled, or failed anew."""
        if self._texts:
            for offset in offsets.tolist():
                self._texts.pop(offset, None)

    def clear(self) -> None:
        self._texts.clear()
