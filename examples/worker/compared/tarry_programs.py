"""Five programs with Tarry's worker; see docs/worker-compared.md."""

# -- 1: a handler of eight messages at a time
import tarry

worker = tarry.Worker()


@worker.on("orders", group="billing", concurrency=8)
async def bill(order: dict) -> None:
    print("bill", order["number"])


# -- 2: other back-offs for other exceptions, and none for what will not get better
class NoSuchAddressError(Exception): ...


@worker.on("mails", group="billing", retry={OSError: "exponential 10s max 1h", NoSuchAddressError: tarry.Reject})
async def mail(order: dict) -> None:
    if "@" not in order["to"]:
        raise NoSuchAddressError(order["to"])
    raise ConnectionError("the mail server is away")


# -- 3: in an hour, and cancelled before
def remind_and_think_better() -> str:
    with tarry.Client(worker.address) as client:
        receipt = client.schedule("orders", '{"number": 7}', delay="1h")
        return client.cancel(receipt.handle)  # "done": nobody ever gets it


# -- 4: a handler of 20 seconds, which a stop lets end
@worker.on("reports", group="billing")
def report() -> None:
    import time

    time.sleep(20)
    print("reported")


# -- 5: a test: after 30 days, away at first, and again after ten seconds
def test_a_mail_is_tried_again(tarry_broker) -> None:
    with tarry_broker.run(worker) as running:
        tarry_broker.schedule("mails", '{"to": "anna@example.com"}', delay="30d")
        tarry_broker.advance("30d")
        assert [each.ending for each in running.handled] == ["retried"]
        tarry_broker.advance("10s")
        assert [each.ending for each in running.handled] == ["retried"] * 2
