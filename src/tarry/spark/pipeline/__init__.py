"""The data pipeline on Apache Spark, with a file for each job: ``schedule`` and ``compact``.

Nothing here imports PySpark until a job runs. ``schedule`` moves messages from the broker's intake to the store,
exactly once. Message bodies never enter the JVM: ``plan`` decides the start and the extent of a batch,
``intake_source`` gives Spark ranges of seqs instead of messages, ``stage_task`` moves the bytes in Spark's Python
tasks, and ``checkpoint`` compares Spark's checkpoint with the store. ``compact`` expires, merges and cuts the store's
files, by ``upkeep``, which a relay's store uses, too. ``supervisor`` keeps ``schedule`` running beside a broker;
``job`` is the process of a job, with its reports. Spark reaches the broker by the link only
(``tarry.spark.broker_client``).
"""
