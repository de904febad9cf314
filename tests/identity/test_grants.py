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

PATTERNS = st.sampled_from(["*", "a*", "a", "ab", "ab*", "b", "a.b", "a.*", "t*", "%DLQ%a*", "%*"])
NAMES = st.sampled_from(["a", "ab", "abc", "b", "a.b", "a.", "*"])
OWN = ["tarry.halves", "tarry.x"]
DEAD = {f"%DLQ%{topic}/{group}": (topic, group) for topic in ("a", "b", "a/b", "tarry.halves") for group in ("a", "b")}
DIGEST = "%DLQ%a/b//0123456789abcdef"
OF_GROUPS = {f"{prefix}{group}": group for prefix in ("%RETRY%", "%DLQ%") for group in ("a", "b")}
TOPICS = NAMES | st.sampled_from([*OWN, *DEAD, DIGEST, *OF_GROUPS])


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


def is_about(grant: Grant, topic: str, group: str | None, *, look: bool = False) -> bool:
    in_group = grant.groups == "*" or (
        (look and not grant.is_denied) if group is None else is_one_of(grant.groups, group)
    )
    return is_one_of(grant.topics, topic) and in_group


def by_definition(grants: list[Grant], right: Right, topic: str, group: str | None) -> bool:
    """Nothing granted is nothing allowed; a denial counts more; admin is everything else."""
    look = right is Right.LOOK
    denials = [g for g in grants if g.is_denied and g.right is right]
    admin = any(g.right is Right.ADMIN and not g.is_denied for g in grants) and not any(
        g.right is Right.ADMIN and g.is_denied for g in grants
    )
    if admin and not any(g.is_denied for g in grants):
        return True
    given = [
        g
        for g in grants
        if not g.is_denied
        and is_about(g, topic, group, look=look)
        and (g.right is right or (look and g.right in OF_TOPICS))
    ]
    if any(is_about(g, topic, group) for g in denials):
        return False
    if topic in OWN:
        return admin
    if topic in DEAD:
        origin, owner = DEAD[topic]
        if any(is_about(g, origin, each) for g in denials for each in (owner, group)):
            return False
        if origin in OWN:
            return admin
        read = by_definition(grants, Right.BROWSE, origin, None) or by_definition(grants, Right.CONSUME, origin, owner)
        return admin or bool(given) or (right not in (Right.PRODUCE, Right.MANAGE) and read)
    if topic == DIGEST:
        return not denials and (admin or bool(given))
    if topic not in OF_GROUPS:
        return admin or bool(given)
    owner = OF_GROUPS[topic]
    if any(g.topics != "*" for g in given):
        return True
    if right is Right.CONSUME and group not in (None, owner) and not given and not admin:
        return False
    return is_named(grants, right, owner, admin=admin) or (
        right is not Right.MANAGE and is_named(grants, Right.CONSUME, owner, admin=admin)
    )


def is_named(grants: list[Grant], right: Right, group: str, *, admin: bool) -> bool:
    """A group's own retries and dead letters: by its name, or by everything while nothing of it is denied."""
    among = [g for g in grants if is_one_of(g.groups, group)]
    denials = [g for g in among if g.is_denied and g.right is right]
    given = [g for g in among if not g.is_denied]
    given = [g for g in given if g.right is right or (right is Right.LOOK and g.right in OF_TOPICS)]
    if any(g.topics == "*" for g in denials):
        return False
    return any(g.groups != "*" for g in given) or (not denials and (admin or any(g.topics == "*" for g in given)))


@settings(max_examples=examples(500))
@given(
    st.lists(GRANTS, max_size=6), st.lists(GRANTS, max_size=3), st.sampled_from(OF_TOPICS), TOPICS, st.none() | NAMES
)
def test_rights_that_others_are_within_allow_no_less(
    grants: list[Grant], more: list[Grant], right: Right, topic: str, group: str | None
) -> None:
    rights, others = Rights(grants), Rights([*more, *grants])
    assert rights.are_within(others) == all(not each.is_denied or each in grants for each in more)
    if rights.are_within(others):
        for on in (topic, None):
            assert others.allow(right, on, group) or not rights.allow(right, on, group)


@settings(max_examples=examples(500))
@given(st.lists(GRANTS, max_size=6), st.sampled_from(OF_TOPICS), TOPICS, st.none() | NAMES)
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


def rights_of(*lines: str) -> Rights:
    return Rights(map(Grant.parse, lines))


def test_topics_of_the_broker_are_opened_by_admin_alone() -> None:
    everything = rights_of(*(f"{right} *" for right in OF_TOPICS), "produce tarry.halves", "browse tarry.*", "bulk")
    for right in OF_TOPICS:
        assert everything.allow(right, "orders")
        assert not everything.allow(right, "tarry.halves")
        assert not rights_of(f"{right} t*").allow(right, "tarry.halves", "g")
        assert rights_of("admin").allow(right, "tarry.halves")
        assert rights_of("admin", "deny produce x").allow(right, "tarry.halves")
    assert not rights_of("admin", "deny look tarry.*").allow(Right.LOOK, "tarry.halves")


def test_a_denial_reaches_what_is_made_of_a_topic() -> None:
    some = rights_of("browse *", "consume *", "manage *", "deny browse b.*", "deny consume b.*", "deny manage b.*")
    for right in (Right.BROWSE, Right.CONSUME, Right.MANAGE):
        assert some.allow(right, "%DLQ%a.x/g", "steal")
        assert not some.allow(right, "%DLQ%b.x/g", "steal")
        assert not some.allow(right, "%DLQ%%DLQ%b.x/g/g", "steal")
        assert not some.allow(right, "%DLQ%b.x/g//0123456789abcdef0123456789abcdef", "steal")
        assert not some.allow(right, "%RETRY%g", "g")
    # Where the group is named, its consumers have its retries: it would not work without them.
    assert rights_of("consume * group:g", "deny consume b.*").allow(Right.CONSUME, "%RETRY%g", "g")
    assert not rights_of("consume * group:other").allow(Right.CONSUME, "%RETRY%g", "other")
    assert rights_of("consume *").allow(Right.CONSUME, "%RETRY%g", "other")
    assert rights_of("browse orders.*").allow(Right.BROWSE, "%DLQ%orders.a/g")
