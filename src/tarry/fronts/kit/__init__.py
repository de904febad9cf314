"""Parts that every front is made of: its loop and thread, its sockets and TLS, waiting consumers, unread answers."""
