"""``python -m tarry`` is the command ``tarry``."""

from tarry.cli.main import run

run()
