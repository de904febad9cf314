"""Settings of the sample project: the broker and the database are named by the environment."""

from __future__ import annotations

import os

import django

SECRET_KEY = "of the tests"
USE_TZ = True
INSTALLED_APPS = ["tarry.django", *([] if django.VERSION >= (6,) else ["django_tasks"])]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", ":memory:"),
        "OPTIONS": {"timeout": 30},
    }
}
TASKS = {
    "default": {
        "BACKEND": "tarry.django.TarryBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"endpoint": os.environ.get("ENDPOINT", "127.0.0.1:1"), "attempts": 3},
    }
}
