"""Who wins, by hand on a few rows."""

import pandas as pd

from discogp_lib.standing import at_least, findings, smallest_sizes

TABLE = pd.DataFrame(
    [
        ("AGA", "discogp", 0.99, 0.2),
        ("AGA", "acdc", 0.90, 0.1),
        ("AGA", "random", 0.52, 1.0),
        ("AGA", "discogp@shuffled", 0.5, 1.0),
        ("P30", "discogp", 0.8, 0.3),
        ("P36", "discogp", 0.6, 0.3),
        ("P36", "acdc", 0.65, 0.3),
        ("P36", "edge_pruning", 0.6, 0.4),
        ("P36", "random", 0.02, 0.4),
        ("PARAREL", "discogp", 0.7, 0.3),
        ("PARAREL", "acdc", 0.9, 0.3),
    ],
    columns=["short_name", "method", "accuracy", "kl"],
).assign(balanced_accuracy=lambda rows: rows["accuracy"] - 0.1 * (rows["method"] == "random"))


def test_who_is_at_least_as_good():
    found = at_least(TABLE, ["acdc", "eap"]).set_index("short_name")
    assert found.index.tolist() == ["AGA", "P36"]  # P30 has no rival, the mean is no task
    assert found.at_least.tolist() == [True, False]
    assert found.rival.tolist() == ["acdc", "acdc"]
    by_kl = at_least(TABLE, ["acdc"], "kl")
    assert by_kl.at_least.tolist() == [False, True]  # equal is at least as good


def test_the_sentences_tell_the_counts_and_where_it_is_behind():
    texts = findings(TABLE, {"AGA": 0.5, "P36": 0.05})
    assert "on 1 of 2 tasks; behind on P36 (ACDC, by 5.0 points)." in texts[0]
    assert "on 1 of 2 tasks; behind on AGA (ACDC, by 0.100 nats)." in texts[1]
    assert "on 1 of 1 tasks." in texts[2]
    assert texts[3].startswith("random: -10.5 points against chance, class-balanced, on average ")
    assert texts[3].endswith("over 2 task(s), at most -8.0; DiscoGP on the same +52.0.")
    assert texts[4].startswith("DiscoGP, shuffled labels: +0.0 points")
    assert len(texts) == 5


def test_the_smallest_size_that_does_the_task():
    curve = pd.DataFrame(
        {
            "panel": "DNA",
            "method": ["acdc", "acdc", "acdc", "eap"],
            "edge_density": [0.01, 0.02, 0.04, 0.02],
            "accuracy": [0.5, 0.96, 1.0, 0.9],
            "full_accuracy": 1.0,
        }
    )
    (text,) = smallest_sizes(curve)
    assert text.endswith("ACDC 2.0%, EAP at none of the densities.")
