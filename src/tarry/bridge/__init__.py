"""Delay beside a broker that has none: messages wait in Tarry until they are due.

``amqp_message`` is a message of RabbitMQ as one of Tarry, and back · ``rabbitmq`` has the connections and both flows.
"""
