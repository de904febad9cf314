"""Batches out of single calls: which calls travel together, and when a batch is sent."""
