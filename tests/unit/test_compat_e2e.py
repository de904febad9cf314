"""How RocketMQ's own end-to-end tests are found, and what counts as failed; to run them is `make compat`'s."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.rocketmq import e2e, e2e_java
from tests.compat.rocketmq.e2e import Outcome
from tests.compat.sources import NoSourceError, clone

CASES = """<testsuite>
<testcase classname="org.a.DelayTest" name="level(int)"><failure message="too late&#10;at"/></testcase>
<testcase classname="org.a.DelayTest" name="level(int)"/>
<testcase classname="org.a.DelayTest" name="now()"/>
<testcase classname="org.a.DelayTest" name="left()"><skipped/></testcase>
</testsuite>"""


def test_a_source_that_cannot_be_cloned_is_left_out_and_says_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError, match=r"nowhere cannot be had at abc .*; allowed: a path"):
        clone(str(tmp_path / "nowhere"), "abc", tmp_path / "clone", "a path")


def test_a_path_that_is_no_checkout_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        e2e.main([str(tmp_path)])
    assert end.value.code == 2
    assert f"{tmp_path} is no checkout of" in capsys.readouterr().err


def test_without_a_source_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(e2e.CHECKOUT, raising=False)
    monkeypatch.setattr(e2e.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(e2e, "URL", str(tmp_path / "nowhere"))
    assert e2e.main(["--part", "v4"]) == 0
    assert "e2e: left out:" in capsys.readouterr().err


def test_without_its_tool_a_part_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(e2e.shutil, "which", lambda tool: None)
    assert e2e.main(["--part", "v4"]) == 0
    assert "e2e, v4: left out: mvn is not installed" in capsys.readouterr().err


def test_a_test_of_several_values_fails_with_any_of_them(tmp_path: Path) -> None:
    (tmp_path / "TEST-junit-jupiter.xml").write_text(CASES)
    assert e2e_java.outcomes(tmp_path) == {"DelayTest.level": "too late", "DelayTest.now": ""}


@pytest.mark.parametrize(
    ("text", "known", "may_pass", "mark"),
    [
        ("", "", False, "ok"),
        ("late", "", False, "FAILED"),
        ("late", "by design", False, "expected"),
        ("", "by design", False, "PASSED"),
        ("", "by design", True, "ok"),
    ],
)
def test_what_has_to_fail_may_not_pass_unnoticed(text: str, known: str, may_pass: bool, mark: str) -> None:
    assert Outcome("v4", "DelayTest.level", text, known, may_pass).mark == mark
