"""The relay: delayed messages from Kafka to Kafka, without a broker (``docs/cluster.md``).

Its work is done in long Spark tasks, two for each shard. One schedules: it moves records from the source topics into
the store and sends on at once what has no delay. The other delivers: it sends on what falls due. Both write to Kafka in
transactions that hold, with the records, a marker of their progress; so a crash anywhere loses nothing and sends
nothing twice (``docs/decisions/0015-relay.md``, ``0029-relay-in-tasks.md``).

A record: ``headers`` and ``rules`` decide about it, ``record`` converts it to a row and back. Kafka: ``clients``
connects, ``reading`` reads ranges of offsets, ``writer`` writes transactions with ``markers``, ``sending`` makes dead
letters of records that Kafka refuses. The store: ``table`` commits to it, ``files`` follows its versions, ``cancels``
reads its cancellations, ``upkeep`` merges and removes its files. In tasks: ``tasks`` is their main program;
``schedule`` carries out a plan; ``follow``, ``read_ahead`` and ``deliver`` deliver. In the driver: ``sources``,
``positions`` and ``queries`` plan and commit the schedule query's batches; ``long_tasks`` keeps the tasks running, and
``line`` connects them with the driver. ``command`` reads the options,
``prepare`` checks everything before the start, ``job`` runs it all, ``status`` reports.
"""
