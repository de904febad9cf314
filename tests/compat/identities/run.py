"""Official clients with two keys of different rights: ``python -m tests.compat.identities.run [--language NAME] …``.

``make compat-identities``. One key may produce, the other consume for one group; both are tried at what they may and at
what they may not, with a wrong secret, and while they are removed. A client without a key is `anonymous`, and sends
where that may. Each program says what came of each attempt, and a line that is missing is a failure. A language that
cannot be built here is said to be left out: the exit code is 2 then.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tarry.client import Client
from tests.compat.identities.expected import Verdict, judge
from tests.compat.identities.sessions import Names, run
from tests.compat.lmstfy.programs import identities_command
from tests.compat.rocketmq.programs import MissingToolError, build, cache, is_classic
from tests.compat.rocketmq.servers import TarryServer, tarry_server
from tests.compat.sources import NoSourceError

LMSTFY = "lmstfy-go"
LANGUAGES = ("python", "java", "node", "go", "rust", "classic-java", "classic-java-4.9", "classic-go", LMSTFY)
WORKERS = (0, 2)
AT_THE_START = (
    "send-elsewhere",
    "receive-elsewhere",
    "anonymous-sends-elsewhere",
    "anonymous-receives",
    "wrong-secret-sends",
    "wrong-secret-receives",
    "revoked-sends",
    "revoked-receives",
)
"""Refused when a client asks for a topic's route, before it does anything else."""
NO_ROUTE = dict.fromkeys(("wrong-secret-sends", "revoked-sends"), ("No route info of this topic: {topic}",))
OWN_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "python": dict.fromkeys(AT_THE_START[2:], ("failed to fetch topic:{topic} route",)),
    "node": dict.fromkeys(AT_THE_START, ("Failed to fetch topic routes",)),
    "classic-java": NO_ROUTE,
    "classic-java-4.9": NO_ROUTE,
    "classic-go": {
        **dict.fromkeys(NO_ROUTE, ("the topic={topic} route info not found",)),
        "receive-by-sender": ("right consume", "{group}"),
    },
}
"""Where a client does not show the broker's text: what its own has in it."""


@dataclass(frozen=True)
class Broker:
    """A Tarry with identities, and its administrator."""

    server: TarryServer
    http: str
    admin: Client

    def endpoint(self, language: str) -> str:
        """Where a language's client connects to."""
        found = self.server.classic_endpoint if is_classic(language) else self.server.endpoint
        assert found is not None
        return self.http if language == LMSTFY else found


def main(arguments: list[str] | None = None) -> int:
    """Try languages; 0: all was as expected, 1: something was not, 2: a language was left out."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended, it ends what it has started
    directory = cache() / "runs" / time.strftime("identities-%Y%m%d-%H%M%S")
    directory.mkdir(parents=True)
    commands, left_out = _commands(options.language or list(LANGUAGES), directory)
    failed = []
    for workers in options.workers if options.workers is not None else WORKERS:
        with _broker(directory / f"workers-{workers}", workers) as broker:
            for language, command in commands.items():
                print(f"== {language}, {f'{workers} workers' if workers else 'one process'}", flush=True)
                verdicts = _try(language, command, broker, directory / f"{language}-{workers}")
                _say(verdicts)
                failed += [f"{language}, workers {workers}: {one.name}" for one in verdicts if not one.holds]
    print(f"\nwhat they said: {directory}")
    for text in [*(f"FAILED {one}" for one in failed), *(f"LEFT OUT {one}" for one in left_out)]:
        print(text)
    return 1 if failed else 2 if left_out else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.identities.run", description=__doc__)
    parser.add_argument("--language", action="append", choices=LANGUAGES, help="repeatable; all")
    parser.add_argument("--workers", action="append", type=int, choices=WORKERS, help="repeatable; both")
    return parser.parse_args(arguments)


def _commands(languages: list[str], directory: Path) -> tuple[dict[str, list[str]], list[str]]:
    """How each language's program is run, and which cannot be built here, with the reason."""
    found, left_out = {}, []
    for language in dict.fromkeys(languages):
        try:
            found[language] = identities_command(directory / "build") if language == LMSTFY else build(language)
        except (MissingToolError, NoSourceError, RuntimeError, subprocess.CalledProcessError) as error:
            left_out.append(f"{language}: {error}")
    return found, left_out


@contextmanager
def _broker(directory: Path, workers: int) -> Iterator[Broker]:
    http = f"127.0.0.1:{_free_port()}"
    settings = ["--http", http, *(["--workers", str(workers)] if workers else [])]
    with tarry_server(directory, *settings) as server:
        with Client(str(server.flight)) as first:
            first.set_identity("admin", ["admin"])
            token = first.add_credential("admin").secret
            first.set_identity("anonymous", ["produce stock-*", "produce mailers-lmstfy-go/stock-*"])
        with Client(str(server.flight), token=token) as admin:
            yield Broker(server, http, admin)


def _try(language: str, command: list[str], broker: Broker, directory: Path) -> list[Verdict]:
    own = language.replace(".", "-")  # some clients take no dot in a topic
    names, removable = _named(own, broker.admin, tokens=language == LMSTFY)
    session = run(command, broker.endpoint(language), names, broker.admin, removable, directory)
    return judge(session, names, OWN_WORDS.get(language, {}), tokens=language == LMSTFY)


def _named(own: str, admin: Client, *, tokens: bool) -> tuple[Names, list[str]]:
    """Two identities with a key each: names for a program, and the ids of the keys, or of ``tokens`` for lmstfy."""
    group = f"mailers-{own}"
    topics, reader = (f"{group}/orders-*", "lmstfy") if tokens else ("orders-*", group)
    keys, ids = {}, []
    for name, grant in (
        (f"sender-{own}", f"produce {topics}"),
        (f"receiver-{own}", f"consume {topics} group:{reader}"),
    ):
        admin.set_identity(name, [grant])
        if tokens:
            made = admin.add_credential(name)
        else:
            made = admin.add_credential(name, kind="access_key", access_key=name, secret=f"secret-of-{name}")
        keys[name] = made.secret
        ids.append(made.id)
    topic = f"orders-{own}"
    stored = (f"{group}/{topic}", reader) if tokens else (topic, group)
    return Names(topic, group, f"stock-{own}", keys, stored), ids


def _say(verdicts: list[Verdict]) -> None:
    for one in verdicts:
        print(f"{'ok' if one.holds else 'FAILED':7} {one.name:22} {one.said:.400}", flush=True)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
