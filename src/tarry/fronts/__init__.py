"""Network fronts: each translates one protocol into calls on the broker, and decides nothing itself."""
