"""Reports made with Spark, each written as one HTML file: ``audit`` and ``forecast``.

Each of the two has its result as plain values and its page, both independent of Spark and of a broker. ``pages`` has
the parts of both pages, ``session`` the Spark session of a command.
"""
