"""RocketMQ's own end-to-end tests, for :mod:`tests.compat.rocketmq.e2e`: the suites, and which of their tests fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

URL = "https://github.com/apache/rocketmq-e2e"
COMMIT = "7811611ec0954799ba1dc4286a64d86acc7378bc"


@dataclass(frozen=True)
class Suite:
    """Tests of one client. Each test that fails is in one of the two lists, with the reason; docs have them, too."""

    tool: str
    """The command that builds it."""
    sources: str
    """Its directory in the checkout."""
    package: str = ""
    """Of its tests, in Java; its client is the artifact below, where other artifacts bring the same classes."""
    first: str = "*"
    project: str = ""
    """The directory here that has what Maven builds it with."""
    settings: tuple[str, ...] = ()
    """More words for ``tarry serve``."""
    shared: bool = False
    """Tests of a class change what the others of it look at: they run one after the other."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Fails here, and passes with the original."""
    original: Mapping[str, str] = field(default_factory=dict)
    """Fails with RocketMQ 5.5.0 as well (``--original`` shows it)."""
    sometimes: frozenset[str] = frozenset()
    """Those of both lists that may pass."""

    @property
    def known(self) -> dict[str, str]:
        """What fails here, and why."""
        return {**self.differs, **self.original}


NO_TOPICS = ("--set", "rocketmq_create_topics=off")
"""Tests of v5 want a missing topic refused when a client starts; Spring's consumers start before they make theirs."""

SUITES = {
    "java": Suite(
        "mvn",
        "java/e2e",
        "org.apache.rocketmq.broker",
        # It has the protocol's classes in its own form, and the tools bring them in another.
        first="rocketmq-client-java-*",
        project="e2e",
        settings=NO_TOPICS,
        differs={
            "DelayMessageTest.testDelayTime24hAfter": "delays of more than a day are taken",
            "SimpleOrderParamTest.testFIFO_simple_receive_multi_nack": "what was acknowledged does not come again",
        },
        original={
            "SimpleParamTest.testNormal_simple_receive_maxsize_sync": "who asks for 50 messages gets 50, not 32",
            "SimpleParamTest.test_waitAckException_reReceive_ack": "a late acknowledgement counts while nobody has it",
        },
        # Here, where one of the broker's checkpoints comes in the second that it waits.
        sometimes=frozenset({"SimpleParamTest.test_waitAckException_reReceive_ack"}),
    ),
    "v4": Suite("mvn", "java/e2e-v4", "org.apache.rocketmq", project="e2e-v4"),
    "spring": Suite("mvn", "java/e2e-spring", "org.apache.rocketmq.message", project="e2e-spring", shared=True),
    "go": Suite("go", "golang", settings=NO_TOPICS),
}
