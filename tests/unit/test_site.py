"""The site of docs/: strict, with each page in its navigation, and each question answered by a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS_MIN = 30


def test_each_question_has_an_answer() -> None:
    """That the places are there is held for all links of docs/, by ``test_docs.py``."""
    text = (ROOT / "docs" / "questions.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    asked = [row for row in rows if row != ["question", "answer"]]
    assert len(asked) >= QUESTIONS_MIN
    assert len({question for question, _ in asked}) == len(asked)
    for question, answer in asked:
        assert re.search(r"\]\([a-z-]+\.md(#[a-z-]+)?\)", answer), question


@pytest.mark.rest
def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    """A warning is a page outside the navigation, or a link or an anchor that leads nowhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "site/mkdocs.yml"]
    done = subprocess.run(
        [*command, "--site-dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "reference-python.html").read_text()
    assert 'id="tarry.Client.schedule"' in api
    assert ":meth:" not in api
    assert "../README.md" not in (tmp_path / "worker-compared.html").read_text()
