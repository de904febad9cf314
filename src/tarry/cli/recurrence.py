"""Options that say how a message comes again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tarry.base.errors import InvalidArgumentError
from tarry.cli.options import duration_ms, instant_ms

Every = Annotated[str | None, typer.Option("--every", help="It comes again after so long, for ever: 1m, 6h.")]
Cron = Annotated[str | None, typer.Option("--cron", help="It comes again at such times: '0 9 * * MON-FRI'.")]
Zone = Annotated[str | None, typer.Option("--zone", metavar="NAME", help="Of --cron: Europe/Berlin; else UTC.")]
Times = Annotated[int | None, typer.Option("--times", min=1, metavar="N", help="So often in all, not for ever.")]
Until = Annotated[str | None, typer.Option("--until", help="Not after this instant; as --due.")]
Rule = Annotated[
    str | None, typer.Option("--repeat", metavar="JSON", help='All of it: \'{"every": "1s", "factor": 2}\'.')
]


def repeat_json(
    rule: str | None, every: str | None, cron: str | None, zone: str | None, times: int | None, until: str | None
) -> str | None:
    """Return the rule of the options as JSON; None: there is none.

    Raises:
        InvalidArgumentError: the options contradict each other, or a value is not allowed.
    """
    fields: dict[str, Any] = {"cron": cron, "zone": zone, "times": times}
    if every is not None:
        fields["every"] = f"{duration_ms(every, '--every')}ms"
    if until is not None:
        fields["until"] = instant_ms(until, "--until")
    given = {name: value for name, value in fields.items() if value is not None}
    if rule is None and not given:
        return None
    if rule is not None and given:
        raise InvalidArgumentError(f"--repeat and --{next(iter(given))} are both given; allowed: one of them")
    if rule is None and "every" not in given and "cron" not in given:
        raise InvalidArgumentError(f"--{next(iter(given))} without --every or --cron; allowed: with one of them")
    from tarry.repeat import parse, to_json

    return to_json(parse(given if rule is None else rule, least_ms=1))
