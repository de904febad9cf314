"""Takeovers of a broker whose logs are in an object store: a proxy with faults, a checker, a campaign."""
