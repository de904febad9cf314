"""Make the file tree of the image: the packages, Python, and what both need of the system. Nothing else is in it.

``root.py ENVIRONMENT ROOT`` runs in the stage of ``Containerfile`` that has installed the packages, with the Python
that they were installed for. Everything keeps its path below ``ROOT``, but for the system's libraries: they all go
where the loader looks first, so that no cache of them is needed. There is no package manager and no pip.

A library that something names and that is not there fails the build. :mod:`left_out` lists what is not taken.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from left_out import PACKAGES, PYTHON, SOURCES_KEPT

USER, GROUP = 10001, 0
"""The group is root's, so that a platform which gives each container a user of its own can have it write here."""
HOME = "/var/lib/tarry"
ACCOUNTS = {
    "passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\ntarry:x:{USER}:{GROUP}::{HOME}:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
}
SYSTEM = {
    "/etc/ssl/certs": "certificate authorities",
    "/etc/ssl/openssl.cnf": "what Python's ssl reads",
    "/usr/lib/ssl": "where Python's ssl looks for these two",
    "/usr/share/ca-certificates": "what names in /etc/ssl/certs point to",
    "/usr/share/zoneinfo": "time zones",
    "/etc/nsswitch.conf": "how names are looked up",
    "/etc/services": "names of ports",
    "/etc/protocols": "names of protocols",
    "/etc/os-release": "which Debian it is, for scanners",
    "/usr/lib/os-release": "what it points to",
    "/usr/lib/locale/C.utf8": "texts are UTF-8",
}
PROGRAMS = ("sh", "cat", "date", "env", "rm", "sleep", "test")
"""A shell, for probes and jobs of Kubernetes and for timers, with what such lines call."""
ZONES_LEFT_OUT = shutil.ignore_patterns("posix", "right", "posixrules")
"""All zones once more, and once more with leap seconds."""
WHOLE = "*.libs"
"""Directories with libraries that ``strip`` breaks, as their segments were moved when the wheel was made."""


def main(environment: Path, root: Path) -> None:
    if any(environment.glob("lib/python3*/site-packages/pyspark")):
        sys.exit("Spark needs a shell and more of the system: build its image with PIPELINE=on")
    root.mkdir()
    shutil.copytree(environment, below(root, environment), symlinks=True)
    [packages] = below(root, environment).glob("lib/python3*/site-packages")
    leave_out(packages)
    keep_bytecode(packages, root, but=SOURCES_KEPT)
    for each in below(root, environment).glob("bin/*"):
        if not each.name.startswith(("python", "tarry")):
            remove(each)
    copy_python(environment, root)
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            copy_file(Path("/", name), root / name)
    programs = [Path("/bin", name).resolve() for name in PROGRAMS]
    for name, each in zip(PROGRAMS, programs, strict=True):
        copy_file(each, below(root, each.parent / name))
    sources = copy_libraries(list(compiled(root)), root) + programs
    strip([each for each in compiled(root) if not each.parent.match(WHOLE)])
    sources += [copy_system(Path(each), why, root) for each, why in SYSTEM.items()]
    copy_package_records(sources, root)
    make_places(root)
    size = sum(each.lstat().st_size for each in root.rglob("*") if not each.is_dir() or each.is_symlink())
    sys.stdout.write(f"{root}: {size / 1e6:.1f} MB\n")


def below(root: Path, path: Path) -> Path:
    """Return the place of an absolute path in the image."""
    return root / path.relative_to("/")


def leave_out(packages: Path) -> None:
    """Delete what the list names, and end the build at a glob that fits nothing."""
    for pattern, reason in PACKAGES.items():
        found = list(packages.glob(pattern))
        if not found:
            sys.exit(f"nothing is {pattern} any more ({reason}): mend container/left_out.py")
        for each in found:
            remove(each)


def remove(path: Path) -> None:
    """Delete a file or a directory; one in it may be gone already."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy_python(environment: Path, root: Path) -> None:
    """Copy the program, by each name that leads to it, and the standard library, compiled."""
    program = environment / "bin" / "python"
    while program.is_symlink():
        program = program.parent / program.readlink()
        copy_file(program, below(root, program))
    source = Path(sysconfig.get_path("stdlib"))
    library = below(root, source)
    shutil.copytree(source, library, ignore=shutil.ignore_patterns("site-packages", "__pycache__"), symlinks=True)
    for pattern in PYTHON:
        for each in list(library.glob(pattern)):
            remove(each)
    keep_bytecode(library, root)


def keep_bytecode(directory: Path, root: Path, but: tuple[str, ...] = ()) -> None:
    """Compile sources for their place in the image, and delete what was compiled."""
    kept = re.compile("|".join(f"{re.escape(str(directory / name))}/" for name in but) or "$^")
    # A file without a source is beside where that would be, not in __pycache__.
    compileall.compile_dir(
        directory, rx=kept, quiet=1, legacy=True, force=True, stripdir=root, prependdir="/", workers=0
    )
    for each in list(directory.rglob("*")):
        if kept.match(f"{each}/"):
            continue
        if each.suffix == ".py" and each.with_suffix(".pyc").exists():
            each.unlink()
        elif each.name == "__pycache__":
            shutil.rmtree(each)


def compiled(root: Path) -> Iterator[Path]:
    """Return programs and libraries."""
    for each in root.rglob("*"):
        if each.is_file() and not each.is_symlink() and each.stat().st_size > 4:
            with each.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield each


def strip(programs: list[Path]) -> None:
    """Remove the symbols that debuggers read."""
    for each in programs:
        each.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", *programs], check=True)


def copy_libraries(programs: list[Path], root: Path) -> list[Path]:
    """Copy the system's libraries that these name, and the loader, as the loader itself finds them; return them."""
    found = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    if missing := sorted(set(re.findall(r"(\S+) => not found", found))):
        sys.exit(f"something in the image is linked to {', '.join(missing)}, which is not there")
    paths = {Path(each) for each in re.findall(r"(?<==> )/\S+|(?<=\t)/\S+(?= \()", found)}
    outside = sorted(each for each in paths if not each.is_relative_to(root))
    [libc] = [each for each in outside if each.name == "libc.so.6"]
    for each in outside:
        loader = each.name.startswith("ld-")
        copy_file(each.resolve(), below(root, (each if loader else libc).parent.resolve()) / each.name)
    return outside


def copy_system(path: Path, why: str, root: Path) -> Path:
    """Copy a file or a directory of the system; return a file of it."""
    if not path.exists():
        sys.exit(f"{path} ({why}) is not in the base image")
    if path.is_dir():
        shutil.copytree(path, below(root, path), symlinks=True, ignore=ZONES_LEFT_OUT)
        return next(each for each in path.rglob("*") if not each.is_dir())
    copy_file(path, below(root, path))
    return path


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, or a link as a link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_symlink() and not target.exists():
        shutil.copy2(source, target, follow_symlinks=False)


def copy_package_records(sources: list[Path], root: Path) -> None:
    """Say which packages of Debian files came from, as scanners of images read it, and keep their licences."""
    # Debian's list has files of /usr/lib by that name or by the link /lib, as its packages were built.
    short = {str(each).removeprefix("/usr") for each in sources}
    search = subprocess.run(
        ["dpkg-query", "--search", *short, *("/usr" + each for each in short)], capture_output=True, text=True
    )
    records = root / "var/lib/dpkg/status.d"
    records.mkdir(parents=True)
    for owner in sorted(owners(search.stdout)):
        name = owner.partition(":")[0]
        status = subprocess.run(["dpkg-query", "--status", owner], capture_output=True, text=True, check=True)
        (records / name).write_text(status.stdout)
        licence = below(root, Path("/usr/share/doc", name, "copyright"))
        licence.parent.mkdir(parents=True)
        shutil.copy2(Path("/usr/share/doc", name, "copyright"), licence)


def owners(listing: str) -> set[str]:
    """Return the packages in what ``dpkg-query --search`` printed."""
    heads = [line.partition(": ")[0] for line in listing.splitlines()]
    # Debian 13's libc6 has a diversion, which is told in lines of its own: "diversion by libc6 from: …".
    return {name for head in heads for name in head.split(", ") if " " not in name}


def make_places(root: Path) -> None:
    """Make the accounts, and the directories that are written to."""
    for name, text in ACCOUNTS.items():
        (root / "etc" / name).write_text(text)
    temporary = root / "tmp"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o1777)
    home = below(root, Path(HOME))
    home.mkdir(parents=True)
    home.chmod(0o770)
    os.chown(home, USER, GROUP)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
