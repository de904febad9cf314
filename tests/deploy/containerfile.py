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
    return dict(word.split("=", 1) for word in words if "=" in word)


def run_steps(steps: list[Instruction], context: Path, root: Path, arguments: dict[str, str]) -> None:
    """Do ``COPY`` and ``RUN`` with ``root`` in the place of ``/``; ``python`` is the one that runs this.

    What the machine has is seen there, too, but for the directories that the steps write to: these are below ``root``.
    It takes a mount namespace: see :func:`why_not`.
    """
    for name in _OF_THE_IMAGE:
        (root / name).mkdir(parents=True)
        (root / name / ".of-the-image").touch()
    environment = {
        **os.environ,
        **settings_of(steps, "ARG"),
        **settings_of(steps, "ENV"),
        **arguments,
        "PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}",
    }
    environment["SOURCE_COMMIT"] = arguments.get("COMMIT", "")
    work = Path("/")
    for each in steps:
        if each.name == "WORKDIR":
            work = Path(each.text)
        elif each.name == "COPY":
            _copy(each.words(), context, root / work.relative_to("/"))
        elif each.name == "RUN":
            command = [*_IN_A_NAMESPACE, _OVER_THE_MACHINE, "sh", str(root), str(work), each.text]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, (each.text, done.stdout, done.stderr)


def why_not() -> str | None:
    """Say what is missing here for steps to be run."""
    if os.geteuid() != 0:
        return "only root may do it"
    for program in ("unshare", "chroot", "ldd", "strip"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    tried = subprocess.run([*_IN_A_NAMESPACE, "mount --bind / /"], capture_output=True, text=True)
    return tried.stderr or None


def in_image(root: Path, words: list[str]) -> list[str]:
    """Return the command that runs one in the image, as its user; it is that process itself.

    It has what runtimes bring: devices, processes, and how names of hosts are looked up.
    """
    return [*_IN_A_NAMESPACE, _IN_THE_IMAGE, "sh", str(root), *words]


_OF_THE_IMAGE = ("build", "opt", "src", "wheels")
"""Directories that the steps write to."""
_IN_A_NAMESPACE = ["unshare", "--mount", "sh", "-ec"]
_OVER_THE_MACHINE = """
for each in /*; do
    if [ -L "$each" ]; then
        cp --no-dereference --force "$each" "$1"
    elif [ -d "$each" ] && [ ! -e "$1$each/.of-the-image" ]; then
        mkdir -p "$1$each"
        mount --rbind "$each" "$1$each"
    fi
done
exec chroot "$1" sh -ec 'cd "$1"; eval "$2"' sh "$2" "$3"
"""
_IN_THE_IMAGE = """
root=$1
shift
for each in dev proc; do
    mkdir -p "$root/$each"
    mount --rbind "/$each" "$root/$each"
done
for each in hosts resolv.conf; do
    : > "$root/etc/$each"
    mount --bind "/etc/$each" "$root/etc/$each"
done
exec chroot --userspec=+10001:+0 --groups= "$root" "$@"
"""


def _copy(words: list[str], context: Path, work: Path) -> None:
    *sources, to = words
    for source in sources:
        if (context / source).is_dir():
            shutil.copytree(context / source, work / to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(context / source, work / to)
