"""The metrics front: ``collector`` has the figures, ``exposition`` answers, ``front`` starts its ``server``.

Reading costs something when somebody reads; nothing is counted for it on the way of a message.
"""
