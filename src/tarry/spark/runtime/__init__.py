"""What every process with Spark in it needs: ``versions`` says of which PySpark, ``java`` finds a Java, ``session``
starts Spark (its JVM: ``launch``), ``conf`` says by which settings, ``failures`` tells its errors in a line,
``executors`` says that a cluster gives none, ``daemon`` starts its Python workers, ``process`` ends processes with all
that they started.

Used by the pipeline, the reports, the relay and the demo. Nothing here imports PySpark before a session is started.
"""
