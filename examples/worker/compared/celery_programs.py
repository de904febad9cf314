"""Five programs with Celery 5.7 on Redis; see docs/worker-compared.md. ``celery -A celery_programs worker -c 8``."""

# -- 1: a handler of eight messages at a time
import os

from celery import Celery

app = Celery("shop", broker=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
app.conf.task_acks_late = app.conf.task_reject_on_worker_lost = True  # else what a killed worker had is lost
app.conf.broker_connection_retry_on_startup = True


@app.task
def bill(order: dict) -> None:
    print("bill", order["number"])


# -- 2: other back-offs for other exceptions, and none for what will not get better
class NoSuchAddressError(Exception): ...


@app.task(autoretry_for=(OSError,), retry_backoff=10, retry_backoff_max=3600, max_retries=15)
def mail(order: dict) -> None:
    if "@" not in order["to"]:
        raise NoSuchAddressError(order["to"])
    raise ConnectionError("the mail server is away")


# -- 3: in an hour, and cancelled before
def remind_and_think_better() -> str:
    sent = bill.apply_async(({"number": 7},), countdown=3600)
    sent.revoke()  # workers that run now hear of it; nobody says whether it was in time
    return sent.id


# -- 4: a handler of 20 seconds, which a stop lets end
@app.task
def report() -> None:
    import time

    time.sleep(20)
    print("reported")


# -- 5: a test: after 30 days, away at first, and again after ten seconds
def test_a_mail_is_tried_again() -> None:
    from unittest.mock import patch

    import pytest
    from celery.exceptions import Retry

    # There is no clock to move, and a task that is called has no retries: the test looks at what they would be given.
    with patch.object(mail, "retry", side_effect=Retry()) as retry, pytest.raises(Retry):
        mail({"to": "anna@example.com"})
    assert 0 <= retry.call_args.kwargs["countdown"] <= 10
