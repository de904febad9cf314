"""The program of a process of ``manage.py tarry_worker``: ``worker`` is what it runs."""

from __future__ import annotations

import logging

import django
from django.conf import settings

django.setup()

from tarry.django.program import WorkerSettings, make_worker  # noqa: E402  - its models need the apps

if not settings.LOGGING:
    # Django's own handler for the console, while DEBUG is on: all lines are on stderr already.
    logger = logging.getLogger("django")
    for handler in [each for each in logger.handlers if type(each) is logging.StreamHandler]:
        logger.removeHandler(handler)

worker = make_worker(WorkerSettings.of_environment())
