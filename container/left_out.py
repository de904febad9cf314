"""What the image does not take of what is installed, and why: the one list of it.

Globs below ``site-packages``. Each must fit something: a release of a package that has moved it fails the build, which
is the moment to look at this list again. Only what nothing names is here: :mod:`root` fails the build, too, if a
library is left out that another one is linked to.
"""

from __future__ import annotations

PACKAGES = {
    "**/*.pyi": "types, for whoever writes programs",
    "**/*.p[xy]x": "sources of compiled modules",
    "**/*.pxd": "sources of compiled modules",
    "**/*.pxi": "sources of compiled modules",
    "**/*.h": "headers for compilers",
    "**/*.a": "static libraries, for linkers",
    "pyarrow/include": "headers for compilers",
    "pyarrow/src": "sources of compiled modules",
    "pyarrow/tests": "tests of a package",
    "numpy/**/tests": "tests of a package",
    "pyarrow/_pyarrow_cpp_tests*": "tests of a package",
    "numpy/_core/*_tests.*.so": "tests of a package",
    "numpy/_core/_simd.*.so": "tests of a package",
    "numpy/f2py": "a translator of Fortran",
    "pyarrow/libarrow_python*.so": "the same library under a name for linkers",
    "pyarrow/libarrow_python*.so.*.*.*": "the same library under its full version",
    "pygments/lexers/**/[!_ps]*.py*": "colours of source code but Python's; the commands print none",
    "pygments/lexers/**/_*_builtins.*": "words of those languages",
    "pydantic/v1": "the former release in the present one",
    "pyarrow/*flight*": "Arrow Flight by gRPC; the broker has a Flight server of its own",
}

PYTHON = {
    "site-packages": "pip, of the base image; the packages are in a virtual environment",
    "ensurepip": "pip, to be installed",
    "venv": "virtual environments are not made in the image",
    "test": "tests of Python",
    "*/test": "tests of Python",
    "*/tests": "tests of Python",
    "idlelib": "an editor, with windows",
    "tkinter": "windows; the base image has no Tk",
    "turtledemo": "windows",
    "turtle.py": "windows",
    "lib-dynload/_tkinter*": "windows",
    "lib-dynload/_test*": "tests of Python",
    "lib-dynload/_ctypes_test*": "tests of Python",
    "lib-dynload/xx*": "examples of compiled modules",
    "lib-dynload/nis*": "names by NIS, with Kerberos below it",
    "lib2to3": "from Python 2 to 3",
    "pydoc_data": "texts of help()",
    "config-*": "for building Python's own modules: a static library, a Makefile",
    "**/__pycache__": "compiled again, in the image's place",
}
"""The same of Python's standard library. Releases and base images differ, so nothing need fit."""

SOURCES_KEPT = ("tarry", "pyspark_tarry", "loopgrpc")
"""Of all others there is bytecode alone: a traceback says file and line of theirs, and not what stands there."""
