"""The metrics front: ``collector`` has a broker's figures for Prometheus, ``server`` serves them.

Reading costs something when somebody reads; nothing is counted for it on the way of a message.
"""
