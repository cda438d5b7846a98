"""The tasks: what is asked of a model, from which source, and what was counted on the way."""

from discogp_lib.tasks.audit import Audit
from discogp_lib.tasks.base import Row, Split, Task

__all__ = ["Audit", "Row", "Split", "Task"]
