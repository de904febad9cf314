"""A message: its schema and columns, its options and their checks, its receipt and handle, filters."""
