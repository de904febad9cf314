"""What counts as failed when official clients come with two keys; to run them is `make compat-identities`'s."""

import signal
from pathlib import Path

import pytest
from tests.compat.identities import run
from tests.compat.identities.expected import DONE, EXPECTATIONS, READY, REMOVED_S, judge
from tests.compat.identities.sessions import Names, Session

NAMES = Names("orders", "mailers", "stock", {"sender": "1", "receiver": "2"}, ("orders", "mailers"))
TEXT = "produce consume orders stock mailers-others signature of access key, as whom you come without a credential"


def session(**changed: str | None) -> Session:
    answers = {each.name: f"refused: {TEXT}" if each.refused_with else DONE for each in EXPECTATIONS}
    for name, answer in changed.items():
        if answer is None:
            del answers[name]
        else:
            answers[name] = answer
    return Session(answers, dict.fromkeys(answers, 11.0), removed_s=10.0)


def failed(of: Session, own_words: dict[str, tuple[str, ...]] | None = None) -> list[str]:
    return [one.name for one in judge(of, NAMES, own_words or {}, tokens=False) if not one.holds]


def test_all_as_expected() -> None:
    assert failed(session()) == []


@pytest.mark.parametrize("name", [each.name for each in EXPECTATIONS])
def test_each_that_is_missing_or_wrong(name: str) -> None:
    assert failed(session(**{name: None})) == [name]
    refuses = bool(next(each for each in EXPECTATIONS if each.name == name).refused_with)
    assert failed(session(**{name: DONE if refuses else "refused: nobody knows why"})) == [name]
    assert failed(session(**{name: "no answer in 20s"})) == [name]


def test_a_refusal_without_its_reason() -> None:
    silent = session(**{"send-elsewhere": "refused: no route"})
    assert failed(silent) == ["send-elsewhere"]
    assert failed(silent, {"send-elsewhere": ("no route",)}) == []
    assert failed(silent, {"send-elsewhere": ("no route of {other}",)}) == ["send-elsewhere"]


def test_a_removed_key_that_is_taken_for_too_long() -> None:
    late = session()
    late.at_s["running-sender"] = 10.0 + REMOVED_S + 0.1
    assert failed(late) == ["running-sender"]
    never = session()
    never.removed_s = None
    assert failed(never) == ["running-sender", "running-receiver"]


def test_what_nobody_expects() -> None:
    assert failed(session(**{"send-twice": DONE})) == ["program"]
    broken = session()
    broken.problems.append("the program ended with 1")
    assert failed(broken) == ["program"]


def test_the_words_of_clients_are_of_expectations() -> None:
    assert READY not in {each.name for each in EXPECTATIONS}
    for language, words in run.OWN_WORDS.items():
        assert language in run.LANGUAGES
        assert words.keys() <= {each.name for each in EXPECTATIONS}


def test_a_language_that_cannot_be_built_is_not_green(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def no_build(language: str) -> list[str]:
        raise run.MissingToolError(f"no tool for {language}")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the handler would stay
    monkeypatch.setattr(run, "build", no_build)
    monkeypatch.setattr(run, "WORKERS", ())
    assert run.main(["--language", "go"]) == 2
    assert "LEFT OUT go: no tool for go" in capsys.readouterr().out
