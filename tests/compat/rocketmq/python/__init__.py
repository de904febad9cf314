"""The program for the official Python client, rocketmq-python-client: ``python -m tests.compat.rocketmq.python``."""
