"""EAP's passes are counted right, and ACDC's sample covers every kind of place."""

import torch

from benchmarks.methods import CHAIN, count_passes, seconds_per_mask
from discogp_lib.methods.acdc import AcdcConfig, AcdcSearch
from discogp_lib.methods.eap import EapConfig, eap_scores
from tests.reference import masked, planted_gpt2, planted_task


def test_eap_takes_one_pass_after_the_one_for_the_answers():
    model, task = masked(planted_gpt2()), planted_task(16)
    before = eap_scores(model, task, EapConfig(prompts=16))
    assert count_passes(model, lambda: eap_scores(model, task, EapConfig(prompts=16))) == 2
    assert torch.equal(eap_scores(model, task, EapConfig(prompts=16)), before)


def test_the_sample_has_every_place_of_the_first_layer_and_the_logits(monkeypatch):
    model = masked(planted_gpt2())
    monkeypatch.setattr("benchmarks.methods.SAMPLED_LAYERS", (0,))
    search = AcdcSearch(model, planted_task(16), AcdcConfig())
    sample = seconds_per_mask(search.kls)
    assert sample.place.tolist() == ["logits", "0", "1", "2", "3"]
    assert (sample.seconds > 0).all()
    assert CHAIN >= 1
