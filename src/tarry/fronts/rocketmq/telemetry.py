"""Telemetry: each client's stream of settings and commands; and the end of clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.message import DecodeError

from loopgrpc import GrpcError, StatusCode
from tarry.fronts.rocketmq.caller import Caller
from tarry.fronts.rocketmq.clients import COMMANDS_MAX, Client, Clients, Stream, end_stream
from tarry.fronts.rocketmq.groups import Groups
from tarry.fronts.rocketmq.names import group_of, topic_of
from tarry.fronts.rocketmq.refusal import OK, Code, Refusal
from tarry.fronts.rocketmq.stubs import definition, service

log = logging.getLogger(__name__)

RECEIVE_BATCH = 32
LONG_POLLING_S = 20
REQUEST_TIMEOUT_S = 3
PUBLISH_ATTEMPTS = 3


class Telemetry:
    """On the loop's thread."""

    def __init__(self, clients: Clients, groups: Groups, *, body_bytes_max: int) -> None:
        self._clients = clients
        self._groups = groups
        self._body_bytes_max = body_bytes_max

    async def stream(self, caller: Caller, commands: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Answer what a client says, and send what is for it, until either ends it."""
        outbox: Stream = asyncio.Queue(COMMANDS_MAX)
        client = self._clients.heard(caller.id, caller.space)
        self._clients.begin(client, outbox)
        reader = asyncio.get_running_loop().create_task(self._read(client, commands, outbox))
        try:
            while (command := await outbox.get()) is not None:
                if isinstance(command, GrpcError):
                    raise command
                yield command.SerializeToString()
        finally:
            reader.cancel()
            self._clients.end(client, outbox)

    async def _read(self, client: Client, commands: AsyncIterator[bytes], outbox: Stream) -> None:
        end: GrpcError | None = None
        try:
            async for data in commands:
                answer = await self._answer(client, service.TelemetryCommand.FromString(data))
                if answer is not None:
                    await outbox.put(answer)  # who does not read is not listened to
        except DecodeError as error:
            end = GrpcError(StatusCode.INVALID_ARGUMENT, f"what came is no TelemetryCommand: {error}")
        except Refusal as refusal:
            end = GrpcError(StatusCode.INVALID_ARGUMENT, f"{refusal.code}: {refusal.text}")
        except Exception:
            log.exception("a telemetry stream of client %r failed", client.id)
            end = GrpcError(StatusCode.INTERNAL, "the stream failed: see the server's log")
        finally:
            end_stream(outbox, end)

    async def _answer(self, client: Client, command: Any) -> Any:
        client = self._clients.heard(client.id, client.space)
        kind = command.WhichOneof("command")
        if kind != "settings":
            return None  # reports that we asked for, or did not
        settings = await self.settings(client, command.settings)
        client.settings = settings
        return service.TelemetryCommand(status=OK, settings=settings)

    async def settings(self, client: Client, given: Any) -> Any:
        """What a client shall go by: what it said, and what is for the server to say. All of it, for any group: some
        clients wait for ever otherwise.

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
                topic_of(topic, client.space)
            self._publishing(settings)
        else:
            await self._subscription(client, settings)
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

    async def _subscription(self, client: Client, settings: Any) -> None:
        subscription = settings.subscription
        group = group_of(subscription.group, client.space)
        topics = [topic_of(entry.topic, client.space) for entry in subscription.subscriptions]
        policy, ordered = await self._groups.policy(topics, group)
        settings.backoff_policy.CopyFrom(policy)
        subscription.fifo = ordered
        subscription.receive_batch_size = RECEIVE_BATCH
        subscription.long_polling_timeout.seconds = LONG_POLLING_S

    def heartbeat(self, caller: Caller, request: Any) -> Any:
        """Heartbeat: also of clients that have sent no settings, since some do not after a restart of ours."""
        if request.HasField("group"):
            group_of(request.group, caller.space)
        self._clients.heard(caller.id, caller.space)
        return service.HeartbeatResponse(status=OK)

    def goodbye(self, caller: Caller, _: Any) -> Any:
        """NotifyClientTermination: what it holds is for others at once."""
        client = self._clients.find(caller.id, caller.space)
        if client is not None:
            self._clients.gone(client)
        return service.NotifyClientTerminationResponse(status=OK)
