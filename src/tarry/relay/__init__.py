"""The relay: delayed messages from Kafka to Kafka, without a broker; how to use and run it: ``docs/cluster.md``.

Its work is done in long Spark tasks, two for each shard: one schedules, which moves what producers wrote into the store
and sends on at once what has no delay; the other delivers, which sends on what falls due. Both write to Kafka in
transactions that hold, with the records, a marker of how far they have got; so a crash anywhere loses nothing and sends
nothing twice (``docs/decisions/0015-relay.md``, ``0029-relay-in-tasks.md``).

A record: ``headers`` and ``rules`` decide what becomes of it, ``record`` makes a row of it and back. Kafka: ``clients``
connects, ``reading`` reads ranges of offsets, ``writer`` writes transactions with ``markers``, ``sending`` makes dead
letters of what Kafka refuses. The store: ``table`` commits to it, ``files`` follows its versions, ``cancels`` reads its
cancellations, ``upkeep`` keeps its files in shape. In tasks: ``tasks`` is what runs there; ``schedule`` does a plan;
``follow``, ``read_ahead`` and ``deliver`` deliver. In the driver: ``sources``, ``positions`` and ``queries`` plan and
commit the schedule query's batches; ``long_tasks`` keeps the tasks running, and ``line`` connects them with it.
``prepare`` checks everything before the start, ``job`` runs it all, ``status`` reports.
"""
