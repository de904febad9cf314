"""The API of Amazon EventBridge Scheduler on the HTTP port, with queues of SQS's API as targets.

A schedule is a keyed message that says what it is, in a topic of Tarry's own, and a keyed message in its queue's topic,
its next occurrence: see ``docs/decisions/0062-eventbridge-scheduler.md``.
"""
