"""Tasks: per-sample loss, per-sample confidence and a metric. Models and training know nothing else of a task."""

from maqee.tasks.base import Metric, Task, tasks
from maqee.tasks.classification import Classification, max_probability
from maqee.tasks.detection import Detection
from maqee.tasks.segmentation import Segmentation

__all__ = ["Classification", "Detection", "Metric", "Segmentation", "Task", "max_probability", "tasks"]
