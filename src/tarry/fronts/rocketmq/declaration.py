"""Declarations of the fronts for RocketMQ's v5 and classic clients."""

from __future__ import annotations

from tarry.fronts.kit.front import Front

ROCKETMQ = Front(
    name="rocketmq",
    title="RocketMQ",
    start="tarry.fronts.rocketmq.front:start",
    extra="rocketmq",
    worker_needs="tarry.fronts.rocketmq.common.stubs",
)
REMOTING = Front(name="remoting", title="RocketMQ", start="tarry.fronts.rocketmq.classic.front:start", extra="rocketmq")
