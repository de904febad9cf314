"""The state of the broker's parts, for people: how each is, what that means, and what to do.

Texts are made of an overview (:class:`tarry.api.operations.GetOverview`), and of nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tarry.api.needs import Right
from tarry.base.delay import format_ms
from tarry.fronts.http.console import formatting as shown
from tarry.fronts.http.console.overview import health
from tarry.fronts.http.console.page import Console, plural

Overview = Mapping[str, Any]
GOOD, WARN, BAD, PLAIN = "good", "warn", "bad", "plain"
TIGHT = 4
"""A disk is told to be filling when it has less than so many times what producers must leave."""

BACKUP_OLD_MS = 26 * 3_600_000
"""A backup is told to be old when the next of a daily one is overdue, as by the alert."""


@dataclass(frozen=True, slots=True)
class SystemPart:
    """One part: its state in a word and a level, a sentence on what that means, what to do, and figures."""

    name: str
    state: str
    level: str
    meaning: str
    to_do: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()
    found: tuple[str, ...] = field(default=())
    """Texts of others, such as damaged places."""


async def show(console: Console, request: Request) -> Response:
    """Return the page, with what needs somebody first."""
    console.check(Right.LOOK)
    overview = await console.figures.overview()
    found = sorted(parts(overview), key=lambda part: (BAD, WARN, GOOD, PLAIN).index(part.level))
    return console.render(request, "system.html.j2", o=overview, health=health(overview), found=found)


def parts(overview: Overview) -> list[SystemPart]:
    """Return all parts that there are."""
    made = (_broker, _pipeline, _disk, _memory, _damage, _logs, _ports, _certificates, _audit)
    return [part for make in made if (part := make(overview)) is not None]


def _broker(o: Overview) -> SystemPart:
    figures = (("Version", o["version"]), ("Up", shown.span(o["uptime_ms"])))
    if o["state"] == "serving":
        clock = "" if o["test_clock"] is None else f" Its clock is a test clock, which stands at {o['test_clock']}."
        return SystemPart(
            "Broker", "serving", WARN if clock else GOOD, f"Messages go in and out.{clock}", figures=figures
        )
    to_do = ("Look at its log. Once the cause is mended, start it again: what was acknowledged is durable.",)
    meaning = f"Nothing is accepted or handed out: {o['fatal'] or 'it stops, or waits for its store'}."
    return SystemPart("Broker", o["state"], BAD, meaning, to_do, ("tarry status",), figures)


def _pipeline(o: Overview) -> SystemPart:
    pipeline, intake, store = o["pipeline"], o["intake"], o["store"]
    state = str(pipeline.get("state", "unknown"))
    supervisor = pipeline.get("supervisor") or {}
    figures = (
        ("Waits in the intake", f"{plural(intake['waiting_rows'], 'message')}, {shown.size(intake['waiting_bytes'])}"),
        ("Intake's files", shown.size(intake["bytes"])),
        (
            "Store",
            f"{plural(store['rows'], 'message')} in {plural(store['files'], 'file')}, {shown.size(store['bytes'])}",
        ),
        ("Store's place", f"{store['uri']}, version {store['version']}"),
        *((("Restarts", shown.number(supervisor["restarts"])),) if supervisor.get("restarts") else ()),
    )
    grows = "Nothing is lost or late: what is due later stays in the intake, which takes more and more disk."
    if pipeline.get("error"):
        to_do = ("Mend what the error names. The broker starts the pipeline again by itself.",)
        log = "DATA/pipeline/pipeline.log has what Spark says."
        found = (str(pipeline["error"]),)
        return SystemPart("Spark pipeline", state, BAD, grows, (*to_do, log), ("tarry status",), figures, found)
    if state == "off":
        meaning = "No pipeline belongs to this broker. What is due later stays in its intake, and is on time."
        to_do = ("For many millions of messages, start it: pipeline = on.",)
        return SystemPart("Spark pipeline", "off", PLAIN, meaning, to_do, figures=figures)
    if state in ("waiting", "stopped"):
        to_do = ("Wait a minute: it is started again. If it stays so, look at DATA/pipeline/pipeline.log.",)
        return SystemPart("Spark pipeline", state, WARN, grows, to_do, ("tarry status",), figures)
    return SystemPart(
        "Spark pipeline", state, GOOD, "It moves what is due later from the intake to the store.", figures=figures
    )


def _disk(o: Overview) -> SystemPart:
    free, least = o["disk"]["free_bytes"], o["disk"]["free_bytes_min"]
    figures = (("Free", shown.size(free)), ("Producers are refused below", shown.size(least)))
    room = (
        "Have consumers acknowledge what is ready, and let go of groups that nobody reads: their messages are kept.",
        "Delete dead letters that nobody wants, or make the disk larger. The broker goes on by itself.",
    )
    if free < least:
        meaning = "Producers are refused (disk_full), and may try again. Consumers are served."
        return SystemPart("Disk", "full", BAD, meaning, room, ("tarry group list", "tarry pending"), figures)
    if free < TIGHT * least:
        meaning = "Producers are served still. They are refused when less is free than they must leave."
        return SystemPart("Disk", "filling", WARN, meaning, room, ("tarry group list", "tarry pending"), figures)
    return SystemPart("Disk", "enough", GOOD, "There is room for what is accepted.", figures=figures)


def _memory(o: Overview) -> SystemPart:
    wheel = o["wheel"]
    figures = (
        ("The process", shown.size(o["memory"]["resident_bytes"])),
        ("Due soon, in memory", f"{plural(wheel['rows'], 'message')}, {shown.size(wheel['bytes'])}"),
        ("All is in memory that is due before", shown.instant(wheel["loaded_until_ms"])),
    )
    loaded_ms = wheel["loaded_until_ms"]
    if wheel["rows"] and loaded_ms < o["now_ms"]:
        meaning = (
            "More is due than fits into memory at once: it is read and handed out piece by piece, some of it late."
        )
        to_do = ("A larger wheel_bytes_max holds more of a herd. Spreading due times makes the herd smaller.",)
        return SystemPart("Memory", "behind", WARN, meaning, to_do, ("tarry forecast --unit minute",), figures)
    meaning = "What is due soon is in memory, bounded by wheel_bytes_max. All else is on disk."
    return SystemPart("Memory", "enough", GOOD, meaning, figures=figures)


def _damage(o: Overview) -> SystemPart:
    damage, scrub = o["damage"], o["scrub"]
    done = (
        f"{shown.size(scrub['checked_bytes'])} of {shown.size(scrub['of_bytes'])}" if scrub["of_bytes"] else "not begun"
    )
    ended = "none yet" if scrub["ended_ms"] is None else shown.instant(scrub["ended_ms"])
    figures = (
        ("This pass over all files", done),
        ("Last pass ended", ended),
        ("Passes", shown.number(scrub["passes"])),
    )
    places, unreadable = tuple(map(str, damage["places"])), damage["unreadable_messages"]
    if not places and not unreadable:
        return SystemPart(
            "Damage", "none", GOOD, "No file is known to be damaged. All are checked over and over.", figures=figures
        )
    lost = (
        f" {plural(unreadable, 'message')} that are due or due soon cannot be read, and stay pending."
        if unreadable
        else ""
    )
    meaning = f"A file cannot be read. All else goes on; no message is skipped.{lost} Files are not deleted meanwhile."
    to_do = (
        "Repair it soon: the disk fills. A file of the store may be put back while the broker serves.",
        "Others: stop the broker, put the file back from a backup, and start it. Without one, tarry verify says more.",
    )
    commands = ("tarry verify DATA", "tarry restore BACKUP --data DIR")
    state = plural(len(places), "place") if places else plural(unreadable, "message")
    return SystemPart("Damage", state, BAD, meaning, to_do, commands, figures, places)


def _logs(o: Overview) -> SystemPart:
    logs = o.get("log")
    if logs is None:
        return _backup(o)
    figures = (
        ("Logs", str(logs["uri"])),
        ("Epoch", shown.number(logs["epoch"])),
        ("Last answer of the bucket", f"{shown.span(logs['answered_before_ms'])} ago"),
    )
    state = str(logs["state"])
    if state == "handing out":
        meaning = "This machine owns the logs. A standby takes over within seconds when it is gone."
        advice = ("See that there is a standby: on its machine, tarry status --data DIR.",)
        return SystemPart("Takeover", state, GOOD, meaning, advice, figures=figures)
    if state == "store away":
        since = logs.get("away_since_ms")
        since_when = "" if since is None else f" since {format_ms(since)}"
        meaning = f"The bucket gives no answer{since_when}: nothing is accepted or handed out."
        advice = ("Mend the bucket, the way there, or its credentials. Nothing at the machines helps.",)
        return SystemPart("Takeover", state, BAD, meaning, advice, ("tarry status",), figures)
    meaning = "It has taken over, and hands nothing out until the former owner's leases are over."
    return SystemPart("Takeover", state, WARN, meaning, ("Wait: it takes some seconds.",), figures=figures)


def _backup(o: Overview) -> SystemPart:
    name, commands = "Backup and takeover", ("tarry backup s3://BUCKET/PREFIX", "tarry backup DIR")
    meaning = "The logs are in this machine's data directory. If the machine is lost, what it had is lost with it"
    to_do: tuple[str, ...] = (
        "To have another machine take over within seconds, put the logs into an object store (--log, --standby).",
        "Make backups from a timer, while the broker serves:",
    )
    last = o.get("backup") or {}
    at_ms = last.get("at_ms")
    if at_ms is None:
        return SystemPart(name, "one machine, no backup", PLAIN, f"{meaning}.", to_do, commands)
    figures = (
        ("Last backup", f"{shown.instant(at_ms)}, {shown.span(o['now_ms'] - at_ms)} ago"),
        ("Its place", shown.visible(str(last["place"]))),
        ("Its size", shown.size(last["bytes"])),
    )
    meaning += ", but for what its last backup has."
    if o["now_ms"] - at_ms > BACKUP_OLD_MS:
        to_do = ("Look why the timer made none since, if there should be one each day.", *to_do)
        return SystemPart(name, "old backup", WARN, meaning, to_do, commands, figures)
    return SystemPart(name, "backed up", GOOD, meaning, to_do[:1], figures=figures)


def _ports(o: Overview) -> SystemPart:
    found = [
        f"{name} at {address}: whoever reaches it may do everything" for name, address in o["insecure_open"].items()
    ]
    found += [str(port["text"]) for port in o["clear_ports"]]
    if not found:
        return SystemPart(
            "Ports", "guarded", GOOD, "No port is open to other machines without asking who they are, or without TLS."
        )
    to_do = ("Make identities, give the broker a certificate, or bind the port to 127.0.0.1.",)
    commands = ("tarry identity create admin --all",) if o["insecure_open"] else ()
    return SystemPart("Ports", "open", WARN, "Other machines reach these ports.", to_do, commands, found=tuple(found))


def _certificates(o: Overview) -> SystemPart | None:
    certificates = o["certificates"]
    if not certificates:
        return None
    figures = tuple((str(each["file"]), f"{each['state']}: {shown.instant(each['ends_ms'])}") for each in certificates)
    bad = [each for each in certificates if each["state"] != "valid"]
    if not bad:
        return SystemPart("Certificates", "valid", GOOD, "None of them ends soon.", figures=figures)
    level = WARN if all(each["state"] == "ends soon" for each in bad) else BAD
    to_do = ("Put the new certificate in the place of the old one: it is taken without a restart.",)
    return SystemPart(
        "Certificates", bad[0]["state"], level, "Clients refuse one that has ended.", to_do, figures=figures
    )


def _audit(o: Overview) -> SystemPart:
    audit = o["audit"]
    if not audit["on"]:
        meaning = "Changes are not recorded. They are once there are identities (audit_log)."
        return SystemPart("Audit log", "off", PLAIN, meaning)
    refused = sum(audit["refused"].values())
    figures = (("Lines since the start", shown.number(audit["lines"])), ("Calls refused", shown.number(refused)))
    if audit["lost"]:
        meaning = (
            f"{plural(audit['lost'], 'line')} could not be written: the disk was full, or there were too many at once."
        )
        return SystemPart(
            "Audit log",
            "losing",
            BAD,
            meaning,
            ("See to the disk, and to who sends so much.",),
            ("tarry audit-log",),
            figures,
        )
    return SystemPart(
        "Audit log",
        "on",
        GOOD,
        "Who changes what, and who is refused, is written down.",
        (),
        ("tarry audit-log",),
        figures,
    )
