"""Rules by patterns over topic names: source topics, targets of their records, and fixed delays.

A pattern is a regular expression that a whole name must match. In the patterns of delays ``<n>`` stands for a
RocketMQ delay level, ``<seconds>`` for a number of them, and ``<duration>`` for a text such as ``1h30m``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tarry.base.delay import parse_duration_ms, parse_levels
from tarry.base.errors import InvalidArgumentError
from tarry_relay.headers import KAFKA_TOPIC, TopicRule
from tarry_relay.settings import RelaySettings

log = logging.getLogger(__name__)

_PLACEHOLDERS = {
    "<n>": r"(?P<level>[0-9]{1,4})",
    "<seconds>": r"(?P<seconds>[0-9]{1,12})",
    "<duration>": r"(?P<duration>[0-9][0-9.a-z]*)",
}


@dataclass(frozen=True, slots=True)
class _Target:
    pattern: re.Pattern[str]
    template: str

    def of(self, topic: str) -> str | None:
        match = self.pattern.fullmatch(topic)
        return None if match is None else match.expand(self.template.replace("{topic}", topic))


@dataclass(frozen=True, slots=True)
class _Delay:
    pattern: re.Pattern[str]
    delay_ms: int | None

    def of(self, topic: str, levels: tuple[int, ...]) -> int | None:
        match = self.pattern.fullmatch(topic)
        if match is None or self.delay_ms is not None:
            return None if match is None else self.delay_ms
        [(what, value)] = [(name, text) for name, text in match.groupdict().items() if name in _KINDS]
        if what == "seconds":
            return int(value) * 1000
        if what == "duration":
            return parse_duration_ms(value)
        if not 1 <= int(value) <= len(levels):
            raise InvalidArgumentError(f"topic {topic!r} names delay level {value}; allowed: 1 to {len(levels)}")
        return levels[int(value) - 1]


_KINDS = ("level", "seconds", "duration")


class TopicRules:
    """The rule of each topic, from the settings.

    Raises:
        InvalidArgumentError: a pattern, template or delay is not valid.
    """

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._topics = _pattern(settings.topics, "--topics")
        self._targets = [_target(text) for text in settings.targets]
        self._delays = [_delay(text) for text in settings.delays]
        self._levels = parse_levels(settings.delay_levels)
        self._rules: dict[str, TopicRule] = {}
        self._refused: set[str] = set()

    def of(self, topic: str) -> TopicRule:
        """Return the rule of a source topic.

        Raises:
            InvalidArgumentError: no target is defined for it, or the name that comes out is not valid.
        """
        rule = self._rules.get(topic)
        if rule is None:
            delays = (delay.of(topic, self._levels) for delay in self._delays)
            rule = TopicRule(self._target_of(topic), next((ms for ms in delays if ms is not None), None))
            self._rules[topic] = rule
        return rule

    def sources(self, topics: Iterable[str]) -> list[str]:
        """Return those of a cluster's topics that are read.

        They are all that match, except Kafka's and the relay's own, and the targets of others, whose records a wide
        pattern would relay again and again.
        """
        rules: dict[str, TopicRule] = {}
        for topic in self._matching(topics):
            try:
                rules[topic] = self.of(topic)
            except InvalidArgumentError as error:
                # The topic appeared while others are being relayed, which must go on.
                if topic not in self._refused:
                    log.error("topic %r is not read: %s", topic, error)
                self._refused.add(topic)
        return sorted(rules.keys() - {rule.target for rule in rules.values()})

    def check(self, topics: Iterable[str]) -> None:
        """Refuse, at the start, topics that cannot be read.

        Raises:
            InvalidArgumentError: a topic that matches has no target or no delay by its name.
        """
        for topic in self._matching(topics):
            self.of(topic)

    def _matching(self, topics: Iterable[str]) -> list[str]:
        own = {self._settings.dead_topic, self._settings.marker_topic}
        return [t for t in topics if self._topics.fullmatch(t) and t not in own and not t.startswith("__")]

    def _target_of(self, topic: str) -> str:
        target = next((name for rule in self._targets if (name := rule.of(topic)) is not None), None)
        if target is None:
            raise InvalidArgumentError(f"no --target matches topic {topic!r}; given: {list(self._settings.targets)}")
        if target == topic or not KAFKA_TOPIC.fullmatch(target):
            raise InvalidArgumentError(
                f"the target of topic {topic!r} is {target!r}; allowed: another topic, named by {KAFKA_TOPIC.pattern}"
            )
        return target


def _target(text: str) -> _Target:
    pattern, equals, template = text.rpartition("=")
    rule = _Target(_pattern(pattern if equals else ".*", "--target"), template)
    if not template:
        raise InvalidArgumentError(f"--target {text!r} has no template; allowed: TEMPLATE or PATTERN=TEMPLATE")
    return rule


def _delay(text: str) -> _Delay:
    pattern, equals, duration = text.rpartition("=")
    if equals:
        return _Delay(_pattern(pattern, "--delay"), parse_duration_ms(duration))
    used = [name for name in _PLACEHOLDERS if name in text]
    if len(used) != 1 or text.count(used[0]) != 1:
        raise InvalidArgumentError(
            f"--delay {text!r} names no delay; allowed: PATTERN=30s, or one of {', '.join(_PLACEHOLDERS)} in a pattern"
        )
    return _Delay(_pattern(text.replace(used[0], _PLACEHOLDERS[used[0]]), "--delay"), None)


def _pattern(text: str, option: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidArgumentError(f"{option} {text!r} is no regular expression: {error}") from error
