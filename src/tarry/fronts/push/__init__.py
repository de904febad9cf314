"""The pusher: POSTs the messages of push subscriptions to their URLs.

``front`` starts and stops it · ``pusher`` has a ``delivery`` for each subscription · ``request`` makes the requests,
``client`` sends them, to addresses that ``resolver`` has checked · ``verdict`` interprets an answer · ``breaker``,
``rate`` and ``figures`` are a subscription's circuit breaker, its pace, and its figures.
"""
