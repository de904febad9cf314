"""The command ``tarry``: one file a group of commands. What is heavy (Arrow, Spark) is imported when a command runs."""
