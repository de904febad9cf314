"""A Containerfile as its instructions, stage by stage, and its steps run in a directory in the place of an image."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_OF_THE_IMAGE = re.compile(r"(?<![\w.])/(?=(?:build|wheels|src|opt/tarry|var/lib/tarry)\b)")
"""Where the paths begin that the steps write to."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """``RUN …``: its name, and what is behind it in one line."""

    name: str
    text: str

    def words(self) -> list[str]:
        """Words of a shell, or those of the form in JSON."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


def stages(path: Path) -> list[list[Instruction]]:
    """The instructions of each stage; those before the first ``FROM`` are a stage by themselves."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[Instruction]] = [[]]
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, re.sub(r"\s+", " ", rest)))
    return found


def settings_of(stage: list[Instruction], name: str) -> dict[str, str]:
    """What a stage sets by ``ENV``, ``ARG`` or ``LABEL``."""
    words = [word for each in stage if each.name == name for word in each.words()]
    return dict(word.split("=", 1) for word in words)


def run_steps(stage: list[Instruction], context: Path, root: Path, arguments: dict[str, str]) -> None:
    """Do ``COPY`` and ``RUN`` of a stage with ``root`` in the place of ``/``; ``python`` is the one that runs this."""
    binaries = root / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    environment = {**os.environ, **settings_of(stage, "ARG"), **arguments, "PATH": f"{binaries}:{os.environ['PATH']}"}
    work = root
    for each in stage:
        if each.name == "WORKDIR":
            work = root / each.text.lstrip("/")
            work.mkdir(parents=True)
        elif each.name == "COPY":
            _copy(each.words(), context, work)
        elif each.name == "RUN":
            line = _OF_THE_IMAGE.sub(f"{root}/", each.text)
            done = subprocess.run(["sh", "-c", line], cwd=work, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, (line, done.stdout, done.stderr)


def _copy(words: list[str], context: Path, work: Path) -> None:
    *sources, to = words
    for source in sources:
        if (context / source).is_dir():
            shutil.copytree(context / source, work / to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(context / source, work / to)
