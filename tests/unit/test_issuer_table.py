"""Several providers in the settings: by a table of a file, by a line, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarry.base.config import load
from tarry.base.errors import InvalidArgumentError
from tarry.base.issuer_settings import IssuerSettings
from tarry.base.issuer_table import parse_issuers
from tarry.fronts.registry import ServerConfig
from tarry.identity.issuers import settings_of

FILE = """
jwt_issuer = "https://one.example/realm"
jwt_audience = "tarry"

[jwt_issuers.keycloak]
issuer = "https://two.example"
audience = "tarry-two"

[jwt_issuers."three.example"]
issuer = "kubernetes/serviceaccount"
audience = "a \\"b\\" \\\\ ü \\u007f"
keys_file = "jwks.json"
"""
PROVIDERS = [
    IssuerSettings("one.example", "https://one.example/realm", "tarry"),
    IssuerSettings("keycloak", "https://two.example", "tarry-two"),
    IssuerSettings("three.example", "kubernetes/serviceaccount", 'a "b" \\ ü \x7f', "jwks.json"),
]


def loaded_from(directory: Path, text: str) -> Any:
    file = directory / "tarry.toml"
    file.write_text(text)
    return load(file, environment={}, model=ServerConfig)


def test_tables_of_a_file(tmp_path: Path) -> None:
    loaded = loaded_from(tmp_path, FILE)
    assert settings_of(loaded.config) == PROVIDERS
    again = loaded_from(tmp_path, loaded.to_toml())
    assert again.config == loaded.config, "what is printed is a file that says the same"


def test_a_line_is_the_same() -> None:
    line = '{ keycloak = { issuer = "https://two.example", audience = "tarry-two" } }'
    by_environment = load(environment={"TARRY_JWT_ISSUERS": line}, model=ServerConfig).config
    by_command_line = load(flags={"jwt_issuers": line}, environment={}, model=ServerConfig).config
    assert settings_of(by_environment) == settings_of(by_command_line) == PROVIDERS[1:2]
    assert ServerConfig(jwt_issuers=line).jwt_issuers == line
    assert load(flags={"jwt_issuers": ""}, environment={}, model=ServerConfig).config.jwt_issuers is None
    assert parse_issuers(None) == parse_issuers("{}") == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("keycloak", "'keycloak' is no table"),
        ("1", "'1' is no table"),
        ("{}\n[other]", "is no table"),
        ("{ a = 1 }", "a is 1; allowed: tables by name"),
        ('{ a = { issuer = "https://a" } }', "a lacks audience"),
        ('{ a = { issuer = "", audience = "x" } }', "a lacks issuer"),
        ('{ a = { issuer = "https://a", audience = "x", keys = "y" } }', "a has keys = 'y'; allowed: texts: issuer"),
        ('{ a = { issuer = "https://a", audience = 1 } }', "a has audience = 1"),
        ('{ a = { issuer = "http://a", audience = "x" } }', "allowed: https://HOST"),
        ('{ "a b" = { issuer = "https://a", audience = "x" } }', "a provider has the name 'a b'"),
    ],
)
def test_what_is_refused(line: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        load(flags={"jwt_issuers": line}, environment={}, model=ServerConfig)
    assert str(refused.value).startswith("jwt_issuers is refused (command line): ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "issuer", "said"),
    [
        ("one.example", "https://other.example", "the name or the issuer 'one.example'"),
        ("other", "https://one.example/realm", "the name or the issuer 'https://one.example/realm'"),
    ],
)
def test_two_of_a_name_or_an_issuer_are_refused(tmp_path: Path, name: str, issuer: str, said: str) -> None:
    text = FILE + f'[jwt_issuers."{name}x"]\nissuer = "https://x"\naudience = "x"\n'
    assert len(settings_of(loaded_from(tmp_path, text).config)) == 4
    text = FILE + f'[jwt_issuers."{name}"]\nissuer = "{issuer}"\naudience = "x"\n'
    with pytest.raises(InvalidArgumentError, match=said):
        settings_of(loaded_from(tmp_path, text).config)
