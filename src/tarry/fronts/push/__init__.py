"""The pusher: POSTs the messages of push subscriptions to their URLs.

``front`` begins and ends it · ``pusher`` has a ``delivery`` for each subscription · ``request`` makes what is sent,
``client`` sends it, to addresses that ``resolver`` has checked · ``verdict`` says what an answer means · ``breaker``,
``rate`` and ``figures`` are a subscription's circuit breaker, its pace, and its figures.
"""
