"""Names that the tests import."""

from tarry.django.compat import Task as Task
