"""What every process with Spark in it needs: ``java`` finds a Java, ``session`` starts Spark and shortens its errors,
``conf`` says by which settings, ``daemon`` starts its Python workers, ``process`` ends processes with all that they
started.

Used by the pipeline, the reports, the relay and the demo. Nothing here imports PySpark before a session is started.
"""
