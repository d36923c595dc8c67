"""Tasks for tests/interop/test_celery.py: a Celery application as its first steps have it, configured by environment."""

import os
import time

from celery import Celery

app = Celery("celery_tasks", broker=os.environ["BROKER_URLS"], backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    result_expires=600,
    task_acks_late=True,
    task_default_queue=os.environ["TASK_QUEUE"],
    worker_cancel_long_running_tasks_on_connection_loss=False,
)
if os.environ.get("SHARED_CONTROL"):
    app.conf.control_queue_exclusive = False
if os.environ.get("QUEUE_TYPE"):
    app.conf.task_default_queue_type = os.environ["QUEUE_TYPE"]
    app.conf.task_default_exchange_type = "topic"


@app.task
def add(x: int, y: int) -> int:
    """The sum."""
    return x + y


@app.task
def moment_s() -> float:
    """When it ran."""
    return time.time()


@app.task(bind=True, max_retries=3, default_retry_delay=0.2)
def third_time(self, word: str) -> str:  # type: ignore[no-untyped-def]
    """Fails twice, then returns the word and how often it was retried."""
    if self.request.retries < 2:
        raise self.retry()
    return f"{word} after {self.request.retries}"


@app.task
def fail() -> None:
    """Always."""
    raise ValueError("on purpose")
