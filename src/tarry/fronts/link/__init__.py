"""The link, served: Tarry's own wire, of clients and of gateways' workers (``docs/formats-link.md``)."""
