"""A task that does next to nothing: it says that it ran, in a file of its process."""

from __future__ import annotations

import os
from pathlib import Path

try:
    from django.tasks import task
except ModuleNotFoundError:  # Django 5.2
    from django_tasks import task


@task
def say(number: int) -> None:
    with Path(os.environ["SAID"], str(os.getpid())).open("a") as file:
        file.write(f"{number}\n")
