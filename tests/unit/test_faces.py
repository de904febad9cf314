"""No face of a broker lacks an operation or an argument: Flight, clients, the broker in this process, the command."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin

import pytest

from tarry.api import operations as ops
from tarry.api.calls import AsyncCalls, Calls
from tarry.api.group_info import GroupInfo
from tarry.api.operations import OPERATIONS
from tarry.api.settings import GroupFields, GroupOptions, TopicFields, TopicOptions
from tarry.broker import Broker
from tarry.broker.embedded import AsyncBroker
from tarry.broker.operations import handlers
from tarry.cli.main import command as command_line
from tarry.client import AsyncClient, Client
from tarry.fronts.flight.requests import ACTIONS, TICKETS
from tarry.message.options import MessageOptions
from tarry.testing import open_broker

PIPELINE = (ops.BeginJob, ops.ReserveSeqs, ops.CommitJob, ops.AbortJob, ops.GetIntakeState, ops.ReadIntake)
"""Asked by Spark's processes, which have a client of their own; nothing for people."""
CONSUMING = (ops.Receive, ops.Ack, ops.Nack, ops.Extend)
"""Each face has its own consumer, which asks these."""
NO_METHOD = {*PIPELINE, *CONSUMING, ops.AnnounceStore, ops.SetPipelineStatus}

COMMANDS: dict[Any, str] = {
    ops.Cancel: "cancel",
    ops.CancelKeys: "cancel",
    ops.CancelJob: "cancel",
    ops.ReadAuditLog: "audit-log",
    ops.Reschedule: "reschedule",
    ops.FindKey: "find-key",
    ops.Receive: "receive",
    ops.SetGroup: "group set",
    ops.GetGroup: "group show",
    ops.ListGroups: "group list",
    ops.ListConsumers: "group consumers",
    ops.DeleteGroup: "group delete",
    ops.PauseGroup: "group pause",
    ops.ResumeGroup: "group resume",
    ops.Seek: "group seek",
    ops.SetTopic: "topic set",
    ops.GetTopic: "topic show",
    ops.ListDeadLetters: "dead list",
    ops.Respawn: "dead respawn",
    ops.Purge: "dead purge",
    ops.SetPushSubscription: "push add",
    ops.GetPushSubscription: "push show",
    ops.ListPushSubscriptions: "push list",
    ops.DeletePushSubscription: "push remove",
    ops.PausePushSubscription: "push pause",
    ops.ResumePushSubscription: "push resume",
    ops.ListPushAttempts: "push attempts",
    ops.TestPushSubscription: "push test",
    ops.GetPending: "pending",
    ops.ListPending: "list",
    ops.Peek: "peek",
    ops.GetForecast: "forecast",
    ops.GetHistory: "history",
    ops.GetStatus: "status",
    ops.GetOverview: "top",
    ops.ListJobs: "jobs",
    ops.CreateToken: "token create",
    ops.ListTokens: "token list",
    ops.LimitToken: "token limit",
    ops.DeleteToken: "token delete",
    ops.SetIdentity: "identity set",
    ops.ListIdentities: "identity list",
    ops.DeleteIdentity: "identity delete",
    ops.AddCredential: "identity access-key",
    ops.RemoveCredential: "identity revoke",
    ops.GetQuotaUse: "identity quotas",
    ops.WhoAmI: "whoami",
    ops.CheckAccess: "can",
    ops.BeginBackup: "backup",
    ops.GetClock: "advance",
    ops.AdvanceClock: "advance",
}
NO_COMMAND = {
    *PIPELINE,
    *(ops.Ack, ops.Nack, ops.Extend),  # `receive --ack` acknowledges; a lease ends with its process
    *(ops.AnnounceStore, ops.SetPipelineStatus, ops.Ping, ops.HasTopic),
    *(ops.ExtendBackup, ops.EndBackup, ops.RecordBackup),  # `backup` asks them
    *(ops.GetMessage, ops.GetHandles),  # for what has just listed them; `history` tells of a message
    *(ops.FindMessage, ops.DiscardMessage),  # for protocols: people have handles, keys and offsets
    ops.GetRates,  # points for a chart: the console has it
    # Queues by offset are for programs that keep offsets.
    *(ops.GetQueues, ops.ReadQueue, ops.ReadCancellations, ops.FindOffset, ops.FollowQueue, ops.AdvanceGroup),
}
OPTION_OF = {
    "handles": "handles", "keys": "key", "due_ms": "due", "delay_ms": "delay", "delay_level": "level",
    "max_messages": "most", "wait_ms": "wait", "after_ms": "after", "until_ms": "until",
}  # fmt: skip
"""Where an option has another name than the field: people write durations and instants."""
NO_OPTION = {
    ("Cancel", "topic"), ("CancelKeys", "topic"), ("Reschedule", "topic"),  # a key is given with its topic
    ("Receive", "lease_ms"),  # the group's
    ("AddCredential", "kind"), ("AddCredential", "san"),  # each kind has a command
    ("AddCredential", "claim"), ("AddCredential", "issuer"),
    ("GetPending", "next_due"), ("GetOverview", "next_due"),  # always shown
    ("GetOverview", "always"), ("GetOverview", "always_groups"),  # for series of metrics
}  # fmt: skip


def made_by(face: type) -> dict[Any, str]:
    """The operation that each method of a face makes, where it does no more than that."""
    made = {}
    for name, method in inspect.getmembers(face, inspect.isfunction):
        request: Any = getattr(method, "__wrapped__", None)
        kind = request if inspect.isclass(request) else getattr(request, "__self__", None)
        if kind in OPERATIONS:
            made[kind] = name
    return made


def parameters(command: str) -> set[str]:
    found: Any = command_line()
    for name in command.split():
        found = found.get_command(None, name)
    return {parameter.name for parameter in found.params}


def test_flight_has_every_operation() -> None:
    assert {*ACTIONS.values(), *TICKETS.values()} == set(OPERATIONS)


@pytest.mark.parametrize("face", [Calls, AsyncCalls])
def test_every_operation_is_a_method(face: type) -> None:
    assert made_by(face).keys() == set(OPERATIONS) - NO_METHOD


@pytest.mark.parametrize(
    ("face", "base"), [(Client, Calls), (Broker, Calls), (AsyncClient, AsyncCalls), (AsyncBroker, AsyncCalls)]
)
def test_a_face_keeps_the_methods(face: type, base: type) -> None:
    assert made_by(base).items() <= made_by(face).items()


@pytest.mark.parametrize("name", sorted(made_by(Calls).values()))
def test_asyncio_has_the_same_arguments(name: str) -> None:
    assert inspect.signature(getattr(Calls, name)) == inspect.signature(getattr(AsyncCalls, name))


@pytest.mark.parametrize("face", [Client, AsyncClient, Broker, AsyncBroker])
def test_a_method_shows_its_own_signature(face: Any) -> None:
    for name in made_by(face).values():
        shown = inspect.signature(getattr(face, name))
        [itself, *given] = shown.parameters.values()
        assert itself.name == "self", name
        bound = inspect.signature(getattr(object.__new__(face), name))
        assert [*bound.parameters.values()] == given, name
        assert getattr(face, name).__name__ == name
    shown = inspect.signature(face.set_group)
    assert list(shown.parameters) == ["self", "topic", "group", "start", "settings"]
    assert (face.set_group.__name__, shown.return_annotation) == ("set_group", GroupInfo)
    assert str(inspect.signature(face.delete_group)) == "(self, topic: str, group: str) -> None"
    assert inspect.signature(face.offset_at).parameters["due_ms"].annotation is int
    assert inspect.iscoroutinefunction(face.offset_at) == issubclass(face, AsyncCalls)


def test_the_broker_carries_every_operation_out(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        assert handlers(broker.components).keys() == set(OPERATIONS)


@pytest.mark.parametrize("face", [Client, AsyncClient, Broker, AsyncBroker])
def test_schedule_has_every_option_of_a_message(face: Any) -> None:
    given = inspect.signature(face.schedule, eval_str=True).parameters
    assert {"topic", "body", "delay", "due"} <= given.keys()
    options = given["options"].annotation
    assert get_origin(options) is Unpack
    assert get_args(options) == (MessageOptions,)


def test_send_has_every_option_of_a_message() -> None:
    assert set(MessageOptions.__annotations__) - parameters("send") == set()


@pytest.mark.parametrize(("kind", "options"), [(GroupFields, GroupOptions), (TopicFields, TopicOptions)])
def test_the_options_are_the_fields(kind: Any, options: Any) -> None:
    assert list(options.__annotations__) == [setting.name for setting in fields(kind)]


@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
def test_a_command_has_the_operation_and_its_arguments(kind: Any) -> None:
    assert (kind in COMMANDS) != (kind in NO_COMMAND), "a command, or a reason why there is none"
    if kind in COMMANDS:
        names = {f.name for f in fields(kind)} - {name for of, name in NO_OPTION if of == kind.__name__}
        if "settings" in names:
            names = names - {"settings"} | set(
                {ops.SetGroup: GroupOptions, ops.SetTopic: TopicOptions}[kind].__annotations__
            )
        assert {OPTION_OF.get(name, name) for name in names} - parameters(COMMANDS[kind]) == set()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.wire.name)
def test_the_page_of_the_format_has_every_operation_and_field(operation: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats-flight.md").read_text()
    name = operation.wire.name
    rows = [
        row for row in page.splitlines() if row.startswith("| ") and re.search(f'[`"]{name}[`"]', row.split(" | ")[0])
    ]
    [row] = rows
    # A row may refer to the one above it.
    whole = f"{page.splitlines()[page.splitlines().index(row) - 1]} {row}" if "the same" in row else row
    unwritten = {field for field in operation.wire_fields() or {} if f'"{field}"' not in whole}
    if "(delivery-groups.md#settings)" in whole:
        unwritten -= settings_of_the_page("topic: " if operation is ops.SetTopic else "")
    assert not unwritten


def settings_of_the_page(prefix: str) -> set[str]:
    """The settings of a group, or with the prefix of a topic, in the table of the page about groups."""
    page = (Path(__file__).parents[2] / "docs" / "delivery-groups.md").read_text()
    return set(re.findall(rf"^\| {prefix}`(\w+)` \|", page, re.MULTILINE))
