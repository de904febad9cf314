"""HTTP requests to others: a client that connects to allowed addresses alone."""
