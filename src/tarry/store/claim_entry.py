"""A claim's entry of the Delta log, put by one request, for an owner that takes over.

delta-rs reads the table again behind each commit, which on object storage is six round trips before the broker serves.
A claim adds no file and no column, so what was read before is still all that there is to know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from tarry.log.objects.s3 import S3Objects
from tarry.store.columns import PARTITION_COLUMNS


def put_claim(root: str, version: int, app_id: str, epoch: int, info: Mapping[str, str], now_ms: int) -> bool:
    """Commit a claim as exactly ``version`` of the table at ``root`` (``s3://…``).

    False: there is such a version already, which may be this one: an answer may have been lost.

    Args:
        app_id: the app transaction whose version becomes ``epoch``.
        info: more of the commit info.

    Raises:
        UnavailableError: the place cannot be reached; whether the claim was put is not known.
    """
    parameters = {"mode": "Append", "partitionBy": json.dumps(PARTITION_COLUMNS, separators=(",", ":"))}
    commit_info = {"timestamp": now_ms, "operation": "WRITE", "operationParameters": parameters, **info}
    # The app transaction is the last line, as in each commit of a store: an entry that has lost it is incomplete.
    actions = [{"commitInfo": commit_info}, {"txn": {"appId": app_id, "version": epoch}}]
    content = "\n".join(json.dumps(each) for each in actions).encode()
    return asyncio.run(S3Objects(f"{root}/_delta_log").create(f"{version:020}.json", content))
