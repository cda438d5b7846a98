"""Drawing tidy tables, never computing: each function takes DataFrames and returns a Figure.

Every figure has a `caption_...` beside it that says in words, from the same numbers, what is seen.
"""

from discogp_lib.plots.composition import (
    caption_by_size,
    caption_composition,
    composition_by_size,
    composition_heatmaps,
)
from discogp_lib.plots.data import label_priors
from discogp_lib.plots.drawings import (
    caption_comparison,
    caption_heatmaps,
    caption_sheaf,
    head_heatmaps,
    sheaf_comparison,
    sheaf_drawing,
)
from discogp_lib.plots.methods import (
    caption_intervals,
    caption_pareto,
    method_intervals,
    pareto,
)
from discogp_lib.plots.overlap import (
    caption_likeness,
    caption_overlap,
    caption_upset,
    overlap_by_likeness,
    overlap_matrix,
    upset,
)
from discogp_lib.plots.recall import (
    caption_recall,
    caption_relations,
    recall_curves,
    recall_relations,
)
from discogp_lib.plots.searches import (
    caption_learning,
    caption_paths,
    caption_sensitivity,
    learning_curves,
    search_paths,
    sensitivity,
)
from discogp_lib.plots.standalone import (
    caption_faithfulness,
    caption_shares,
    faithfulness_curves,
    standalone_shares,
)
from discogp_lib.plots.style import (
    COLUMN,
    METHOD_COLOURS,
    METHOD_MARKERS,
    METHOD_NAMES,
    PAGE,
    house_style,
    method_name,
    save_figure,
)

__all__ = [
    "COLUMN",
    "METHOD_COLOURS",
    "METHOD_MARKERS",
    "METHOD_NAMES",
    "PAGE",
    "caption_by_size",
    "caption_comparison",
    "caption_composition",
    "caption_faithfulness",
    "caption_heatmaps",
    "caption_intervals",
    "caption_learning",
    "caption_likeness",
    "caption_overlap",
    "caption_pareto",
    "caption_paths",
    "caption_recall",
    "caption_relations",
    "caption_sensitivity",
    "caption_shares",
    "caption_sheaf",
    "caption_upset",
    "composition_by_size",
    "composition_heatmaps",
    "faithfulness_curves",
    "head_heatmaps",
    "house_style",
    "label_priors",
    "learning_curves",
    "method_intervals",
    "method_name",
    "overlap_by_likeness",
    "overlap_matrix",
    "pareto",
    "recall_curves",
    "recall_relations",
    "save_figure",
    "search_paths",
    "sensitivity",
    "sheaf_comparison",
    "sheaf_drawing",
    "standalone_shares",
    "upset",
]
