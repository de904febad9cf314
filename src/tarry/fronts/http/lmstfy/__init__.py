"""lmstfy's HTTP API over Tarry.

Namespaces and queues are topics, jobs are messages, tokens are access tokens.

``routes`` says what is asked for, and ``request`` is one such question with its answer · ``sending`` · ``receiving``
and ``waiting`` · ``settling`` · ``queues`` (size, peek, dead letters, destroy) carry it out · ``limits`` counts what
tokens do · ``admin`` is the other port. ``names`` has topics and job ids, ``answers`` the texts.
"""
