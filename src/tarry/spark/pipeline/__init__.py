"""The data pipeline on Apache Spark, one file a job: ``schedule`` and ``compact``. Nothing here imports PySpark until a
job runs.

``schedule`` moves messages from the broker's intake to the store, exactly once. Message bodies never enter the JVM:
``plan`` says when a batch starts and how far it reaches, ``intake_source`` gives Spark ranges of seqs instead of
messages, ``stage_task`` moves the bytes in Spark's Python tasks, and ``checkpoint`` compares Spark's checkpoint with
the store. ``compact`` expires, merges and cuts the store's files, by ``upkeep``, which keeps a relay's store, too.

``supervisor`` keeps ``schedule`` running beside a broker; ``job`` is the process of a job, and what it reports.
Spark reaches the broker by Arrow Flight only (``tarry.spark.broker_client``).
"""
