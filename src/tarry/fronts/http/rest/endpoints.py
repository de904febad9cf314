"""All routes: the operations at their paths, and endpoints that are no operations."""

from __future__ import annotations

from tarry.api.needs import OnFound
from tarry.api.operations import Ack, Extend, GetTopic, ListJobs, Nack, Receive
from tarry.api.paths import Resource, resources
from tarry.fronts.http.rest.batches import Batches
from tarry.fronts.http.rest.events import Events
from tarry.fronts.http.rest.operations import JobEndpoint, OperationEndpoint, TopicEndpoint, describe
from tarry.fronts.http.rest.page import pages
from tarry.fronts.http.rest.receiving import ReceiveEndpoint, SettleEndpoint, describe_receive, describe_settle
from tarry.fronts.http.rest.routes import Route
from tarry.fronts.http.rest.sending import Messages
from tarry.fronts.http.services import HttpServices


def routes(services: HttpServices) -> list[Route]:
    """Return all routes, with their descriptions."""
    found = [
        *Messages(services).routes(),
        *map(_route, resources()),
        *Batches(services).routes(),
        *Events(services).routes(),
    ]
    return [*found, *pages(found)]


def _route(resource: Resource) -> Route:
    method, path = resource.method, resource.path
    if resource.kind is Receive:
        return Route(method, path, ReceiveEndpoint(resource), describe_receive(resource))
    if resource.kind in (Ack, Nack, Extend):
        return Route(method, path, SettleEndpoint(resource), describe_settle(resource))
    if resource.kind is GetTopic:
        return Route(method, path, TopicEndpoint(resource), describe(resource))
    if resource.kind is ListJobs and "{job}" in path:
        return Route(method, path, JobEndpoint(resource), describe(resource))
    finds = isinstance(resource.kind.needs, OnFound)
    return Route(method, path, OperationEndpoint(resource), describe(resource), finds)
