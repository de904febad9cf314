"""lmstfy: :mod:`.server` is the real one on a Redis of its own, :mod:`.client` its own Go client, for any server."""
