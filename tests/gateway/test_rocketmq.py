"""The tests of the RocketMQ front, behind a link: what a client sees is the same."""

# ruff: noqa: F403
from __future__ import annotations

import pytest

from tests.rocketmq.test_clients import *
from tests.rocketmq.test_messages import *
from tests.rocketmq.test_transactions import *

pytestmark = pytest.mark.rest
