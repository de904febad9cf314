"""Common parts of every process with Spark in it: the pipeline, the reports, the relay and the demo.

``versions`` checks PySpark's version, ``java`` finds a Java, ``session`` starts Spark (its JVM: ``launch``), ``conf``
merges its settings, ``failures`` tells its errors in a line, ``executors`` reports that a cluster gives none,
``daemon`` starts its Python workers, ``process`` ends processes with all that they started. Nothing here imports
PySpark before a session is started.
"""
