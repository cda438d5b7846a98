"""The committed runs of a real language model: whole, of the profile's settings, reproducible."""

import os

import pytest
import torch

import discogp_lib as dgp
from discogp_lib.checkpoints import cache_dir, load_checkpoint
from discogp_lib.methods.settings import needs_budget
from discogp_lib.paths import RESULTS
from discogp_lib.profiles import get_profile
from discogp_lib.runs import MADE_AGAIN, Run, load_record
from discogp_lib.schedule import must_be_computed
from discogp_lib.sweep import plan

PROFILE = get_profile("smollm2")
STORED = [run for run in plan(PROFILE.name) if run.record_path.exists()]
FOUND = [run for run in STORED if run.method not in MADE_AGAIN]

needs_the_model = pytest.mark.skipif(
    not (cache_dir() / PROFILE.model).is_dir(),
    reason="SmolLM2 is not in the cache; load_model('smollm2-135m') fetches it",
)
needs_the_data = pytest.mark.skipif(
    "DISCOGP_DATA" not in os.environ, reason="DISCOGP_DATA is not set"
)


def test_every_record_is_of_a_run_of_the_profile():
    written = (RESULTS / PROFILE.name / "runs").rglob("record.json")
    assert {run.record_path for run in STORED} == set(written)


@pytest.mark.parametrize("run", STORED, ids=str)
def test_records_are_whole_and_of_committed_code(run: Run):
    record = load_record(run)
    assert record is not None
    assert not must_be_computed(run)  # the settings are still those of the profile
    assert not record.data["environment"]["git"].endswith(("dirty", "unknown"))
    if needs_budget(run.method):
        matched = load_record(Run(run.profile, run.task, "discogp", run.seed))
        assert matched is not None
        config = record.data["inputs"]["config"]
        asked = [config[name] for name in ("edge_density", "weight_density") if name in config]
        got = [matched.test[name] for name in ("edge_density", "weight_density") if name in config]
        assert asked == got


@pytest.mark.parametrize("run", FOUND[::6], ids=str)
def test_a_sheaf_has_the_densities_of_its_record(run: Run):
    record = load_record(run)
    sheaf = dgp.Sheaf.load(run.sheaf_path)
    assert sheaf.weight_density == record.test["weight_density"]
    assert sheaf.edge_density == record.test["edge_density"]


@needs_the_model
def test_full_sheaf_is_hugging_face():
    model = dgp.load_model(PROFILE.model)
    words = "When Mary and John went to the store, John gave a drink to"
    tokens = torch.tensor([[model.bos, *model.tokenizer(words)["input_ids"]]])
    with torch.no_grad():
        expected = load_checkpoint(PROFILE.model).model(tokens).logits
        ones = torch.ones(model.graph.n_edges)  # floats: the stream is unrolled
        unrolled = model.hidden(tokens, edge_mask=ones) @ model.fixed.unembedding.T
    for logits in (model.logits(tokens, dgp.Sheaf.full(model)), unrolled):
        assert (logits - expected).abs().max() < 1e-3


@needs_the_model
@needs_the_data
@pytest.mark.parametrize("task", ["blimp/anaphor_number_agreement", "pararel/P36"])
def test_a_committed_sheaf_reproduces_its_record(task: str):
    run = Run(PROFILE.name, task, "discogp", 0)
    model = dgp.load_model(PROFILE.model)
    test = dgp.load_task(task, model).test
    again = dgp.evaluate(model, dgp.Sheaf.load(run.sheaf_path), test)
    record = load_record(run).test
    assert again.accuracy == record["accuracy"]
    assert again.complement_accuracy == record["complement_accuracy"]
    assert again.kl == pytest.approx(record["kl"], rel=1e-4)
