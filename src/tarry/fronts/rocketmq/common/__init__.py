"""The parts that all RocketMQ protocols share.

They are: names, properties, codes, groups, topics, half messages, dead letters, and the two queues that no thread waits
for (of receives, and of sends).

The code of a refusal is one of ``apache.rocketmq.v2``, the finer of RocketMQ's two sets.
"""
