"""The engine ``objects``: logs in an object store, so that another machine goes on where one ended.

From below: ``store`` (what is asked of a store) → ``s3`` (a real one) → ``content`` (names and bytes; format:
``docs/formats-log-store.md``) → ``history`` (claims, ends, reading) → ``rounds`` (what may be answered) → ``engine``.

Why it is safe, without a clock: an epoch's number is in each object's name, and epochs are only counted up. An owner
answers a round after its PUT and all before it are answered, and after a look *begun then* has found no later epoch.
Who claims a later one reads the log with requests that begin after its claim is there, so it finds each such round.
"""
