"""Errors by their public names: ``from tarry.errors import KeyExistsError``."""

from tarry.base.errors import *  # noqa: F403  each public name of the module is an error, or reads one from the wire
