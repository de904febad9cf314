"""Brokers that take a log over from one another, simulated: whole brokers, in one thread, of which a seed decides all.

Machines (``machines.py``) have wall clocks of their own (some seconds, now and then an hour apart), boot clocks that do
not run quite alike, and ways to the store that delay, fail, lose answers, or have PUTs arrive later. All are on one
event loop, whose time passes at once (``world.py``), and are called through ``cluster.py``.

A life (``life.py``) goes from fault to fault (``faults.py``), which come between two calls, or while one waits for the
store. In between, clients send and change messages (``producers.py``, ``jobs.py``) and consume them (``consumers.py``),
also those of former owners, which may not know that they are. What they saw (``history.py``) is checked at once where
that is possible, and in the end (``checks.py``).

A checker that finds nothing may see nothing: ``defects.py`` has defects of brokers, and each has to be found.
"""
