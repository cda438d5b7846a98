"""Figures show the numbers they are given."""

import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from discogp_lib import grid, plots
from discogp_lib.analysis import composition, overlap, recall
from discogp_lib.layout import Layout, unflatten
from discogp_lib.sheaf import Sheaf

PRIORS = pd.DataFrame(
    {
        "task": ["AGA", "P30"],
        "chance": [0.5, 1 / 6],
        "majority": [0.643, 0.723],
        "paper_random": [0.5, 0.0],
    }
)
LAYOUT = Layout("gpt2", 3, 2, 2, 8, 4, 12, attention_bias=True, mlp_bias=True)
TASKS = ["AGA", "ANA", "DNA"]


def make_sheaf(seed: int, edges: float = 0.3) -> Sheaf:
    noise = torch.Generator().manual_seed(seed)
    return Sheaf(
        LAYOUT,
        "tiny",
        "0" * 64,
        torch.rand(LAYOUT.graph.n_edges, generator=noise) < edges,
        unflatten(torch.rand(LAYOUT.n_weights, generator=noise) < 0.2, LAYOUT),
    )


SHEAVES = {task: {s: make_sheaf(10 * i + s) for s in range(2)} for i, task in enumerate(TASKS)}


def composition_rows() -> pd.DataFrame:
    """As `composition_table` gives them, with invented accuracies."""
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(2):
        for task in TASKS:
            rows += [
                (seed, task, "", 0, "full model", 0, 1.0),
                (seed, task, "", 1, "original", 0, 0.9),
            ]
            others = [other for other in TASKS if other != task]
            for size, joined in [(2, others[0]), (2, others[1]), (3, " + ".join(others))]:
                for kind in ("composed", "random", "matched"):
                    rows.append((seed, task, joined, size, kind, 0, float(rng.uniform(0.5, 1))))
    columns = ["seed", "task", "joined", "size", "kind", "draw", "accuracy"]
    return pd.DataFrame(rows, columns=columns)


def search_curve() -> pd.DataFrame:
    step = np.arange(10.0, 110.0, 10)
    return pd.DataFrame(
        {
            "step": step,
            "fidelity": np.exp(-step / 50),
            "completeness": 0.69,
            "dev_accuracy": 1 - 0.3 * np.exp(-step / 50),
            "dev_complement": 0.5 + 0.3 * np.exp(-step / 50),
            "weight_density": np.exp(-step / 40),
            "edge_density": np.exp(-step / 60),
        }
    )


def method_points() -> pd.DataFrame:
    rows = [
        {"method": method, "edge_density": d, "accuracy": min(1.0, d * k * 5), "kl": 0.1 / k / d}
        for k, method in enumerate(plots.METHOD_COLOURS, 1)
        for d in (0.01, 0.03, 0.1)
    ]
    return pd.DataFrame(rows)


def intervals(n_tasks: int) -> pd.DataFrame:
    rows = [
        {"task": f"T{t}", "method": m, "mean": 0.8, "low": 0.7, "high": 0.9}
        for t in range(n_tasks)
        for m in plots.METHOD_COLOURS
    ]
    return pd.DataFrame(rows).assign(chance=0.5, full=0.99)


def sensitivities() -> pd.DataFrame:
    rows = [(v, 0.9 + s / 50, 0.5, 0.1 / v, 0.2 / v) for v in (1.0, 3.0, 10.0) for s in range(2)]
    columns = ["value", "accuracy", "complement_accuracy", "weight_density", "edge_density"]
    return pd.DataFrame(rows, columns=columns)


def exported() -> pd.DataFrame:
    shares = {"multiply_adds_share": 0.4, "file_share": 0.05, "weight_share": 0.02}
    return pd.DataFrame({"task": TASKS, "accuracy": 0.97, "full_accuracy": 0.99} | shares)


def faithfulnesses() -> pd.DataFrame:
    rows = [(m, s, s**0.2) for m in ("discogp", "eap") for s in (0.01, 0.1, 1.0)]
    table = pd.DataFrame(rows, columns=["method", "share", "faithfulness"])
    return table.assign(ablation="zero", cpr=0.8, cmd=0.2)


def search_ends() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Searches of six tasks and two seeds, and where they ended."""
    looks = [(15.0, 1.0, 1.0), (30.0, 0.3, 0.97), (45.0, 0.02, 0.8)]
    paths = pd.DataFrame(
        [(f"T{task}", seed, *look) for task in range(6) for seed in (0, 1) for look in looks],
        columns=["task", "seed", "step", "weight_density", "dev_accuracy"],
    )
    ends = paths[paths["step"] == 45.0].assign(accuracy=0.95, full_accuracy=1.0, chance=0.5)
    ends.loc[ends["task"] == "T5", "accuracy"] = 0.81
    return paths, ends


def figures() -> dict[str, tuple[Figure, str]]:
    """Every figure with its caption, from small tables."""
    one = SHEAVES["AGA"][0]
    nodes, edges = grid.nodes(one), grid.edges(one, strong=10)
    both_nodes, both_edges = grid.compare({"A": one, "B": SHEAVES["ANA"][0]})
    maps = grid.node_shares(SHEAVES)
    seeds = overlap.over_seeds(overlap.seed_overlap(SHEAVES))
    members = overlap.memberships({task: found[0] for task, found in SHEAVES.items()})
    joined = composition_rows()
    changes = composition.over_seeds(composition.differences(joined))
    facts = recall.recall_table(
        {"P36": SHEAVES["AGA"], "P30": SHEAVES["ANA"], "P103": SHEAVES["DNA"]}
    )
    layers, curve, points = recall.over_relations(facts), search_curve(), method_points()
    paper = points.head(1)
    return {
        "sheaf": (plots.sheaf_drawing(nodes, edges), plots.caption_sheaf(nodes, edges)),
        "comparison": (
            plots.sheaf_comparison(both_nodes, both_edges, TASKS[:2]),
            plots.caption_comparison(both_edges, TASKS[:2]),
        ),
        "heatmaps": (plots.head_heatmaps(maps, columns=2), plots.caption_heatmaps(maps)),
        "overlap": (plots.overlap_matrix(seeds), plots.caption_overlap(seeds)),
        "likeness": (
            plots.overlap_by_likeness(seeds),
            plots.caption_likeness(seeds),
        ),
        "upset": (plots.upset(members, top=4), plots.caption_upset(members, top=4)),
        "composition": (plots.composition_heatmaps(changes), plots.caption_composition(changes)),
        "by size": (
            plots.composition_by_size(joined, chance=0.5),
            plots.caption_by_size(joined),
        ),
        "recall": (plots.recall_curves(layers), plots.caption_recall(layers)),
        "relations": (plots.recall_relations(facts, columns=2), plots.caption_relations(facts)),
        "shares": (plots.standalone_shares(exported()), plots.caption_shares(exported())),
        "faithfulness": (
            plots.faithfulness_curves(faithfulnesses(), faithfulnesses().head(1)),
            plots.caption_faithfulness(faithfulnesses().head(2)),
        ),
        "learning": (plots.learning_curves(curve, chance=0.5), plots.caption_learning(curve)),
        "paths": (
            plots.search_paths(*search_ends(), asked=0.93),
            plots.caption_paths(*search_ends(), asked=0.93),
        ),
        "pareto": (
            plots.pareto(points, chance=0.5, paper=paper),
            plots.caption_pareto(points, paper=True),
        ),
        "kl": (plots.pareto(points, y="kl"), plots.caption_pareto(points, y="kl")),
        "intervals": (
            plots.method_intervals(intervals(3)),
            plots.caption_intervals(intervals(3), runs=3),
        ),
        "sensitivity": (
            plots.sensitivity(sensitivities(), symbol="push", default=3.0, chance=0.5),
            plots.caption_sensitivity(sensitivities(), symbol="push"),
        ),
    }


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[Figure, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return figures()


def test_every_figure_is_drawn_without_a_warning_and_fits_a_page(drawn, tmp_path):
    for name, (figure, _) in drawn.items():
        assert isinstance(figure, Figure), name
        width = figure.get_size_inches()[0]
        assert width <= plots.PAGE + 0.01, name
        with warnings.catch_warnings(), plots.house_style():
            warnings.simplefilter("error")
            figure.savefig(tmp_path / "figure.png", dpi=50)
    assert plt.get_fignums() == []  # nothing is left for a notebook to show twice


def test_every_caption_is_one_paragraph_with_numbers_and_none_missing(drawn):
    for name, (_, caption) in drawn.items():
        assert re.search(r"\d", caption), name
        assert caption.endswith("."), name
        assert "nan" not in caption.lower(), name
        assert "\n" not in caption, name


def test_every_function_for_a_figure_has_its_caption(drawn):
    captions = [name for name in plots.__all__ if name.startswith("caption_")]
    assert len(captions) == len(drawn) - 1  # accuracy and KL share one


def test_searches_that_fell_short_are_named_with_what_dev_allowed():
    caption = plots.caption_paths(*search_ends(), asked=0.93)
    assert "on test: 10 of 12; not T5 81.0% (dev at most 80.0% at that size), T5" in caption


def test_searches_run_from_the_full_model_to_the_right_a_panel_each():
    figure = plots.search_paths(*search_ends())
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == [f"T{n}" for n in range(6)]
    left, right = shown[0].get_xlim()
    assert left > right
    assert [list(line.get_xdata()) for line in shown[0].lines[:2]] == [[100, 30, 2]] * 2


def test_every_method_has_its_own_colour_marker_and_name():
    for looks in (plots.METHOD_COLOURS, plots.METHOD_MARKERS, plots.METHOD_NAMES):
        assert len(set(looks.values())) == len(looks) == 8
    assert set(plots.METHOD_COLOURS) == set(plots.METHOD_MARKERS) == set(plots.METHOD_NAMES)


def test_the_drawing_has_as_many_curves_as_edges(drawn):
    one = SHEAVES["AGA"][0]
    axes = drawn["sheaf"][0].axes[0]
    curves = [
        c for c in axes.collections if len(c.get_paths()) and c.get_paths()[0].codes is not None
    ]
    n_curves = sum(len(c.get_paths()) for c in curves if len(c.get_paths()[0].vertices) == 4)
    assert n_curves == one.kept_edges


def test_the_overlap_matrix_has_edges_below_and_weights_above(drawn):
    table = overlap.over_seeds(overlap.seed_overlap(SHEAVES)).set_index(["a", "b", "kind"])["ratio"]
    texts = {t.get_position(): t.get_text() for t in drawn["overlap"][0].axes[0].texts}
    assert texts[(0, 1)] == f"{table['AGA', 'ANA', 'edges']:.1f}"
    assert texts[(1, 0)] == f"{table['AGA', 'ANA', 'weights']:.1f}"
    assert texts[(0 - 0.2, 0 + 0.25)] == f"{table['AGA', 'AGA', 'edges']:.1f}"
    assert texts[(0 + 0.2, 0 - 0.25)] == f"{table['AGA', 'AGA', 'weights']:.1f}"


def test_the_composition_map_is_centred_on_zero_and_shows_points(drawn):
    changes = composition.over_seeds(composition.differences(composition_rows()))
    axes = drawn["composition"][0].axes[0]
    image = axes.images[0]
    assert image.norm.vmin == -image.norm.vmax
    one = changes[(changes["task"] == "ANA") & (changes["joined"] == "AGA")]["change"].item()
    assert image.get_array()[0, 1] == pytest.approx(100 * one)


def test_the_upset_bars_are_the_counts(drawn):
    members = overlap.memberships({task: found[0] for task, found in SHEAVES.items()})
    bars = drawn["upset"][0].axes[1].patches
    assert [bar.get_height() for bar in bars] == members["count"].head(4).tolist()


def test_accuracies_start_at_chance_or_zero_and_chance_is_marked(drawn):
    pareto = drawn["pareto"][0].axes[0]
    assert pareto.get_ylim()[0] <= 0.5
    assert any(list(line.get_ydata()) == [0.5, 0.5] for line in pareto.lines)
    assert drawn["intervals"][0].axes[0].get_xlim()[0] == 0
    assert drawn["recall"][0].axes[0].get_ylim()[0] == 0
    assert drawn["learning"][0].axes[1].get_ylim()[0] == 0


def test_the_papers_points_are_hollow(drawn):
    hollow = [
        line
        for line in drawn["pareto"][0].axes[0].lines
        if line.get_markerfacecolor() == "white" and line.get_marker() != "None"
    ]
    assert [float(line.get_xdata()[0]) for line in hollow] == [1.0]  # percent


def test_many_tasks_are_set_in_columns():
    figure = plots.method_intervals(intervals(19))
    assert len(figure.axes) == 3
    assert figure.get_size_inches()[1] < 9
    shown = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    assert shown == [f"T{i}" for i in range(19)]


def test_label_priors_draws_every_level_of_every_task():
    axes = plots.label_priors(PRIORS).axes[0]
    drawn = {
        points.get_label(): points.get_offsets()[:, 0].tolist()
        for points in axes.collections
        if not points.get_label().startswith("_")
    }
    assert drawn == {
        "one fixed answer": [0.643, 0.723],
        "guess, 1/K": [0.5, 1 / 6],
        "paper's random": [0.5, 0.0],
    }
    assert [label.get_text() for label in axes.get_yticklabels()] == ["AGA", "P30"]


def test_a_figure_is_saved_with_its_numbers_the_same_twice(tmp_path):
    contents = []
    for folder in ("first", "second"):
        figure = plots.label_priors(PRIORS)
        path = plots.save_figure(figure, PRIORS, "smoke", "priors", figures=tmp_path / folder)
        assert path == tmp_path / folder / "smoke" / "priors.png"
        names = sorted(file.name for file in path.parent.iterdir())
        assert names == ["priors.csv", "priors.png", "priors.svg"]
        contents.append([path.with_suffix(suffix).read_bytes() for suffix in (".svg", ".png")])
        pd.testing.assert_frame_equal(pd.read_csv(path.with_suffix(".csv")), PRIORS, rtol=1e-5)
    assert contents[0] == contents[1]


def test_what_was_not_run_is_marked_and_never_filled():
    seeds = overlap.over_seeds(overlap.seed_overlap(SHEAVES))
    figure = plots.overlap_matrix(seeds, tasks=[*TASKS, "IOI"])
    texts = {t.get_position(): t.get_text() for t in figure.axes[0].texts}
    assert texts[(0, 3)] == texts[(3, 0)] == "\N{EN DASH}"
    changes = composition.over_seeds(composition.differences(composition_rows()))
    panel = plots.composition_heatmaps(changes, tasks=[*TASKS, "IOI"]).axes[0]
    assert np.isnan(panel.images[0].get_array().filled(np.nan)[3]).all()
    maps = plots.head_heatmaps(grid.node_shares(SHEAVES), tasks=[*TASKS, "IOI"], columns=2)
    told = [[t.get_text() for t in axes.texts] for axes in maps.axes[:4]]
    assert told == [[], [], [], ["not run"]]


def test_an_empty_table_is_drawn_as_not_run():
    nothing = overlap.over_seeds(overlap.seed_overlap({}))
    figure = plots.overlap_matrix(nothing)
    assert [t.get_text() for t in figure.axes[0].texts] == ["not run"]
    assert plots.caption_overlap(nothing).startswith("Not run")
    untried = plots.sensitivity(sensitivities().head(0), symbol="push")
    assert [t.get_text() for t in untried.axes[0].texts] == ["not run"]
    assert plt.get_fignums() == []


def test_a_crowded_comparison_draws_only_what_is_shared(monkeypatch):
    a, b = SHEAVES["AGA"][0], SHEAVES["ANA"][0]
    nodes, edges = grid.compare({"A": a, "B": b})
    monkeypatch.setattr("discogp_lib.plots.drawings.MOST_EDGES", 1)
    axes = plots.sheaf_comparison(nodes, edges).axes[0]
    curves = [path for c in axes.collections for path in c.get_paths() if len(path.vertices) == 4]
    assert len(curves) == (a & b).kept_edges
