"""The account of ``make relay-campaign``: that it would tell what is lost, comes twice, or comes early."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from tests.kafka.campaign import HEAD, Account, Campaign


def test_what_is_lost_comes_twice_or_early_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = Campaign(500, tmp_path, 1)
    account = campaign.account = Account(sent=4, acknowledged={0, 1, 2})

    def come(number: int, sent_ms: int = 1000, due_ms: int = 3000, written_ms: int = 3000, seen_ms: int = 3001) -> None:
        account.take(HEAD.pack(number, sent_ms, due_ms) + b"fill", written_ms, seen_ms)

    for number in (0, 1, 2):
        come(number)
    assert (account.lost(), account.twice(), account.early, account.newest) == ([], [], [], [2, 1])
    assert campaign.report()
    come(2)
    assert account.twice() == [2]
    assert not campaign.report()
    account.seen[2] = 1
    account.acknowledged.add(3)
    assert account.lost() == [3]
    assert not campaign.report()
    come(3, written_ms=2999)
    assert (account.lost(), len(account.early)) == ([], 1)
    assert not campaign.report()
    come(5, due_ms=1000)  # it passed through, which says nothing of what waits
    assert account.newest == [2, 3]
    assert "early: 1, the first: ['3: due 3000, written 2999, seen 3001']" in capsys.readouterr().out
