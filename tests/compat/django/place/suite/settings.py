"""Settings with which the suites run: a database in a file, which the worker's threads see, too."""

from __future__ import annotations

import importlib.util
import os

SECRET_KEY = "of the tests"
USE_TZ = True
INSTALLED_APPS = ["tarry.django", "django_tasks_db"]
if importlib.util.find_spec("django.tasks") is None:  # Django 5.2
    INSTALLED_APPS.append("django_tasks")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["DATABASE"],
        "OPTIONS": {"timeout": 30},
        "TEST": {"NAME": os.environ["DATABASE"]},
    }
}
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
# Messages of tests that have ended are tried again and again, for their rows are gone: that is no news.
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": {"tarry.worker": {"level": "ERROR"}}}
TEST_RUNNER = "suite.runner.SuiteRunner"
