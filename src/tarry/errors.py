"""The errors by their public name: ``from tarry.errors import KeyExistsError``. They are defined in ``base``."""

from tarry.base.errors import *  # noqa: F403  each public name of the module is an error, or reads one from the wire
