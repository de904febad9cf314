"""The broker's side: one object a connection, put together of what it can be asked for."""
