"""Declarations of the fronts for RocketMQ's v5 and classic clients."""

from __future__ import annotations

from tarry.fronts.kit.front import Front
from tarry.fronts.rocketmq.settings import RocketMQSettings

ROCKETMQ = Front(
    name="rocketmq",
    settings=RocketMQSettings,
    title="RocketMQ",
    start="tarry.fronts.rocketmq.front:start",
    extra="rocketmq",
    check="tarry.fronts.rocketmq.common.certificate:check",
    own_settings=(
        *("rocketmq_keys", "rocketmq_tls", "rocketmq_tls_certificate", "rocketmq_tls_key"),
        *("tls_certificate", "tls_key", "tls_client_ca"),
    ),
    asks_callers=True,
    checks_signatures=True,
    worker_needs="tarry.fronts.rocketmq.common.stubs",
)
REMOTING = Front(
    name="remoting",
    settings=RocketMQSettings,
    title="RocketMQ",
    start="tarry.fronts.rocketmq.classic.front:start",
    check="tarry.fronts.rocketmq.common.certificate:check",
    extra="rocketmq",
    asks_callers=True,
    checks_signatures=True,
    worker_needs="tarry.fronts.rocketmq.classic.front",
    home="tarry.fronts.rocketmq.classic.front:start_home",
)
