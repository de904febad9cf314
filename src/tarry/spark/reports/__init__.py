"""Reports made with Spark, each written as one HTML file: ``audit`` and ``forecast``.

Each of the two has its result as plain values and its page, which know neither Spark nor a broker. ``pages`` has what
both pages are made of, ``session`` the Spark session of a command.
"""
