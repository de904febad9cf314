"""The metrics front: ``collector`` has the figures, ``exposition`` answers, ``server`` has the port.

Reading costs something when somebody reads; nothing is counted for it on the way of a message.
"""
