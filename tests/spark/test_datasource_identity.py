"""With a broker that asks who calls: DataFrames are written and read with a token, which Spark shows to nobody."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tarry.client import Client
from tarry.spark import write_once

from ..contract.conftest import Served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    place = Served(tmp_path / "data", checkpoint_interval_ms=20)
    yield place
    place.stop()


def test_a_token_comes_with_the_job(
    spark: SparkSession, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(served.address) as client:
        client.set_identity("admin", ["admin"])
        admin = client.add_credential("admin").secret
    with Client(served.address, token=admin) as client:
        client.set_identity("loader", ["bulk"])
        loader = client.add_credential("loader").secret
        client.set_identity("reader", ["pipeline"])
        reader = client.add_credential("reader").secret
    df = spark.range(0, 20, 1, 2).selectExpr("'t' AS topic", "3600000L AS delay_ms", "cast(id AS string) AS body")
    writer = df.write.format("tarry").mode("append").option("endpoint", served.address)
    with pytest.raises(Exception, match="no token was shown"):
        writer.save()
    with pytest.raises(Exception, match="reader has not the right bulk"):
        writer.option("token", reader).save()
    with pytest.raises(Exception, match="allowed: one of them"):
        writer.option("tokenFile", "f").save()
    writer = df.write.format("tarry").mode("append").option("endpoint", served.address)
    (tmp_path / "loader").write_text(loader)
    writer.option("tokenFile", str(tmp_path / "loader")).option("job", "one").save()
    # In the environment of this process alone: Spark's were started without it.
    monkeypatch.setenv("TARRY_TOKEN", loader)
    assert write_once(df, "two", endpoint=served.address).rows == 20
    pending = spark.read.format("tarry").option("endpoint", served.address).option("token", reader).load()
    assert pending.count() == 40
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        pending.explain("extended")
    assert "tarry" in shown.getvalue()
    for token in (reader, loader, admin):
        assert token not in shown.getvalue()
