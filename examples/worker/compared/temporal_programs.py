"""Five programs with temporalio 1.35; see docs/worker-compared.md. ``python temporal_programs.py``."""

# -- 1: a handler of eight messages at a time
import asyncio
import os
import signal
import uuid
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Worker


@activity.defn
async def bill(order: dict) -> None:
    print("bill", order["number"])


@workflow.defn
class Bill:
    @workflow.run
    async def run(self, order: dict) -> None:
        await workflow.execute_activity(bill, order, start_to_close_timeout=timedelta(minutes=1))


async def work() -> None:
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))
    worker = Worker(
        client,
        task_queue="shop",
        workflows=[Bill, Mail, Report],
        activities=[bill, mail, report],
        max_concurrent_activities=8,
        graceful_shutdown_timeout=timedelta(seconds=25),
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with worker:
        await stop.wait()


# -- 2: other back-offs for other exceptions, and none for what will not get better
class NoSuchAddressError(Exception): ...


@activity.defn
async def mail(order: dict) -> None:
    if "@" not in order["to"]:
        raise NoSuchAddressError(order["to"])
    raise ConnectionError("the mail server is away")


@workflow.defn
class Mail:
    @workflow.run
    async def run(self, order: dict) -> None:
        policy = RetryPolicy(
            initial_interval=timedelta(seconds=10),
            maximum_interval=timedelta(hours=1),
            maximum_attempts=16,
            non_retryable_error_types=["NoSuchAddressError"],
        )
        await workflow.execute_activity(mail, order, start_to_close_timeout=timedelta(minutes=1), retry_policy=policy)


# -- 3: in an hour, and cancelled before
async def remind_and_think_better(client: Client) -> str:
    handle = await client.start_workflow(
        Bill.run, {"number": 7}, id=str(uuid.uuid4()), task_queue="shop", start_delay=timedelta(hours=1)
    )
    await handle.cancel()
    return handle.id


# -- 4: a handler of 20 seconds, which a stop lets end
@activity.defn
async def report() -> None:
    await asyncio.sleep(20)  # a plain function needs an executor of its own
    print("reported")


@workflow.defn
class Report:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(report, start_to_close_timeout=timedelta(minutes=1))


# -- 5: a test: after 30 days, away at first, and again after ten seconds
async def test_a_mail_is_tried_again() -> None:
    from temporalio.testing import WorkflowEnvironment

    tries = []

    @activity.defn(name="mail")
    async def away_at_first(order: dict) -> None:
        tries.append(order)
        if len(tries) == 1:
            raise ConnectionError("the mail server is away")

    async with (
        await WorkflowEnvironment.start_time_skipping() as environment,  # downloads a server
        Worker(environment.client, task_queue="shop", workflows=[Mail], activities=[away_at_first]),
    ):
        order = {"to": "anna@example.com"}
        await environment.client.execute_workflow(
            Mail.run, order, id="m", task_queue="shop", start_delay=timedelta(days=30)
        )
    assert len(tries) == 2


if __name__ == "__main__":
    asyncio.run(work())
