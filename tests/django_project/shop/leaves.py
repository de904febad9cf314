"""A module that cannot be imported, since it is a program, which ends."""

raise SystemExit(3)
