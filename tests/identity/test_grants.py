"""Grants as text, and what rights they make: held against their definition, one grant after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tarry.api.needs import OF_THE_BROKER, OF_TOPICS, Right
from tarry.base.errors import InvalidArgumentError
from tarry.identity.grants import Grant
from tarry.identity.rights import Rights

PATTERNS = st.sampled_from(["*", "a*", "a", "ab", "ab*", "b", "a.b", "a.*"])
NAMES = st.sampled_from(["a", "ab", "abc", "b", "a.b", "a.", "*"])


def without_groups(grant: Grant) -> Grant:
    """Producing knows none."""
    return replace(grant, groups="*") if grant.right is Right.PRODUCE else grant


GRANTS = st.one_of(
    st.builds(Grant, st.sampled_from(OF_TOPICS), PATTERNS, PATTERNS, st.booleans()).map(without_groups),
    st.builds(Grant, st.sampled_from(OF_THE_BROKER), is_denied=st.booleans()),
)


@settings(max_examples=examples(100))
@given(GRANTS)
def test_a_grant_is_the_line_that_it_writes(grant: Grant) -> None:
    assert Grant.parse(str(grant)) == grant


@pytest.mark.parametrize(
    "line",
    [
        *("", "produce", "write orders", "produce a*b", "produce **", "admin orders", "deny", "deny deny produce a"),
        *("produce a b", "produce group:a", "produce a group:", "produce a group:b c", "produce " + "x" * 256),
    ],
)
def test_what_is_no_grant_is_refused(line: str) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        Grant.parse(line)


def is_one_of(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == name


def by_definition(grants: list[Grant], right: Right, topic: str, group: str | None) -> bool:
    """Nothing granted is nothing allowed; a denial counts more; admin is everything else."""

    def is_about(grant: Grant, *, look: bool) -> bool:
        in_group = grant.groups == "*" or (
            (look and not grant.is_denied) if group is None else is_one_of(grant.groups, group)
        )
        return is_one_of(grant.topics, topic) and in_group

    look = right is Right.LOOK
    denied = any(g.is_denied and g.right is right and is_about(g, look=look) for g in grants)
    admin = any(g.right is Right.ADMIN and not g.is_denied for g in grants) and not any(
        g.right is Right.ADMIN and g.is_denied for g in grants
    )
    given = any(
        not g.is_denied and is_about(g, look=look) and (g.right is right or (look and g.right in OF_TOPICS))
        for g in grants
    )
    return not denied and (admin or given)


@settings(max_examples=examples(500))
@given(st.lists(GRANTS, max_size=6), st.sampled_from(OF_TOPICS), NAMES, st.none() | NAMES)
def test_rights_on_a_topic_are_those_of_the_definition(
    grants: list[Grant], right: Right, topic: str, group: str | None
) -> None:
    assert Rights(grants).allow(right, topic, group) == by_definition(grants, right, topic, group)


@settings(max_examples=examples(500))
@given(st.lists(GRANTS, max_size=6), st.sampled_from(OF_TOPICS), NAMES, NAMES)
def test_a_right_on_all_topics_is_one_on_each(grants: list[Grant], right: Right, topic: str, group: str) -> None:
    rights = Rights(grants)
    if rights.allow(right):
        assert rights.allow(right, topic)
        assert rights.allow(right, topic, group)


@settings(max_examples=examples(200))
@given(st.lists(GRANTS, max_size=6), st.sampled_from(OF_THE_BROKER))
def test_rights_on_the_broker(grants: list[Grant], right: Right) -> None:
    given = {g.right for g in grants if not g.is_denied}
    denied = {g.right for g in grants if g.is_denied}
    is_admin = Right.ADMIN in given - denied
    assert Rights(grants).allow(right) == (right not in denied and (is_admin or right in given))


def test_a_consumer_of_a_broadcast_group_has_the_groups_rights() -> None:
    rights = Rights([Grant.parse("consume orders group:billing")])
    assert rights.allow(Right.CONSUME, "orders", "billing@web-1")
    assert not rights.allow(Right.CONSUME, "orders", "billings")
    assert not rights.allow(Right.CONSUME, "orders")
    assert rights.allow(Right.LOOK, "orders")
    assert not rights.allow(Right.LOOK, "orders", "other")


def test_producing_knows_no_groups() -> None:
    with pytest.raises(InvalidArgumentError, match="names groups; allowed: produce TOPICS"):
        Grant.parse("produce orders.* group:billing")
    assert str(Grant.parse("produce orders.* group:*")) == "produce orders.*"
