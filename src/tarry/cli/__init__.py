"""The command ``tarry``: one file a group of commands, which imports Arrow and Spark when it runs."""
