"""The tasks: what is asked of a model, from which source, and what was counted on the way."""

from discogp_lib.tasks.audit import Audit
from discogp_lib.tasks.base import Row, Split, Task
from discogp_lib.tasks.load import load_task
from discogp_lib.tasks.names import SHORT_NAMES, TASK_NAMES

__all__ = ["SHORT_NAMES", "TASK_NAMES", "Audit", "Row", "Split", "Task", "load_task"]
