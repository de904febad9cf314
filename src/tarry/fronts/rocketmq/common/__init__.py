"""What every RocketMQ protocol shares, whatever its wire: names, properties, codes, groups, topics, half messages, dead
letters, and the two queues that no thread waits for (of receives, and of sends).

A code of a refusal is one of ``apache.rocketmq.v2``, the finer set of the two that RocketMQ has.
"""
