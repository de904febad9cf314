"""What fronts of several protocols share: the thread and loop that one runs on, and consumers that wait."""
