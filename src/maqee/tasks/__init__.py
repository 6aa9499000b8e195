"""Tasks: per-sample loss, per-sample confidence and a metric. Models and training know nothing else of a task."""

from maqee.tasks.base import Metric, Task, tasks
from maqee.tasks.classification import Classification, max_probability

__all__ = ["Classification", "Metric", "Task", "max_probability", "tasks"]
