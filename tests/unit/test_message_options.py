"""Every face of a message has each option of the table, by the same name, and no other."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest

from tarry.base.errors import InvalidMessageError
from tarry.fronts.http.console import compose
from tarry.fronts.http.rest import batches, message_fields
from tarry.message.admission import admit
from tarry.message.message import Message
from tarry.message.options import OPTIONS, STORED_AS, MessageOptions, Option, OptionKind
from tarry.message.row_columns import COLUMNS, to_batch
from tarry.message.rows import make_row
from tarry.message.schema import SCHEMA
from tarry.message.topics import is_internal
from tarry.spark.datasource import columns

NAMES = [option.name for option in OPTIONS]
BASE = ["topic", "body", "due_ms", "delay_ms"]
DOCS = Path(__file__).parents[2] / "docs"
VALUES: dict[OptionKind, object] = {
    OptionKind.TEXT: "a",
    OptionKind.WHOLE: 3,
    OptionKind.DURATION: "1h",
    OptionKind.TEXTS: {"a": "b"},
    OptionKind.RULE: {"every": "1m"},
}


def value_of(option: Option) -> object:
    return next(reversed(option.choices)) if option.choices else VALUES[option.kind]


def test_arguments_are_those_of_the_table() -> None:
    assert set(MessageOptions.__annotations__) == set(NAMES)


def test_a_message_has_a_field_for_each_column() -> None:
    assert {f.name for f in fields(Message)} == {"topic", "body", "due_ms", *(option.column for option in OPTIONS)}


def test_a_batch_has_a_column_for_each() -> None:
    assert [name for name, _ in COLUMNS] == [*BASE, *(option.column for option in OPTIONS), "delay_level"]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_what_is_said_of_a_message_is_admitted(option: Option) -> None:
    said = {option.name: value_of(option)} | ({"key": "k"} if option.is_condition else {})
    batch = to_batch([make_row("orders", b"", **said)])
    assert option.column in batch.schema.names
    admitted = admit(batch, 10**12)
    [row] = admitted.to_pylist()
    if option.stored_as:
        assert dict(row["properties"]) == {option.stored_as: str(value_of(option))}
    elif option.name in SCHEMA.names:
        assert row[option.name] is not None


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.choices], ids=lambda option: option.name)
def test_a_word_that_is_no_choice_is_refused_with_those_that_are(option: Option) -> None:
    with pytest.raises(InvalidMessageError, match=f"{option.name} is 'never'; allowed: {', '.join(option.choices)}"):
        make_row("orders", b"", **{"key": "k", option.name: "never"})
    if option.stored_as:
        batch = pa.RecordBatch.from_pydict({"topic": ["t"], "body": [b""], "delay_ms": [0], option.name: ["never"]})
        with pytest.raises(InvalidMessageError, match="never"):
            admit(batch, 10**12)


def test_an_option_that_is_none_is_as_if_it_were_left_out() -> None:
    assert make_row("t", b"", **dict.fromkeys(NAMES)) == make_row("t", b"")


def test_an_argument_that_is_no_option_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'prioritty'"):
        make_row("t", b"", prioritty=5)  # type: ignore[call-arg]


def test_stored_options_are_reserved_properties() -> None:
    assert all(is_internal(name) for name in STORED_AS)


def test_rest_has_a_field_for_each() -> None:
    assert set(message_fields.schemas()["Message"]["properties"]) >= set(NAMES)
    parameters = {parameter.name for parameter in message_fields.parameters()}
    assert parameters >= {option.name for option in OPTIONS if option.kind is not OptionKind.TEXTS}
    assert all(f"`{option.column}`" in batches.TEXT for option in OPTIONS)


def test_the_form_has_a_field_for_each() -> None:
    assert set(compose.FIELDS) >= set(NAMES)


def test_a_dataframe_has_a_column_for_each_that_is_for_bulk() -> None:
    assert set(columns.COLUMNS) >= {option.column for option in OPTIONS if not option.not_in_bulk}


def test_the_page_has_a_row_for_each() -> None:
    page = (DOCS / "message-options.md").read_text()
    rows = [f"| `{o.name}` | `{o.column}` | {docs_value(o)} | {o.help} |" for o in OPTIONS]
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


def docs_value(option: Option) -> str:
    return ", ".join(f"`{word}`" for word in option.choices) or option.kind.value
