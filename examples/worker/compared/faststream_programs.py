"""Five programs with faststream 0.7 on Redis; see docs/worker-compared.md. ``faststream run MODULE:app``."""

# -- 1: a handler of eight messages at a time
import asyncio
import os
import time

from faststream import AckPolicy, FastStream
from faststream.redis import RedisBroker, StreamSub, TestRedisBroker

broker = RedisBroker(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), graceful_timeout=25)
app = FastStream(broker)


@broker.subscriber(stream=StreamSub("orders", group="billing", consumer="1"), max_workers=8)
async def bill(order: dict) -> None:
    print("bill", order["number"], flush=True)


# -- 2: other back-offs for other exceptions, and none for what will not get better
class NoSuchAddressError(Exception): ...


@broker.subscriber(stream=StreamSub("mails", group="billing", consumer="1"), ack_policy=AckPolicy.ACK)
async def mail(order: dict) -> None:
    try:
        if "@" not in order["to"]:
            raise NoSuchAddressError(order["to"])
        raise ConnectionError("the mail server is away")
    except OSError:
        attempt = order.get("attempt", 0) + 1
        await publish_later("mails", {**order, "attempt": attempt}, min(3600, 10 * 2 ** (attempt - 1)))


# -- 3: in an hour, and cancelled before
async def publish_later(stream: str, order: dict, seconds: float) -> str:
    import json

    entry = json.dumps([stream, order])
    await broker._connection.zadd("later", {entry: time.time() + seconds})  # noqa: SLF001 - it has no delays
    return entry


@app.after_startup
async def publish_what_is_due() -> None:
    async def poll() -> None:
        import json

        while True:
            for entry in await broker._connection.zrangebyscore("later", 0, time.time()):  # noqa: SLF001
                stream, order = json.loads(entry)
                await broker.publish(order, stream=stream)  # killed here, it is published twice
                await broker._connection.zrem("later", entry)  # noqa: SLF001
            await asyncio.sleep(1)

    app.polling = asyncio.create_task(poll())


async def remind_and_think_better() -> bool:
    entry = await publish_later("orders", {"number": 7}, 3600)
    return bool(await broker._connection.zrem("later", entry))  # noqa: SLF001


# -- 4: a handler of 20 seconds, which a stop lets end
@broker.subscriber(stream=StreamSub("reports", group="billing", consumer="1"))
async def report(_: dict) -> None:
    await asyncio.sleep(20)
    print("reported", flush=True)


# -- 5: a test: after 30 days, away at first, and again after ten seconds
async def test_a_mail_is_tried_again(monkeypatch) -> None:
    later = []

    async def note(stream: str, order: dict, seconds: float) -> str:
        later.append(seconds)
        return ""

    # There is no clock to move: the test looks at the delay that the handler asks for.
    monkeypatch.setitem(globals(), "publish_later", note)
    async with TestRedisBroker(broker) as test_broker:
        await test_broker.publish({"to": "anna@example.com"}, stream="mails")
    assert later == [10]
