"""The matrix of the official clients' languages and the scenarios: ``python -m tests.compat.rocketmq.run --help``.

Builds each language's program outside of the tree, starts ``tarry serve``, runs, and prints a table. ``--language e2e``
and what follows it is for RocketMQ's own tests, see :mod:`tests.compat.rocketmq.e2e`; ``--language moving`` moves
between the two: :mod:`tests.compat.rocketmq.moving`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from . import e2e, moving
from .programs import LANGUAGES, MissingToolError, build, cache, is_classic
from .running import Result, run
from .scenarios import KEY, SCENARIOS, Scenario
from .servers import GivenServer, NotInThisVersionError, Server, original_server, tarry_server

MARKS = {"ok": "ok", "skipped": "-", "failed": "FAILED", "timeout": "TIMEOUT"}
_said = threading.Lock()


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:2] == ["--language", "e2e"]:
        return e2e.main(words[2:])
    if words == ["--language", "moving"]:
        return moving.main()
    options = _options(words)
    # Ended, it ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = cache() / "runs" / time.strftime("%Y%m%d-%H%M%S")
    commands = _commands(options.language or list(LANGUAGES))
    try:
        names = options.scenario or list(SCENARIOS)
        with _server(options, directory) as server, _signed_server(options, names, directory) as signed:
            results = list(_run(commands, names, server, signed, directory, options.jobs))
    except NotInThisVersionError as error:
        print(error, file=sys.stderr)
        return 3
    print(_table(results))
    print(f"\nwhat they said: {directory}")
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1, ensure_ascii=False))
    return 0 if all(result.outcome in ("ok", "skipped") for result in results) else 1


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.rocketmq.run", description=__doc__)
    parser.add_argument("--language", action="append", choices=list(LANGUAGES), help="repeatable; all")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="repeatable; all")
    parser.add_argument("--endpoint", metavar="HOST:PORT", help="a server that runs already")
    parser.add_argument("--classic", metavar="HOST:PORT", help="its endpoint for classic clients")
    parser.add_argument("--flight", metavar="HOST:PORT", help="its Flight front, for settings of groups")
    parser.add_argument("--original", action="store_true", help="RocketMQ itself, from benchmarks.peers")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser.parse_args(arguments)


@contextmanager
def _server(options: argparse.Namespace, directory: Path) -> Iterator[Server]:
    if options.endpoint:
        yield GivenServer(options.endpoint, options.flight, options.classic)
    elif options.original:
        with original_server() as original:
            yield original
    else:
        with tarry_server(directory) as tarry:
            yield tarry


@contextmanager
def _signed_server(options: argparse.Namespace, names: list[str], directory: Path) -> Iterator[Server | None]:
    """A Tarry that wants requests signed, for scenarios that sign; None: there are none, or the server is not ours."""
    if options.endpoint or options.original or not any(SCENARIOS[name].signed for name in names):
        yield None
        return
    directory.mkdir(parents=True, exist_ok=True)
    keys = directory / "keys"
    keys.write_text(" ".join(KEY) + "\n")
    with tarry_server(directory / "signed", "--set", f"rocketmq_keys={keys}") as tarry:
        yield tarry


def _commands(languages: list[str]) -> dict[str, list[str]]:
    """How each language's program is run, as far as it can be built here."""
    found = {}
    for language in languages:
        try:
            found[language] = build(language)
        except (MissingToolError, subprocess.CalledProcessError) as error:
            print(f"{language}: left out: {error}", file=sys.stderr)
    return found


def _run(
    commands: dict[str, list[str]],
    names: list[str],
    server: Server,
    signed: Server | None,
    directory: Path,
    jobs: int,
) -> Iterator[Result]:
    """``signed``: where scenarios are run that sign; None: they are run at ``server``, too."""
    pairs = [
        (SCENARIOS[name], language)
        for name, language in itertools.product(names, commands)
        if SCENARIOS[name].is_classic == is_classic(language)
    ]

    def one(pair: tuple[Scenario, str]) -> Result:
        scenario, language = pair
        place = signed if scenario.signed and signed is not None else server
        result = run(language, commands[language], scenario, place, directory / f"{language}-{scenario.name}")
        with _said:
            said = result.reason or json.dumps(_own(result.facts), ensure_ascii=False)
            mark = MARKS[result.outcome]
            print(f"{language:16} {scenario.name:19} {mark:8} {result.seconds:6.1f} s  {said}", flush=True)
        return result

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        yield from pool.map(one, [pair for pair in pairs if not pair[0].alone])
    yield from map(one, [pair for pair in pairs if pair[0].alone])


def _own(facts: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in facts.items() if name not in ("client", "scenario")}


def _table(results: list[Result]) -> str:
    languages = list(dict.fromkeys(result.language for result in results))
    cells = {(result.scenario, result.language): MARKS[result.outcome] for result in results}
    lines = ["", f"{'':20}" + "".join(f"{language:17}" for language in languages)]
    for name in dict.fromkeys(result.scenario for result in results):
        lines.append(f"{name:20}" + "".join(f"{cells.get((name, language), ''):17}" for language in languages))
    clients = {str(result.facts["client"]) for result in results if "client" in result.facts}
    return "\n".join([*lines, "", *sorted(clients)])


if __name__ == "__main__":
    sys.exit(main())
