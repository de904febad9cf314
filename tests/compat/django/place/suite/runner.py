"""Runs a suite: what is known to differ has to fail, and what is left out is not run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any
from unittest import TestSuite

from django.test.runner import DiscoverRunner


class SuiteRunner(DiscoverRunner):  # type: ignore[misc]
    """``DIFFERENCES`` in the environment has names of tests, ``LEFT_OUT`` of classes, both as ``Class.test``."""

    def build_suite(self, *args: Any, **kwargs: Any) -> Any:
        differences = set(json.loads(os.environ["DIFFERENCES"]))
        left_out = set(json.loads(os.environ["LEFT_OUT"]))
        known = {"": TestSuite()}
        chosen = self.test_suite()
        for test in _tests(super().build_suite(*args, **kwargs)):
            name = ".".join(test.id().split(".")[-2:])
            known[name] = known[name.split(".")[0]] = test
            if {name, name.split(".")[0]} & left_out:
                continue
            test.__unittest_expecting_failure__ = name in differences
            chosen.addTest(test)
        assert not (strange := (differences | left_out) - set(known)), f"the suite has no {sorted(strange)}"
        return chosen


def _tests(suite: Any) -> Iterator[Any]:
    for each in suite:
        if isinstance(each, TestSuite):
            yield from _tests(each)
        else:
            yield each
