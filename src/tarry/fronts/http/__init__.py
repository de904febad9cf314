"""HTTP: lmstfy's API, Tarry's own, and the console, as ASGI applications behind one server.

``front`` starts and stops · ``services`` is what all of them ask the broker through · ``app`` sends a request to the
application whose path it has.
"""
