"""Parts of the API of Amazon EventBridge Scheduler; no port serves it yet.

What is here: its expressions as rules of recurrence, its names and ARNs, and its errors.
"""
