"""A message: its schema and columns, what a producer may say of it, its checks, its receipt and handle, and filters."""
