"""What a program has to say, of two keys of different rights and of none: one line for each of :data:`EXPECTATIONS`.

A line is ``NAME: done``, or ``NAME: refused: TEXT`` with the text of the client's own error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.compat.identities.sessions import Names, Session

READY = "ready"
"""Said by a program whose two clients run: now their keys are to be removed."""
DONE = "done"
REFUSED = "refused: "
REMOVED_S = 3.0
"""Within which a removed key has to be refused; the page says a second, and this machine may be busy."""
REPLACED = "(the client's own words)"


@dataclass(frozen=True)
class Expectation:
    """One attempt of a program, and what becomes of it."""

    name: str
    meaning: str
    refused_with: tuple[str, ...] = ()
    """Words that the refusal has in it; none: it is not refused.

    ``{topic}``, ``{other}`` and ``{group}`` are names, ``A|B`` is either of the two.
    """
    while_running: bool = False
    """It ends when the keys are removed, within :data:`REMOVED_S`."""


SIGNED = ("signature of access key",)
"""The broker's word on a key that is none, any more; :data:`SHOWN` on a token."""
SHOWN = ("[401]invalid token",)
UNKNOWN = ("as whom you come without a credential",)
ENDED = ("signature of access key|credential of this connection was removed",)
"""To a consumer that runs: the end of its wait, or the answer to the next one."""

EXPECTATIONS = (
    Expectation("send", "the sender's key sends"),
    Expectation("receive", "the receiver's key receives and acknowledges"),
    Expectation("receive-by-sender", "the sender's key receives", ("consume", "{topic}")),
    Expectation("send-by-receiver", "the receiver's key sends", ("produce", "{topic}")),
    Expectation("send-elsewhere", "the sender's key sends to another topic", ("{other}",)),
    Expectation("receive-elsewhere", "the receiver's key receives from another topic", ("{other}",)),
    Expectation("receive-as-others", "the receiver's key receives for another group", ("consume", "{group}-others")),
    Expectation("anonymous-sends", "a client without credentials sends where `anonymous` may"),
    Expectation("anonymous-sends-elsewhere", "it sends to another topic", (*UNKNOWN, "{topic}")),
    Expectation("anonymous-receives", "it receives", UNKNOWN),
    Expectation("wrong-secret-sends", "the sender's key with a wrong secret", SIGNED),
    Expectation("wrong-secret-receives", "the receiver's key with a wrong secret", SIGNED),
    Expectation("running-sender", "a producer whose key is removed while it runs", SIGNED, while_running=True),
    Expectation("running-receiver", "a consumer whose key is removed while it runs", ENDED, while_running=True),
    Expectation("revoked-sends", "a new producer with the removed key", SIGNED),
    Expectation("revoked-receives", "a new consumer with the removed key", SIGNED),
)


@dataclass(frozen=True)
class Verdict:
    """What came of an expectation."""

    name: str
    holds: bool
    said: str


def judge(session: Session, names: Names, own_words: Mapping[str, tuple[str, ...]], *, tokens: bool) -> list[Verdict]:
    """Say of each expectation whether it holds, and at the end of what else went wrong.

    Args:
        own_words: what a refusal has in it where the client does not show the broker's text, by expectation.
        tokens: whether the client shows tokens and has no groups, as lmstfy's.
    """
    verdicts = [_judge(each, session, names, own_words.get(each.name), tokens) for each in _of(tokens)]
    unknown = session.answers.keys() - {each.name for each in EXPECTATIONS}
    problems = [*session.problems, *(f"{name}: nobody expects that" for name in sorted(unknown))]
    return [*verdicts, *(Verdict("program", False, problem) for problem in problems)]


def _of(tokens: bool) -> list[Expectation]:
    return [each for each in EXPECTATIONS if not (tokens and each.name == "receive-as-others")]


def _judge(
    each: Expectation, session: Session, names: Names, own_words: tuple[str, ...] | None, tokens: bool
) -> Verdict:
    answer = session.answers.get(each.name)
    if answer is None:
        return Verdict(each.name, False, "not said")
    if not each.refused_with:
        return Verdict(each.name, answer == DONE, answer)
    words = own_words or (SHOWN if tokens and each.refused_with in (SIGNED, ENDED) else each.refused_with)
    spelt = [word.format(topic=names.topic, other=names.other, group=names.group) for word in words]
    named = all(any(one in answer for one in word.split("|")) for word in spelt)
    holds = answer.startswith(REFUSED) and named
    if each.while_running:
        if session.removed_s is None:
            return Verdict(each.name, False, f"{answer} (before its key was removed)")
        after_s = session.at_s[each.name] - session.removed_s
        return Verdict(each.name, holds and after_s <= REMOVED_S, f"{answer} (after {after_s:.2f} s)")
    if own_words and holds:
        answer = f"{answer} {REPLACED}"
    return Verdict(
        each.name, holds, answer if holds or not answer.startswith(REFUSED) else f"{answer}; needed: {words}"
    )
