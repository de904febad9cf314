"""Django's tasks on Tarry: a backend, ``manage.py tarry_worker``, and a definite cancel.

    INSTALLED_APPS = [..., "tarry.django"]
    TASKS = {"default": {"BACKEND": "tarry.django.TarryBackend", "OPTIONS": {"endpoint": "127.0.0.1:7611"}}}

A task is a row of the project's database; what waits at the broker is its id. So a task belongs to the transaction in
which it is enqueued, and the row says what came of it. ``docs/django.md`` is for users. One file, one question:

==============  ==============================================================================
``compat``      where does Django have its tasks: in itself, or in the package django-tasks?
``options``     what may be said in ``OPTIONS``?
``backend``     what does ``enqueue`` do, and ``get_result``?
``models``      which row is a task?
``records``     which result of Django's is a row, and how does a row change?
``places``      which topics are a queue, with its priorities?
``sending``     how does a row get to the broker, also after a crash?
``outgoing``    how do the tasks of a transaction go to the broker together?
``cancelling``  how is a task cancelled?
``execution``   what does a worker do with a message?
``slots``       which of the tasks that are due runs next in a process?
``program``     which :class:`tarry.Worker` is the project's worker?
``process``     the program of a process of ``manage.py tarry_worker``
==============  ==============================================================================
"""

from tarry.django.backend import TarryBackend
from tarry.django.cancelling import acancel, cancel
from tarry.django.errors import TaskCancelled, WorkerLost

__all__ = ["TarryBackend", "TaskCancelled", "WorkerLost", "acancel", "cancel"]
