"""A program with pika, as for the delayed-message plugin: delays, and a consumer that publishes once more what fails.

All that it is told is RabbitMQ's URL and the name of the exchange for what is delayed.
"""

import os
import time

import pika

DELAYED = os.environ["DELAYED_EXCHANGE"]
connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
channel = connection.channel()
channel.confirm_delivery()
channel.exchange_declare("orders", "direct", durable=True)
channel.queue_declare("pika", durable=True)
channel.queue_bind("pika", "orders", "pika")


def publish(body, delay_ms, **properties):
    headers = {"x-delay": delay_ms, **properties.pop("headers", {})}
    channel.basic_publish(
        DELAYED, "pika", body, pika.BasicProperties(headers=headers, delivery_mode=2, **properties), mandatory=True
    )


began = time.time()
publish(b"third", 3000)
publish(b"second", 2000, content_type="text/plain", correlation_id="c", headers={"shop": "Zürich", "n": 1 << 40})
publish(b"first", 1000)
publish(b"job", 1500, message_id="job-1", headers={"x-retry": 0})

found = []
for method, properties, body in channel.consume("pika", inactivity_timeout=60):
    assert method is not None, f"nothing has come for a minute, after {found}"
    if body == b"job" and (retry := properties.headers["x-retry"]) < 3:
        publish(body, 500, message_id=properties.message_id, headers={"x-retry": retry + 1})
    else:
        found.append(body)
    if body == b"first":
        assert time.time() - began >= 1, "it has come early"
        assert properties.headers["x-delay"] == -1000, properties.headers
    if body == b"second":
        assert properties.headers == {"x-delay": -2000, "shop": "Zürich", "n": 1 << 40}, properties.headers
        assert (properties.content_type, properties.correlation_id) == ("text/plain", "c")
    channel.basic_ack(method.delivery_tag)
    if len(found) == 4:
        break
assert [body for body in found if body != b"job"] == [b"first", b"second", b"third"], found
channel.cancel()
connection.close()
print("pika", pika.__version__, "ok")
