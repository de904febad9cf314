"""The relay: delayed messages from Kafka to Kafka, without a broker; how to use and run it: ``docs/cluster.md``.

Two streaming queries in one Spark session. ``schedule`` moves what producers wrote into the store, and hands on what
waits for nothing; ``deliver`` hands on what falls due. Both write to Kafka in transactions that hold, with the rows,
how far they have got; so a crash anywhere leaves nothing lost and nothing twice (``docs/decisions/0015-relay.md``).

Pure parts: ``headers`` and ``rules`` (what becomes of a record), ``record`` (a Kafka record as a row and back),
``positions`` (how far a batch reaches), ``ledger`` (which files a delivery reads). Kafka is reached through
``clients``, ``reading`` and ``outbox`` only; ``schedule``, ``deliver`` and their ``…_source`` are the queries, ``job``
runs them.
"""
