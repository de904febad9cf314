"""What Tarry's speed and memory are, measured: ``make bench``, or ``make bench ONLY=herd``."""
