"""Errors of object stores, in parts: code, status and message, or the cause of no connection."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

_CODE, _MESSAGE = re.compile(r"<Code>(.*?)</Code>"), re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_STATUS = re.compile(r"status code:? (\d+[^:<]*)")
_DECORATION = re.compile(r"\x1b\[\d*m|\u21b3")
"""Colours and arrows that delta-rs puts into its errors."""
_CAUSES = (
    ("ConnectionRefused", "nothing listens there"),
    ("Connection refused", "nothing listens there"),
    ("dns error", "the name is not known"),
    ("curlCode: 7,", "nothing listens there"),
    ("curlCode: 6,", "the name is not known"),
    ("curlCode: 28,", "no answer in time"),
    ("TimedOut", "no answer in time"),
    ("timed out", "no answer in time"),
)
_SETTINGS = (
    ("InvalidContentType", "it does not speak TLS; allowed: http://… with {http}=true, or one that does"),
    ("URL scheme is not allowed", "it is without TLS; allowed: https://…, or {http}=true"),
    ("BadScheme", "it is without TLS; allowed: https://…, or {http}=true"),
    ("certificate", "its certificate is not trusted; allowed: one of an authority that this machine trusts"),
)
"""Causes that somebody has to mend before it is of use to ask again."""


class WhyUnanswered(NamedTuple):
    """The reason for which there is no answer.

    ``is_refusal``: to ask again is of no use before somebody mends it.
    """

    text: str
    is_refusal: bool = False


class StoreError(NamedTuple):
    """An error of obstore or delta-rs, in one line, and what is found in it; "" is what is not."""

    text: str
    code: str
    status: str
    message: str

    @classmethod
    def of(cls, text: str) -> StoreError:
        text = " ".join(_DECORATION.sub("", text).split())
        found = [pattern.search(text) for pattern in (_CODE, _STATUS, _MESSAGE)]
        code, status, message = (html.unescape(each[1]).strip() if each else "" for each in found)
        return cls(text, code, status, message)

    def no_connection(self, endpoint: str, http: str) -> WhyUnanswered | None:
        """Return why there is no connection to ``endpoint``; None: there was one, or it is not known.

        ``http``: the variable that allows one without TLS.
        """
        if self.code or self.status:
            return None
        setting = next((why for sign, why in _SETTINGS if sign in self.text), None)
        if setting is not None:
            return WhyUnanswered(f"no connection to {endpoint}: {setting.format(http=http)}", True)
        cause = next((why for sign, why in _CAUSES if sign in self.text), None)
        return None if cause is None else WhyUnanswered(f"no connection to {endpoint}: {cause}")

    def other(self, endpoint: str) -> str:
        """Return the sentence for what has none of its own."""
        if self.code or self.status:
            return f"{endpoint} answered {', '.join(filter(None, (self.status, self.code, self.message)))}"
        return f"no answer from {endpoint}: {self.text.partition('Debug source')[0].strip()[-200:]}"
