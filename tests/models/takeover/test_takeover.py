"""The takeover models find what they have to: a violation without each clause of the design, none with all of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.models.takeover.runs import COMPLETE, LONG, MODELS, WITHOUT_ONE, Found, Run, build, clauses, execute, faults

MEMORY_BYTES_MAX = 2 << 30
COMPILER = shutil.which("g++")
PAGE = Path(__file__).parents[3] / "docs" / "takeover-model.md"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("no g++ here, which builds the models")
    directory = tmp_path_factory.mktemp("models")
    build(COMPILER, directory)
    return directory


@pytest.mark.rest
@pytest.mark.parametrize("run", WITHOUT_ONE, ids=lambda run: run.name)
def test_without_a_clause_an_invariant_breaks(models: Path, run: Run) -> None:
    found = execute(run, models, MEMORY_BYTES_MAX)
    assert run.verdict.startswith("I") and faults(run, found) == []
    assert "    1. " in found.output, "it shows how"


@pytest.mark.rest
@pytest.mark.parametrize("run", COMPLETE, ids=lambda run: run.name)
def test_with_all_clauses_none_breaks(models: Path, run: Run) -> None:
    assert run.verdict == "complete"
    assert faults(run, execute(run, models, MEMORY_BYTES_MAX)) == []


@pytest.mark.rest
def test_a_switch_that_is_unknown_and_memory_that_ends_are_no_verdict(models: Path) -> None:
    for run in (Run("log", "without-wits", 1, ""), Run("lease", "", 1, "")):
        with pytest.raises(RuntimeError, match="no verdict"):
            execute(run, models, 24 << 20)


@pytest.mark.parametrize("model", MODELS)
def test_there_is_a_run_without_each_clause(model: str) -> None:
    run_without = {clause for run in WITHOUT_ONE if run.model == model for clause in run.taken_away[:1]}
    assert len(clauses(model)) >= 9
    assert run_without == set(clauses(model))


@pytest.mark.parametrize("model", MODELS)
def test_the_page_names_each_clause(model: str) -> None:
    page = PAGE.read_text()
    assert [clause for clause in clauses(model) if f"`{clause}`" not in page] == []


def test_what_is_not_as_expected_is_a_fault() -> None:
    run = Run("log", "no-trim progress", 7, "complete")
    right = Found("log no-trim progress", 7, "complete", 0, "")
    assert faults(run, right) == []
    for wrong in (
        right._replace(run="log"),
        right._replace(states=8),
        right._replace(verdict="bound reached"),
        right._replace(verdict="I1a"),
        right._replace(stuck=1),
        right._replace(stuck=None),
    ):
        assert len(faults(run, wrong)) == 1
    assert len({run.name for run in (*WITHOUT_ONE, *COMPLETE, *LONG)}) == len((*WITHOUT_ONE, *COMPLETE, *LONG))
    assert {run.model for run in LONG} == set(MODELS)
