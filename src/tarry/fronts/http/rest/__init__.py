"""Tarry's own API over HTTP: ``/v1/…``, made of the operations in ``tarry.api``.

Its description (OpenAPI) and a page of it are made, too.

``table`` says which operation has which path · ``operations`` makes an endpoint of one · ``sending``, ``receiving``,
``events`` and ``batches`` are what needs more than that · ``openapi`` and ``page`` describe all of it.
"""
