"""The option ``--url`` of the bridge."""

from __future__ import annotations

import pytest

from tarry.base.errors import InvalidArgumentError
from tarry.cli.bridge import with_password


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:5672", "127.0.0.1:5672"),
        ("rabbit", "rabbit"),
        ("", ""),
        ("http://rabbit/shop", "http://rabbit/shop"),
        ("amqp:///shop", "amqp:///shop"),
        ("amqp://rabbit:99999", "amqp://rabbit:99999"),
        ("amq://shop:sec@r:e/t@rabbit", "amq://shop:***@rabbit"),
        ("shop:secret@rabbit:5672", "shop:***@rabbit:5672"),
    ],
)
def test_what_is_no_url_is_said_without_its_password(url: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        with_password(url, None)
    assert str(error.value) == f"--url is {said!r}; allowed: amqp://USER@HOST/VHOST or amqps://USER@HOST/VHOST"


def test_the_password_of_guest_is_known() -> None:
    assert with_password("amqp://guest@127.0.0.1/", None) == "amqp://guest:guest@127.0.0.1/"
    assert with_password("amqps://shop@rabbit/shop", None) == "amqps://shop@rabbit/shop"
