"""The data pipeline on Apache Spark: one file a job. Nothing here imports PySpark until a job runs.

``schedule`` moves messages from the broker's intake to the store; ``supervisor`` keeps it running beside a broker.
Spark reaches the broker by Arrow Flight only (``intake_client``), and message bodies never enter the JVM: Spark plans
ranges of seqs (``source``), its Python tasks move the bytes (``task``).
"""
