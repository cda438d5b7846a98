"""Figures show the numbers they are given."""

import pandas as pd

from discogp_lib import plots

PRIORS = pd.DataFrame(
    {
        "task": ["AGA", "P30"],
        "chance": [0.5, 1 / 6],
        "majority": [0.643, 0.723],
        "paper_random": [0.5, 0.0],
    }
)


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
