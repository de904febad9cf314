"""What a broker can be asked, and what it answers: each operation once, with its form on the wire."""
