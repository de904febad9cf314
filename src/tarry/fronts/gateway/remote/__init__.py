"""The gateway's side: a broker elsewhere, as the fronts of this process see it."""
