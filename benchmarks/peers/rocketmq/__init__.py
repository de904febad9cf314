"""Apache RocketMQ: :mod:`.server` is the real one, :mod:`.client` its official client, for any endpoint of its gRPC."""
