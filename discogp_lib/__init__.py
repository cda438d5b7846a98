"""discogp: sheaf discovery with joint computation graph pruning.

import discogp_lib as dgp

model = dgp.load_model("mini")
task = dgp.load_task("ioi", model)
sheaf = dgp.discover(model, task, method="discogp", seed=0)
print(dgp.evaluate(model, sheaf, task.test))
"""

import warnings

# Some package asks for notebook progress bars that this one does not use.
warnings.filterwarnings("ignore", message="IProgress not found")

from discogp_lib.ablation import reference_for
from discogp_lib.config import Push, SearchConfig
from discogp_lib.discover import discover
from discogp_lib.errors import DiscoGPError
from discogp_lib.evaluate import Evaluation, evaluate, label_logits
from discogp_lib.lens import lens_model
from discogp_lib.methods import METHODS
from discogp_lib.model import MaskedTransformer, load_model
from discogp_lib.search import SearchResult, search
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks import TASK_NAMES, Task, load_task

__all__ = [
    "METHODS",
    "TASK_NAMES",
    "DiscoGPError",
    "Evaluation",
    "MaskedTransformer",
    "Push",
    "SearchConfig",
    "SearchResult",
    "Sheaf",
    "Task",
    "discover",
    "evaluate",
    "label_logits",
    "lens_model",
    "load_model",
    "load_task",
    "reference_for",
    "search",
]
