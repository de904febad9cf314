"""The page of Django, word by word: a project that ``startproject`` makes, and the page's snippets in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.conftest import Served
from tests.django_project.place import PYTHON, Running
from tests.snippets import snippets
from tests.waiting import wait_until

pytestmark = pytest.mark.rest


def test_the_page(tmp_path: Path) -> None:
    has_tasks = subprocess.run([PYTHON, "-c", "import django.tasks"], capture_output=True).returncode == 0
    settings, tasks, enqueue, cancel = (
        each.code if has_tasks else each.code.replace("django.tasks", "django_tasks")
        for each in snippets("python")
        if each.page == "docs/django.md"
    )
    served = Served(tmp_path / "data")
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "mysite.settings"}

    def python(*words: str) -> str:
        done = subprocess.run([PYTHON, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        python("-m", "django", "startproject", "mysite", ".", "--settings=django.conf.global_settings")
        python("manage.py", "startapp", "shop")
        (tmp_path / "shop/tasks.py").write_text(tasks)
        with (tmp_path / "mysite/settings.py").open("a") as file:
            file.write(settings.replace("127.0.0.1:7611", served.address))
            file.write("" if has_tasks else "INSTALLED_APPS += ['django_tasks']\n")
        python("manage.py", "migrate")
        python("manage.py", "makemigrations", "--check")
        assert python("-c", f"import django; django.setup()\n{enqueue}").split()[1] == "READY"
        assert python("-c", f"import django; django.setup()\n{cancel}") == "True\n"
        process = subprocess.Popen(
            [PYTHON, "manage.py", "tarry_worker"],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        worker = Running(process)
        try:
            python("-c", "import django; django.setup()\nfrom shop.tasks import remind; remind.enqueue('order-18')")
            wait_until(lambda: any("state=SUCCESSFUL" in line for line in worker.lines), what=lambda: worker.lines)
            assert worker.stop() == 0
            assert sum("state=SUCCESSFUL" in line for line in worker.lines) == 1, "each line is logged once"
        finally:
            worker.kill()
    finally:
        served.stop()
