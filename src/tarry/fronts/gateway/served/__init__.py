"""The broker's side: one object for each connection, made of the handlers of its frames."""
