"""Delay beside a broker that has none: messages are taken from it, kept until they are due, and given back to it.

``amqp_message`` is a message of RabbitMQ as one of Tarry, and back · ``rabbitmq`` has the connections and both flows.
"""
