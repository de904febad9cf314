"""``python -m tarry`` is the command ``tarry``."""

import sys

from tarry.cli.main import run

sys.exit(run())
