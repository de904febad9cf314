"""``tarry forecast --report``: the load to come, counted message by message (``docs/reports.md``).

``pending`` reads pending messages from a store's files and a broker's intake · ``count`` counts them by topic, unit and
herd · ``result`` holds the outcome as plain values, without Spark · ``page`` renders it.
"""
