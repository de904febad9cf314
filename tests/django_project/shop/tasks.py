"""Tasks of the sample project: what they did is in a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tarry import Retry

try:
    from django.tasks import task
except ModuleNotFoundError:  # Django 5.2
    from django_tasks import task


def say(*words):
    with Path(os.environ["SAID"]).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


@task
def note(text):
    say("note", text)
    return text


@task
async def note_async(text):
    say("note", text)
    return {"text": text}


@task(takes_context=True)
def attempt(context):
    say("attempt", context.attempt, context.task_result.id)
    return context.attempt


@task
def fail(text):
    raise ValueError(text)


@task
def slow(text, seconds):
    say("begun", text)
    time.sleep(seconds)
    say("ended", text)


@task(takes_context=True)
def again(context, times):
    say("again", context.attempt)
    if context.attempt < times:
        raise Retry("later", after="10ms")
    return context.attempt


@task
def kill():
    say("killed")
    os.kill(os.getpid(), 9)


@task
def pause(text):
    time.sleep(0.02)  # 20 of them are less than a task waits for a thread before others may have it
    say("pause", text)


@task
def odd():
    return object()
