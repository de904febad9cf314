"""Settings of the RocketMQ fronts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tarry.base.setting_types import Address, Count, Milliseconds, Optional, RocketMQName
from tarry.fronts.kit.settings import FrontSettings


class RocketMQSettings(FrontSettings):
    """Settings of the RocketMQ fronts; part of the broker's configuration."""

    rocketmq: Address = Field(None, description="HOST:PORT of the RocketMQ front (gRPC, v5 clients); empty: off.")
    remoting: Address = Field(
        None, description="HOST:PORT of the classic RocketMQ front (remoting, 4.x and 5.x clients); empty: off."
    )
    remoting_queues: Count = Field(
        4,
        ge=1,
        le=1024,
        description="Queues of a topic, to classic RocketMQ clients: so many consumers of a group share it.",
    )
    remoting_vip: Literal["on", "off"] = Field(
        "on", description="Listen on the port below `remoting` by 2, too, where it is free, for clients before 4.5."
    )
    remoting_pull_max: Count = Field(
        32,
        ge=1,
        le=1024,
        description="Messages of one pull of a classic RocketMQ client, at most; it asks for up to so many.",
    )
    rocketmq_cluster: RocketMQName = Field(
        "DefaultCluster", description="What the cluster is called to RocketMQ's clients and tools (mqadmin -c)."
    )
    rocketmq_broker: RocketMQName = Field(
        "tarry", description="What the broker is called to them; clients keep it with offsets and handles."
    )
    rocketmq_keys: Optional = Field(
        None, description="File of ACCESS_KEY SECRET lines; with it, RocketMQ clients must sign. Empty: all may."
    )
    rocketmq_tls: Literal["auto", "both", "on", "off"] = Field(
        "auto",
        description="RocketMQ clients come by TLS, in the clear, or as they like; auto: the last, but by TLS where "
        "they sign and other machines reach the port.",
    )
    rocketmq_tls_certificate: Optional = Field(
        None, description="PEM file of its own; empty: that of all ports, or else one signed by itself, made in DATA."
    )
    rocketmq_tls_key: Optional = Field(None, description="PEM file of the certificate's private key.")
    rocketmq_create_topics: Literal["on", "off"] = Field(
        "on", description="RocketMQ clients make a topic by naming it; off: it must be there (tarry topic set)."
    )
    rocketmq_check_first_ms: Milliseconds = Field(
        6_000, ge=1, description="How old an undecided transaction is when its producer is first asked."
    )
    rocketmq_check_ms: Milliseconds = Field(30_000, ge=1_000, description="How often it is asked again...")
    rocketmq_checks_max: Count = Field(15, ge=1, description="...and how often in all; then it is a dead letter.")
