"""``examples/link_node``, a client in Node written from docs/formats-link.md alone, does what the page says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tarry.fronts.link.front import LinkFront

EXAMPLE = Path(__file__).parents[2] / "examples" / "link_node"
NODE, NPM = shutil.which("node"), shutil.which("npm")
LINES_MAX = 300
INSTALL_S, RUN_S = 300, 60

pytestmark = [
    pytest.mark.rest,
    pytest.mark.skipif(NODE is None or NPM is None, reason="there is no Node on this machine"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with what it needs."""
    directory = tmp_path_factory.mktemp("node") / "link_node"
    shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("node_modules"))
    install = [str(NPM), "install", "--no-audit", "--no-fund", "--no-package-lock"]
    subprocess.run(install, cwd=directory, check=True, timeout=INSTALL_S, capture_output=True)
    return directory


@pytest.fixture
def port(front: LinkFront) -> int:
    return int(front.address.rpartition(":")[2])


def run(program: Path, port: int, script: str) -> Any:
    """Run a script with a ``client``; what it returns, as JSON."""
    whole = f"""
        import {{ connect }} from './tarry.mjs';
        const client = await connect({{ port: {port} }});
        const failed = async (promise) => {{
          try {{ await promise; return 'nothing'; }} catch (error) {{ return error.code; }}
        }};
        const take = async (consumer, count) => {{
          const taken = [];
          for await (const message of consumer) {{ if (taken.push(message) === count) return taken; }}
        }};
        const result = await (async () => {{ {script} }})();
        await client.close();
        console.log(JSON.stringify(result, (_, each) => typeof each === 'bigint' ? Number(each) : each));
    """
    path = program / "script.mjs"
    path.write_text(whole)
    done = subprocess.run([str(NODE), path.name], cwd=program, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_as_short_as_it_says() -> None:
    assert len((EXAMPLE / "tarry.mjs").read_text().splitlines()) <= LINES_MAX


def test_its_example_runs(program: Path, port: int) -> None:
    done = subprocess.run([str(NODE), "example.mjs", str(port)], cwd=program, capture_output=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    scheduled, came = done.stdout.decode().splitlines()
    assert scheduled.startswith("scheduled 0, due ")
    assert scheduled[-24:] <= came.partition(" at ")[2][:24], "never early"
    assert came.startswith("unpaid? at ")


def test_many_messages_come_once_each_with_all_that_they_have(program: Path, port: int) -> None:
    found = run(
        program,
        port,
        """
        const many = [...Array(10_000).keys()];
        const sent = many.map((n) => ({ topic: 'a', body: `${n}`, delay_ms: 1, properties: { grüße: `日本 ${n}` } }));
        const receipts = await client.schedule(sent);
        const consumer = await client.consume('a', 'g', { prefetch: 1000 });
        const got = [], acks = [];
        for await (const message of consumer) {
          got.push([Number(message.body), message.properties['grüße'], message.attempt]);
          acks.push(message.ack());
          if (got.length === many.length) break;
        }
        await Promise.all(acks);
        const lag = (await client.call('group-info', { topic: 'a', group: 'g' })).lag;
        return { first: receipts[0].seq, last: receipts.at(-1).seq, got, lag };
        """,
    )
    assert found["last"] - found["first"] == 9_999
    assert sorted(found["got"]) == [[n, f"日本 {n}", 1] for n in range(10_000)]
    assert found["lag"] == 0


def test_refusals_have_codes_and_end_nothing(program: Path, port: int) -> None:
    found = run(
        program,
        port,
        """
        const codes = [
          await failed(client.schedule([{ topic: '', body: 'x', delay_ms: 0 }])),
          await failed(client.call('no such')),
          await failed(client.consume('tarry.own', 'g')),
          await failed(client.schedule([{ topic: 'a', body: 'x', key: 'k', delay_ms: 60_000 }])),
        ];
        const key = await client.call('find-key', { topic: 'a', key: 'k' });
        const moved = await client.schedule([{ topic: 'a', body: 'y', key: 'k', delay_ms: 60_000 }]);
        return { codes, key: key !== null, seq: moved[0].seq };
        """,
    )
    assert found == {
        "codes": ["invalid_message", "invalid_argument", "invalid_argument", "nothing"],
        "key": True,
        "seq": 1,
    }


def test_a_message_given_back_comes_again_and_a_stale_lease_is_told(program: Path, port: int) -> None:
    found = run(
        program,
        port,
        """
        await client.schedule([{ topic: 'a', body: 'x', delay_ms: 0, id: 'mine' }]);
        const consumer = await client.consume('a', 'g');
        const [first] = await take(consumer, 1);
        await first.nack(0, 'not now');
        const [second] = await take(consumer, 1);
        const stale = await failed(first.ack());
        await second.ack();
        return { id: second.id, attempts: [first.attempt, second.attempt], stale };
        """,
    )
    assert found == {"id": "mine", "attempts": [1, 2], "stale": "stale_lease"}


def test_what_is_worked_on_is_held_and_what_a_closed_client_had_is_for_others(program: Path, port: int) -> None:
    found = run(
        program,
        port,
        """
        await client.schedule([{ topic: 'a', body: 'x', delay_ms: 0 }]);
        const consumer = await client.consume('a', 'g', { leaseMs: 600 });
        const [message] = await take(consumer, 1);
        await new Promise((resolve) => setTimeout(resolve, 2000));
        await message.ack();
        await client.schedule([{ topic: 'a', body: 'y', delay_ms: 0 }]);
        await take(consumer, 1);
        const other = await connect({ port: PORT });
        const waiting = await other.consume('a', 'g');
        consumer.close();
        const [again] = await take(waiting, 1);
        await again.ack();
        await other.close();
        return [message.attempt, again.body.toString(), await failed(other.call('ping'))];
        """.replace("PORT", str(port)),
    )
    assert found == [1, "y", "unavailable"]


def test_a_loop_without_await_that_is_left_gives_back_what_it_held(program: Path, port: int) -> None:
    found = run(
        program,
        port,
        """
        const sent = await client.schedule([..."abc"].map((body) => ({ topic: 'a', body, delay_ms: 0 })));
        await new Promise((resolve) => setTimeout(resolve, 200));
        for await (const message of client.consume('a', 'g')) { await message.ack(); break; }
        const rest = await take(client.consume('a', 'g'), 2);
        await Promise.all(rest.map((message) => message.ack().catch(() => {})));
        return [sent[0].due_ms > 0, rest.map((message) => message.body.toString()).sort()];
        """,
    )
    assert found == [True, ["b", "c"]]


def test_loops_that_share_a_consumer_are_all_told_of_its_end(program: Path, port: int) -> None:
    found = run(
        program,
        port,
        """
        const consumer = await client.consume('a', 'g');
        const loops = [1, 2].map(() => failed(take(consumer, 1)));
        await client.call('delete-group', { topic: 'a', group: 'g' });
        return Promise.all(loops);
        """,
    )
    assert found == ["closed", "closed"]


def test_what_would_end_the_connection_or_never_be_answered_is_an_error(program: Path, port: int) -> None:
    found = run(
        program,
        port,
        """
        const body = Buffer.alloc(33 * 2 ** 20);
        const large = Array(10).fill({ topic: 'a', body, delay_ms: 60_000 });
        return [
          await failed(client.schedule(large)),
          await failed(take(await client.consume('a', 'g', { prefetch: 0 }), 1)),
          await failed(client.call('ping')),
        ];
        """,
    )
    assert found == ["message_too_large", "invalid_argument", "nothing"]
