"""Settings of the project that is measured: the broker and the PostgreSQL are named by the environment."""

from __future__ import annotations

import os

import django

SECRET_KEY = "of the benchmark"
USE_TZ = True
INSTALLED_APPS = ["tarry.django", *([] if django.VERSION >= (6,) else ["django_tasks"])]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "tarry",
        "HOST": "127.0.0.1",
        "PORT": os.environ["POSTGRES_PORT"],
        "CONN_MAX_AGE": None,
    }
}
TASKS = {"default": {"BACKEND": "tarry.django.TarryBackend", "OPTIONS": {"endpoint": os.environ["ENDPOINT"]}}}
