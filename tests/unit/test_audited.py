"""The operations that the audit log has follow from the rights that they need, and no field of one is unclassified."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tarry.api import operations as ops
from tarry.api.audited import AUDITED, OF_THE_LOG, TOLD, UNTOLD, AuditKind, right_of, told
from tarry.api.needs import OnFound, Right


def test_all_that_needs_manage_or_admin_is_written() -> None:
    needed = {kind for kind in ops.OPERATIONS if right_of(kind.needs) in (Right.MANAGE, Right.ADMIN)}
    assert set(AUDITED) == needed | {ops.CancelJob}


def test_what_changes_who_may_do_what_is_written_before_it_begins() -> None:
    before = {kind for kind, audited in AUDITED.items() if audited is AuditKind.IDENTITY}
    changes = {ops.SetIdentity, ops.DeleteIdentity, ops.AddCredential, ops.RemoveCredential}
    assert before == changes | {ops.CreateToken, ops.LimitToken, ops.DeleteToken}


@pytest.mark.parametrize("kind", AUDITED, ids=lambda kind: kind.__name__)
def test_each_field_is_told_or_is_not(kind: Any) -> None:
    names = {each.name for each in fields(kind)}
    assert names <= TOLD | UNTOLD
    assert not {each.name for each in fields(kind) if not each.repr} & TOLD
    # The broker asks about these itself, when it has found what they are about; none of them is written there.
    assert not isinstance(kind.needs, OnFound)


def test_no_list_has_a_name_of_no_field() -> None:
    names = {each.name for kind in AUDITED for each in fields(kind)}  # type: ignore[arg-type]
    assert not TOLD & UNTOLD
    assert names == TOLD | UNTOLD


def test_the_page_names_what_is_written() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit-log.md").read_text()
    listed = page.split("## Operations")[1].split("## Reasons")[0]
    assert {
        name for name in OF_THE_LOG + tuple(kind.wire.name for kind in AUDITED) if f"`{name}`" not in listed
    } == set()


def test_secrets_are_not_told() -> None:
    push = ops.SetPushSubscription(
        "p", topic="t", url="https://u:pw@example.org:8443/path?key=5", secrets=["whsec_x"], headers={"a": "b"}
    )
    assert told(push) == {"name": "p", "topic": "t", "rotate": False, "origin": "https://example.org:8443"}
    assert told(ops.CreateToken("n", "d", "x" * 20)) == {"namespace": "n", "description": "d"}
    key = ops.AddCredential("i", kind="access_key", access_key="AK", secret="y" * 20)
    assert "y" * 20 not in str(told(key))
    assert told(ops.SetPushSubscription("p", url="http://[bad"))["origin"] == "none"
    assert told(ops.SetGroup.of("t", "g", tries=3)) == {"topic": "t", "group": "g", "settings": {"tries": 3}}
