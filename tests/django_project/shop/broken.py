"""A module that cannot be imported, since it has a mistake."""

raise ValueError("a mistake")
