"""What the programs can be asked to do, how long that may take, and what the server has to know before."""

from __future__ import annotations

from dataclasses import dataclass

KEY = ("compat", "a-secret-of-the-tests")
"""An access key and its secret."""


@dataclass(frozen=True)
class Scenario:
    """One word of the command line of every program."""

    name: str
    limit_s: float
    """The program is ended after that; generous, for a machine that has other things to do."""
    kind: str = "NORMAL"
    """Type of the topic's messages, where a server wants to know."""
    extra: tuple[str, ...] = ()
    ordered: bool = False
    """The group hands out one message of each message group at a time."""
    tries: int | None = None
    retry_s: int | None = None
    """The group's back-off, for each attempt."""
    restarts: int = 0
    """So many times, the server is killed and started again while the program runs."""
    alone: bool = False
    """Nothing else runs at the same time."""
    signed: bool = False
    """The server takes only what is signed with :data:`KEY`."""
    quick: bool = True
    """Done within some 20 s."""

    @property
    def is_classic(self) -> bool:
        """For clients of the classic protocol, which have scenarios of their own."""
        return self.name.startswith("classic-")


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("normal", 60),
        Scenario("delay", 60, kind="DELAY"),
        Scenario("past-delay", 60, kind="DELAY"),
        Scenario("fifo", 120, kind="FIFO", ordered=True),
        Scenario("transaction", 180, kind="TRANSACTION", quick=False),
        Scenario("push", 150),
        Scenario("push-retry", 200, tries=16, retry_s=1),
        Scenario("push-dead", 200, extra=("3", "8"), tries=3, retry_s=1),
        Scenario("tag-filter", 60),
        Scenario("sql-filter", 60),
        Scenario("invisible", 80),
        Scenario("redelivery", 80),
        Scenario("recall", 80, kind="DELAY"),
        Scenario("large", 80),
        Scenario("many-properties", 60),
        Scenario("gzip", 60),
        Scenario("unicode", 60),
        Scenario("namespaces", 80),
        Scenario("reconnect", 300, extra=("300",), restarts=2, alone=True, quick=False),
        Scenario("reconnect-push", 300, extra=("300",), restarts=2, alone=True, quick=False),
        Scenario("idle", 200, extra=("50", "10"), alone=True, quick=False),
        Scenario("classic-send", 120),
        Scenario("classic-large", 120),
        Scenario("classic-delay", 120),
        Scenario("classic-transaction", 150, quick=False),
        Scenario("classic-recall", 120),
        Scenario("classic-retry", 150),
        Scenario("classic-orderly", 150, quick=False),
        Scenario("classic-broadcast", 120),
        Scenario("classic-lite-pull", 150),
        Scenario("classic-filter", 120),
        Scenario("classic-share", 200, quick=False),
        Scenario("classic-look", 120),
        Scenario("classic-pop", 150, quick=False),
        Scenario("classic-request", 120),
        Scenario("classic-admin", 300, quick=False),
        Scenario("classic-signed", 120, extra=(*KEY, "JSON"), signed=True),
        Scenario("classic-signed-binary", 120, extra=(*KEY, "ROCKETMQ"), signed=True),
        Scenario("classic-restarts", 300, restarts=3, alone=True, quick=False),
    )
}
