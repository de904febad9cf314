"""Looking at a broker: what is pending and when it falls due, what is ready, how late things were.

``cut`` says where every pending message is at one moment · ``sources`` ask those places in one way · ``listing`` makes
pages of them, with ``cursor`` · ``next_due`` · ``forecast`` · ``peek`` · ``lateness`` · ``history`` is what is known of
one message, with ``traces`` of it, ``overview`` all figures at once. Nothing is kept for any of it or changed.
"""
