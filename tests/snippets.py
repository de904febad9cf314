"""The snippets of the README and of the pages in ``docs``, with what is said of those that cannot be run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN_MAX = 1
"""So many are marked as not to be run. A new one takes a reason that convinces."""
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """``reason``: why it is not run, in the words of the page."""

    page: str
    line: int
    language: str
    code: str
    reason: str | None

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def takes_spark(self) -> bool:
        return "tarry.spark" in self.code

    def commands(self, program: str) -> list[list[str]]:
        """The words of each command of ``program`` in it."""
        # A pipe's other end, what comes while it runs, and what the shell puts in, are not the command's.
        code = re.sub(r"\$\([^)]*\)", "HERE", self.code.replace("\\\n", " "))
        lines = [re.split(r" [|&]( |$)", line)[0] for line in code.splitlines()]
        words = [shlex.split(line, comments=True) for line in lines if re.search(rf"(^|\s){program} ", line)]
        return [each[each.index(program) + 1 :] for each in words if program in each]


def snippets(language: str) -> list[Snippet]:
    """All of a language, page by page."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for block in _BLOCK.finditer(text):
            if block["language"] == language:
                line = text[: block.start("code")].count("\n")
                found.append(Snippet(str(page.relative_to(ROOT)), line, language, block["code"], block["reason"]))
    return found
