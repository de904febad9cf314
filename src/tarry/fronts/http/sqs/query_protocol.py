"""SQS's query protocol, which SDKs spoke until 2023: forms, and answers in XML.

Parameters become those of JSON: ``Attribute.1.Name=x&Attribute.1.Value=y`` is ``{"Attributes": {"x": "y"}}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from tarry.fronts.http.exchange import Headers, HttpResponse
from tarry.fronts.http.sqs.errors import SqsError, invalid
from tarry.fronts.http.sqs.request import Parameters

FORM = b"application/x-www-form-urlencoded"
TYPE = b"content-type: text/xml\r\n"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
FIELDS_MAX = 2000
PARTS_MAX = 12
"""Parts of a parameter's name; no operation has more than seven."""

_LISTS: Mapping[str, str] = {
    "AttributeName": "AttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "TagKey": "TagKeys",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
}
_MAPS: Mapping[str, tuple[str, str, str]] = {
    "Attribute": ("Attributes", "Name", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
}
_ENTRIES = (
    "SendMessageBatchRequestEntry",
    "DeleteMessageBatchRequestEntry",
    "ChangeMessageVisibilityBatchRequestEntry",
)
_NUMBER = re.compile("[0-9]{1,4}")

_Tree = dict[str, Any]


class QueryProtocol:
    """Reads requests and writes answers."""

    def read(self, headers: Headers, path: str, query: bytes, body: bytes) -> tuple[str, Parameters]:
        """Return the operation and its parameters; of a request to a queue's own URL, that queue.

        Raises:
            SqsError: it is no form, or has something twice.
        """
        del headers
        try:
            raw = (body or query).decode()
            pairs = parse_qsl(raw, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
        except ValueError:
            raise SqsError("MalformedQueryString", "The request is not a form in UTF-8.") from None
        tree: _Tree = {}
        for name, value in pairs:
            _put(tree, name.split("."), value)
        action = tree.pop("Action", "")
        if path != "/":
            tree.setdefault("QueueUrl", path)
        return str(action), _parameters(tree)

    def answer(self, action: str, fields: dict[str, Any] | None, request_id: str) -> HttpResponse:
        """Return the answer to an operation; None: it has no fields."""
        result = "" if fields is None else f"<{action}Result>{_xml(action, fields)}</{action}Result>"
        text = (
            f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">{result}'
            f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
        )
        return HttpResponse(200, text.encode(), (), TYPE)

    def refusal(self, error: SqsError, request_id: str) -> HttpResponse:
        """Return the answer that an error is."""
        fault = "Sender" if error.is_senders else "Receiver"
        text = (
            f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{fault}</Type>'
            f"<Code>{error.query_code}</Code><Message>{escape(str(error))}</Message><Detail/></Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
        return HttpResponse(error.status, text.encode(errors="replace"), (), TYPE)


def _put(tree: _Tree, path: list[str], value: str) -> None:
    if len(path) > PARTS_MAX:
        raise invalid(f"The parameter {'.'.join(path)!r:.60} has more than {PARTS_MAX} parts.")
    for part in path[:-1]:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise invalid(f"The parameter {'.'.join(path)!r:.60} is there twice.")
        tree = below
    tree[path[-1]] = value


def _parameters(tree: _Tree) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if name in _LISTS:
            # AWS takes the only element of a list without its number, too.
            found[_LISTS[name]] = [value] if isinstance(value, str) else _numbered(name, value)
        elif name in _MAPS:
            plural, key, content = _MAPS[name]
            found[plural] = {str(_field(each, key)): _field(each, content) for each in _numbered(name, value)}
        elif name in _ENTRIES:
            found["Entries"] = [_parameters(each) for each in _numbered(name, value) if isinstance(each, dict)]
        else:
            found[name] = value
    return found


def _field(each: Any, name: str) -> Any:
    if not isinstance(each, dict) or name not in each:
        raise invalid(f"A {name} is missing in a list of pairs.")
    return each[name]


def _numbered(name: str, value: Any) -> list[Any]:
    if not isinstance(value, dict) or not all(_NUMBER.fullmatch(number) for number in value):
        raise invalid(f"{name} is not {name}.1, {name}.2 and so on.")
    return [value[number] for number in sorted(value, key=int)]


# -- answers -----------------------------------------------------------------------------------------------------------

_NAMES: Mapping[str, str] = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Results": "ListMessageMoveTasksResultEntry",
    "Failed": "BatchResultErrorEntry",
}
"""Elements of the lists of answers."""


def _xml(action: str, fields: Mapping[str, Any]) -> str:
    return "".join(_element(action, name, value) for name, value in fields.items())


def _element(action: str, name: str, value: Any) -> str:
    if isinstance(value, list):
        element = f"{action}ResultEntry" if name == "Successful" else _NAMES[name]
        return "".join(f"<{element}>{_content(action, each)}</{element}>" for each in value)
    if isinstance(value, dict) and name in ("Attributes", "MessageAttributes", "Tags"):
        element, key = ("Tag", "Key") if name == "Tags" else (name[:-1], "Name")
        return "".join(
            f"<{element}><{key}>{_escaped(each)}</{key}><Value>{_content(action, content)}</Value></{element}>"
            for each, content in value.items()
        )
    return f"<{name}>{_content(action, value)}</{name}>"


def _content(action: str, value: Any) -> str:
    if isinstance(value, dict):
        return _xml(action, value)
    return ("true" if value else "false") if isinstance(value, bool) else _escaped(str(value))


def _escaped(text: str) -> str:
    return escape(text, {"\r": "&#13;"})
