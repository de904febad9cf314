"""Five programs with dramatiq 2.2 on Redis; see docs/worker-compared.md. ``dramatiq dramatiq_programs -t 8 -p 1``."""

# -- 1: a handler of eight messages at a time
import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="orders")
def bill(order: dict) -> None:
    print("bill", order["number"], flush=True)


# -- 2: other back-offs for other exceptions, and none for what will not get better
class NoSuchAddressError(Exception): ...


@dramatiq.actor(queue_name="mails", min_backoff=10_000, max_backoff=3_600_000, throws=(NoSuchAddressError,))
def mail(order: dict) -> None:
    if "@" not in order["to"]:
        raise NoSuchAddressError(order["to"])
    raise ConnectionError("the mail server is away")


# -- 3: in an hour, and cancelled before
def remind_and_think_better() -> str:
    message = bill_unless_cancelled.send_with_options(args=({"number": 7},), delay=3_600_000)
    broker.client.set(f"cancelled:{message.message_id}", 1, ex=7200)
    return message.message_id


@dramatiq.actor(queue_name="orders")
def bill_unless_cancelled(order: dict) -> None:
    message = dramatiq.middleware.CurrentMessage.get_current_message()
    if not broker.client.exists(f"cancelled:{message.message_id}"):
        bill.fn(order)


broker.add_middleware(dramatiq.middleware.CurrentMessage())


# -- 4: a handler of 20 seconds, which a stop lets end
@dramatiq.actor(queue_name="reports")
def report() -> None:
    import time

    time.sleep(20)
    print("reported", flush=True)


# -- 5: a test: after 30 days, away at first, and again after ten seconds
def test_a_mail_is_tried_again() -> None:
    from unittest.mock import patch

    # There is no clock to move, and the stub broker waits in real time: the test looks at the delay of the retry.
    retries = next(each for each in broker.middleware if isinstance(each, dramatiq.middleware.Retries))
    with patch.object(broker, "enqueue") as enqueue:
        message = mail.message({"to": "anna@example.com"})
        retries.after_process_message(broker, message, exception=ConnectionError("the mail server is away"))
    assert 10_000 <= enqueue.call_args.kwargs["delay"] <= 20_000
