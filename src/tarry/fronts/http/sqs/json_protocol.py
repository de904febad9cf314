"""SQS's JSON protocol: the operation is in the header ``X-Amz-Target``, the rest a JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tarry.fronts.http.exchange import Headers, HttpResponse
from tarry.fronts.http.sqs.errors import SqsError
from tarry.fronts.http.sqs.request import Parameters

TARGET = b"x-amz-target"
PREFIX = b"AmazonSQS."
TYPE = b"content-type: application/x-amz-json-1.0\r\n"


class JsonProtocol:
    """Reads requests and writes answers."""

    def read(self, headers: Headers, path: str, query: bytes, body: bytes) -> tuple[str, Parameters]:
        """Return the operation and its parameters.

        Raises:
            SqsError: the body is no JSON object.
        """
        del path, query
        target = dict(headers)[TARGET]
        try:
            given = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, Mapping):
            raise SqsError("SerializationException", "The body is not a JSON object in UTF-8.")
        return target[len(PREFIX) :].decode("latin-1"), given

    def answer(self, action: str, fields: dict[str, Any] | None, request_id: str) -> HttpResponse:
        """Return the answer to an operation; None: it has no fields."""
        text = "{}" if fields is None else json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
        # Half a surrogate pair in a refused entry, of which the answer tells, must not hide what came of the others.
        body = text.encode(errors="replace")
        return HttpResponse(200, body, (), TYPE)

    def refusal(self, error: SqsError, request_id: str) -> HttpResponse:
        """Return the answer that an error is.

        A header has the code of the query protocol, which SDKs still show.
        """
        kind = error.code if error.code in MODELED else f"com.amazon.coral.service#{error.code}"
        kind = f"com.amazonaws.sqs#{error.code}" if error.code in MODELED else kind
        fault = "Sender" if error.is_senders else "Receiver"
        line = f"x-amzn-query-error: {error.query_code};{fault}\r\n".encode()
        body = json.dumps({"__type": kind, "message": str(error)}, ensure_ascii=False).encode(errors="replace")
        return HttpResponse(error.status, body, (), TYPE + line)


MODELED = frozenset(
    (
        *("BatchEntryIdsNotDistinct", "BatchRequestTooLong", "EmptyBatchRequest", "InvalidAddress"),
        *("InvalidAttributeName", "InvalidAttributeValue", "InvalidBatchEntryId", "InvalidMessageContents"),
        *("MessageNotInflight", "OverLimit", "QueueDoesNotExist", "QueueNameExists", "ReceiptHandleIsInvalid"),
        *("RequestThrottled", "ResourceNotFoundException", "TooManyEntriesInBatchRequest", "UnsupportedOperation"),
    )
)
"""Errors that AWS's model of the service has; SDKs make exceptions of their own of them."""
