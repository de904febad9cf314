"""``tarry backup`` and ``tarry restore``: copies of a serving broker, and data directories of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli import output
from tarry.cli.options import DEFAULT_ENDPOINT, Endpoint, Json, connect, instant_ms
from tarry.cli.umask import umask


def backup(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="Where: a directory, or s3://BUCKET/PREFIX (gs://…, abfss://…): empty, or with an interrupted backup.",
        ),
    ],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    json: Json = False,
) -> None:
    """Make a backup of a serving broker, on its machine, as its user or as root. Nothing stops meanwhile.

    Everything that was acknowledged before is in it. It is checked as by tarry verify. Where PLACE is a directory on
    the disk of the data directory, most of it are hard links, which take no room, and are lost with that disk. Object
    storage is asked with this command's environment (AWS_…, GOOGLE_…, AZURE_…).

    \b
    tarry backup /backups/monday
    tarry backup s3://bucket/backups/monday
    tarry backup /backups/monday --endpoint 127.0.0.1:7611 --json
    """
    from tarry.backup.making import make_backup
    from tarry.backup.recording import record
    from tarry.backup.uploading import upload_backup
    from tarry.base.delay import format_ms
    from tarry.store.place import local_path

    directory = local_path(place)
    with connect(endpoint) as client, umask():
        made = upload_backup(client, place) if directory is None else make_backup(client, directory)
        shown = place if directory is None else str(directory)
        untold = record(client, made, shown)
    told = {"directory": shown, "at_ms": made.at_ms, "files": len(made.files), "bytes": made.bytes}
    text = f"{shown}: {len(made.files)} files, {made.bytes} bytes, as of {format_ms(made.at_ms)}"
    if made.store is not None:
        text += f"; without the store {made.store}, of which version {made.store_version} is needed"
    output.result(told | {"store": made.store, "store_version": made.store_version}, text, json=json)
    if untold is not None:
        output.note(f"the backup is whole, but the broker does not know of it, and tells of an older one: {untold}")


def restore(
    place: Annotated[
        str, typer.Argument(metavar="BACKUP", help="What tarry backup made: a directory, or a URI. It stays as it is.")
    ],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The data directory to make: new, or empty.")],
    acknowledged_until: Annotated[
        str | None,
        typer.Option(
            "--acknowledged-until",
            metavar="INSTANT",
            help="What groups have acknowledged of messages that came from then on does not count: these come again.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="TOPIC/GROUP", help="With that: of this group alone; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a data directory of a backup, and check it as tarry verify does. Then: tarry serve --data DIR.

    What was pending is pending; what fell due since is delivered late. What the broker answered after the backup is not
    in it: messages, acknowledgements and cancellations.

    \b
    tarry restore /backups/monday --data data
    tarry restore s3://bucket/backups/monday --data data
    tarry restore /backups/monday --data data --acknowledged-until 2026-11-23T09:00:00Z
    tarry restore /backups/monday --data data --acknowledged-until 2026-11-23T09:00:00Z --group orders/billing
    """
    from tarry.backup.restoring import restore as restore_backup
    from tarry.base.delay import format_ms

    if group and acknowledged_until is None:
        raise InvalidArgumentError("--group is given without --acknowledged-until; allowed: both, or neither")
    until_ms = None if acknowledged_until is None else instant_ms(acknowledged_until, "--acknowledged-until")
    groups = [*map(_group, group or ())]
    with umask():
        made = restore_backup(place, data.absolute(), acknowledged_until_ms=until_ms, groups=groups)
    manifest = made.manifest
    if json:
        told = {"data": str(data), "at_ms": manifest.at_ms, "files": len(manifest.files), "bytes": manifest.bytes}
        output.json_line(told | {"groups": [asdict(change) for change in made.changes]})
        return
    output.line(f"{data}: {len(manifest.files)} files, {manifest.bytes} bytes, as of {format_ms(manifest.at_ms)}")
    for change in made.changes:
        output.line(
            f"group {change.group} of topic {change.topic}: {change.messages} acknowledgements do not count, the first "
            f"of a message of {format_ms(change.first_ms)}"
        )
    if until_ms is not None and not made.changes:
        output.line("no group has acknowledged a message of that time that is still kept")


def _group(text: str) -> tuple[str, str]:
    topic, slash, group = text.rpartition("/")
    if not slash or not topic or not group:
        raise InvalidArgumentError(f"--group is {text!r:.200}; allowed: TOPIC/GROUP")
    return topic, group
