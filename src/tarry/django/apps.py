"""The app of Django, for ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig


class TarryConfig(AppConfig):  # type: ignore[misc]
    """See ``tarry.django``."""

    name = "tarry.django"
    label = "tarry_django"
    verbose_name = "Tarry"
    default_auto_field = "django.db.models.BigAutoField"
