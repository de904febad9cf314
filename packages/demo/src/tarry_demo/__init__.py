"""``tarry demo``: a year of real flight departures through a real broker that is killed on the way.

``flights`` is the data · ``replay`` schedules it · ``consumer_main`` consumes it, in a process of its own that
``consumer_process`` starts and ends · ``broker_process`` does the same for the broker, and kills it · ``monitor`` polls
the broker's status meanwhile · ``scenario`` does all this in order, ``screen`` shows its progress. ``account`` compares
accepted with delivered messages, ``audit`` has Spark compare them again, ``facts`` holds the other measurements,
``report`` and ``picture`` present it · ``main`` is the whole, ``command`` its options.
"""
