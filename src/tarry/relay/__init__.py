"""The relay: delayed messages from Kafka to Kafka, without a broker; how to use and run it: ``docs/cluster.md``.

Two streaming queries in one Spark session. ``schedule`` moves what producers wrote into the store, and sends on at once
what has no delay; ``deliver`` sends on what falls due. Both write to Kafka in transactions that hold, with the records,
a marker of how far they have got; so a crash anywhere loses nothing and sends nothing twice
(``docs/decisions/0015-relay.md``).

A record: ``headers`` and ``rules`` decide what becomes of it, ``record`` makes a row of it and back. Kafka: ``clients``
connects, ``reading`` reads ranges of offsets, ``writer`` writes transactions with ``markers``, ``sending`` makes dead
letters of what Kafka refuses. The store: ``table`` commits to it, ``files`` follows its versions, ``cancels`` reads its
cancellations, ``upkeep`` keeps its files in shape. The queries: ``sources`` for Spark; ``positions`` and ``schedule``;
``deliver``, ``follow`` and ``read_ahead``; ``queries`` does their batches in the driver, with ``runner``, which shares
large ones out to Spark's tasks. ``prepare`` checks everything before the start, ``job`` runs
both queries, ``status`` reports on them.
"""
