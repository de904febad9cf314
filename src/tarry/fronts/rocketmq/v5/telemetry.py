"""Telemetry: each client's stream of settings and commands; heartbeats, and goodbyes.

Source: ``ClientActivity`` and ``GrpcClientSettingsManager`` of apache/rocketmq's proxy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from loopgrpc import GrpcError, StatusCode
from tarry.api.retry import parse_retry
from tarry.fronts.rocketmq.common.callers import SigningCallers
from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.rights import may_consume
from tarry.fronts.rocketmq.common.stubs import definition, service
from tarry.fronts.rocketmq.v5.authentication import CallingClient
from tarry.fronts.rocketmq.v5.clients import REQUEST_TIMEOUT_S, ClientRegistry, Stream, end_stream
from tarry.fronts.rocketmq.v5.resources import group_of, topic_of
from tarry.fronts.rocketmq.v5.statuses import OK

log = logging.getLogger(__name__)

RECEIVE_BATCH = 32
LONG_POLLING_S = 20
PUBLISH_ATTEMPTS = 3
RETRY_STEPS_MAX = 64
"""Steps of the back-off that a client is told."""


class Telemetry:
    """Keeps the telemetry streams of clients. On the loop's thread."""

    def __init__(
        self, clients: ClientRegistry, groups: ClientGroups, callers: SigningCallers, *, body_bytes_max: int
    ) -> None:
        self._clients = clients
        self._groups = groups
        self._callers = callers
        self._body_bytes_max = body_bytes_max

    async def stream(self, caller: CallingClient, commands: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Answer a client's commands, and send it those for it, until either side ends the stream."""
        client = self._clients.get_or_create(caller.id, caller.namespace)
        stream = client.add_stream()
        reader = asyncio.get_running_loop().create_task(self._read(caller, commands, stream))
        try:
            self._callers.add(
                stream,
                caller.principal,
                lambda error: end_stream(stream, GrpcError(StatusCode.UNAUTHENTICATED, str(error))),
                counts=True,
            )
            while (command := await stream.get()) is not None:
                if isinstance(command, GrpcError):
                    raise command
                yield command.SerializeToString()
        finally:
            reader.cancel()
            self._callers.remove(stream)
            self._clients.remove_stream(client, stream)

    async def _read(self, caller: CallingClient, commands: AsyncIterator[bytes], stream: Stream) -> None:
        end: GrpcError | None = None
        try:
            async for data in commands:
                answer = await self._answer(caller, service.TelemetryCommand.FromString(data))
                if answer is not None:
                    await stream.put(answer)  # a client that does not read its answers is not read from
        except DecodeError as error:
            end = GrpcError(StatusCode.INVALID_ARGUMENT, f"what came is no TelemetryCommand: {error}")
        except Refusal as refusal:
            end = GrpcError(StatusCode.INVALID_ARGUMENT, f"{refusal.code}: {refusal.text}")
        except Exception:
            log.exception("a telemetry stream of client %r failed", caller.id)
            end = GrpcError(StatusCode.INTERNAL, "the stream failed: see the server's log")
        finally:
            end_stream(stream, end)

    async def _answer(self, caller: CallingClient, command: Any) -> Any:
        client = self._clients.get_or_create(caller.id, caller.namespace)
        if command.WhichOneof("command") != "settings":
            return None  # reports, whether we asked for them or not
        settings = await self._settings(caller, command.settings)
        client.principal = caller.principal
        self._clients.set_settings(client, settings)
        return service.TelemetryCommand(status=OK, settings=settings)

    async def _settings(self, caller: CallingClient, given: Any) -> Any:
        """Return the settings that a client shall use: its own, and those that the server decides.

        The answer is complete for any group, also one that does not exist: some clients wait for ever otherwise.

        Raises:
            Refusal: it names what cannot be.
        """
        kind = given.WhichOneof("pub_sub")
        if kind is None:
            raise Refusal(Code.BAD_REQUEST, "the settings have neither publishing nor subscription; one is needed")
        settings = definition.Settings()
        settings.CopyFrom(given)
        settings.metric.Clear()
        settings.metric.on = False
        settings.request_timeout.seconds = settings.request_timeout.seconds or REQUEST_TIMEOUT_S
        if kind == "publishing":
            for topic in given.publishing.topics:
                topic_of(topic, caller.namespace)
            self._publishing(settings)
        else:
            await self._subscription(caller, settings)
        return settings

    def _publishing(self, settings: Any) -> None:
        settings.publishing.max_body_size = min(self._body_bytes_max, 2**31 - 1)
        settings.publishing.validate_message_type = False
        policy = settings.backoff_policy
        policy.Clear()
        policy.max_attempts = PUBLISH_ATTEMPTS
        policy.exponential_backoff.initial.FromMilliseconds(10)
        policy.exponential_backoff.max.FromSeconds(1)
        policy.exponential_backoff.multiplier = 2

    async def _subscription(self, caller: CallingClient, settings: Any) -> None:
        subscription = settings.subscription
        group = group_of(subscription.group, caller.namespace)
        named = [topic_of(entry.topic, caller.namespace) for entry in subscription.subscriptions]
        topics = [topic for topic in named if may_consume(caller.principal.rights, topic, group)]
        retry, tries, ordered = await self._groups.describe(topics, group)
        settings.backoff_policy.CopyFrom(retry_policy(retry, tries))
        subscription.fifo = ordered
        subscription.receive_batch_size = RECEIVE_BATCH
        subscription.long_polling_timeout.seconds = LONG_POLLING_S

    def heartbeat(self, caller: CallingClient, request: Any) -> Any:
        """Answer a heartbeat, also of a client without settings: some send none after the broker restarts."""
        if request.HasField("group"):
            group_of(request.group, caller.namespace)
        self._clients.get_or_create(caller.id, caller.namespace)
        return service.HeartbeatResponse(status=OK)

    def goodbye(self, caller: CallingClient, _: Any) -> Any:
        """Answer NotifyClientTermination: the messages that the client holds are for others at once."""
        self._clients.say_goodbye(caller.id, caller.namespace)
        return service.NotifyClientTerminationResponse(status=OK)


def retry_policy(retry: str, tries: int) -> Any:
    """Return a group's back-off (:mod:`tarry.api.retry`) as a ``RetryPolicy``.

    It is always a list of delays, since some versions of Java's client take nothing else. ``tries``: 0 is no limit.
    """
    steps = max(1, min(tries - 1 if tries else RETRY_STEPS_MAX, RETRY_STEPS_MAX))
    delays = parse_retry(retry).delays_ms(np.arange(1, steps + 1, dtype=np.int32), np.random.default_rng(0))
    policy = definition.RetryPolicy(max_attempts=tries or 2**31 - 1)
    for delay_ms in delays.tolist():
        policy.customized_backoff.next.add().FromMilliseconds(delay_ms)
    return policy
