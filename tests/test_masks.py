"""The sampler's frequencies, its gradient and its optimiser against the paper's equation."""

import inspect
import shutil

import pytest
import torch
from scipy import stats
from torch import Tensor

from discogp_lib import masks
from discogp_lib.masks import BETA1, BETA2, MaskLogits, complement, noise_keys, uniform

N = 100_000


def draw(logits: Tensor, temperature: float = 1.0, seed: int = 0, step: int = 0) -> Tensor:
    """The mask of one step."""
    mask = MaskLogits.start(torch.ones_like(logits), 0.0, temperature, seed)
    mask.logits.copy_(logits)
    out = torch.empty_like(logits)
    mask.sample(step, out)
    return out


def noise(n: int, seed: int, step: int) -> Tensor:
    return uniform(torch.arange(n, dtype=torch.int32), *noise_keys(seed, step))


def straight_through(logits: Tensor, u: Tensor, temperature: float, share: float = 1.0) -> Tensor:
    """The paper's equations, written plainly; `share` of the noise."""
    s = torch.sigmoid((logits + share * torch.log(u / (1 - u))) / temperature)
    return (s > 0.5).to(s) + s - s.detach()


def run_some_steps(n: int) -> list[Tensor]:
    """Three samples, then all of the optimiser's state."""
    mask = MaskLogits.start(torch.linspace(-1, 1, n), 0.5, 0.7, seed=9)
    out = torch.empty(n)
    samples = []
    for step in range(3):
        mask.sample(step, out)
        samples.append(out.clone())
        mask.update(out.sin(), step, 0.1, 1e-3 * (step + 1))
    return [*samples, *mask.state().values()]


# -- sampling -----------------------------------------------------------------------------------


@pytest.mark.parametrize("logit", [-4.0, -1.0, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 2.0])
def test_masks_are_on_as_often_as_sigmoid_of_the_logit(logit, temperature):
    p = torch.sigmoid(torch.tensor(logit)).item()
    sigma = (p * (1 - p) / N) ** 0.5
    seen = [draw(torch.full((N,), logit), temperature, step=s).mean().item() for s in range(3)]
    assert seen == pytest.approx([p] * 3, abs=4.5 * sigma)
    assert len(set(seen)) > 1


def test_masks_are_hard_and_masked_values_are_values_or_zero():
    values = torch.randn(1000)
    mask = MaskLogits.start(values, 0.3, 1.0, seed=5)
    out = torch.full_like(values, torch.nan)
    mask.sample(0, out)
    on = out != 0
    assert 0.3 < on.float().mean() < 0.8
    assert torch.equal(out[on], values[on])


def test_without_noise_the_drawn_mask_is_the_kept_one():
    mask = MaskLogits.start(torch.ones(N), 0.0, 1.0, seed=5)
    mask.logits.copy_(torch.randn(N, generator=torch.Generator().manual_seed(0)))
    out = torch.empty(N)
    differ = []
    for share in (1.0, 0.5, 0.1, 0.0):
        mask.sample(3, out, share)
        differ.append(int((out.bool() != mask.hard()).sum()))
    assert differ == sorted(differ, reverse=True)
    assert differ[0] > N // 5
    assert differ[-1] == 0


def test_two_gumbels_are_one_logistic():
    """log(log U1 / log U2) of the paper has the distribution of log(U / (1 - U)) used here."""
    generator = torch.Generator().manual_seed(0)
    u1, u2 = torch.rand(2, N, generator=generator).double().clamp(1e-12, 1 - 1e-12)
    u = noise(N, 0, 0).double()
    test = stats.ks_2samp((-(u1.log() / u2.log()).log()).numpy(), (u / (1 - u)).log().numpy())
    assert test.pvalue > 1e-3


@pytest.mark.parametrize("temperature", [0.05, 0.66, 1.0, 3.0])
def test_slope_is_the_derivative_of_the_soft_sample(temperature):
    logits = torch.linspace(-6, 6, 997)
    mask = MaskLogits.start(torch.ones(997), 0.0, temperature, seed=3)
    mask.logits.copy_(logits)
    out = torch.empty(997)
    mask.sample(11, out)
    exact = logits.double().requires_grad_()
    expected = straight_through(exact, noise(997, 3, 11).double(), temperature)
    assert torch.equal(out.double(), expected.detach().round())
    (slope,) = torch.autograd.grad(expected.sum(), exact)
    mask.update(torch.ones(997), 11, learning_rate=0.1, push=0.0)
    from_the_update = mask.first_moment / (1 - BETA1)  # a tenth of the gradient, at first
    torch.testing.assert_close(from_the_update.double(), slope, atol=1e-5, rtol=1e-3)


def test_complement_is_exactly_the_reverse_of_the_same_sample():
    values = torch.randn(1000)
    mask = MaskLogits.start(values, 0.0, 1.0, seed=0)
    sample = torch.empty_like(values)
    mask.sample(0, sample)
    reverse = sample.clone()
    complement(values, reverse)
    assert torch.equal(reverse, values - sample)
    assert torch.equal(reverse != 0, sample == 0)
    assert torch.equal(reverse[reverse != 0], values[sample == 0])


def test_hard_mask_is_on_where_the_logit_is_positive():
    mask = MaskLogits.start(torch.ones(5), 0.0, 1.0, seed=0)
    mask.logits.copy_(torch.tensor([-1.0, -1e-30, 0.0, 1e-30, 2.0]))
    assert mask.hard().tolist() == [False, False, False, True, True]
    assert mask.density() == 2 / 5


def test_extreme_logits_stay_finite():
    logits = torch.tensor([-1e4, -200.0, -90.0, 90.0, 200.0, 1e4]).repeat(10_000)
    for temperature in (0.01, 1.0, 2.0):
        mask = MaskLogits.start(torch.ones_like(logits), 0.0, temperature, seed=0)
        mask.logits.copy_(logits)
        out = torch.empty_like(logits)
        mask.sample(0, out)
        assert torch.equal(out, (logits > 0).float())
        mask.update(torch.ones_like(logits), 0, learning_rate=0.1, push=0.1)
        assert all(torch.isfinite(tensor).all() for tensor in mask.state().values())


# -- noise --------------------------------------------------------------------------------------


def test_noise_is_uniform_between_zero_and_one(monkeypatch):
    u = noise(N, seed=1, step=2)
    assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-3
    # Whatever the bits: neither end is ever reached, where the noise would be infinite.
    monkeypatch.setattr(masks, "_scramble", lambda x: x)
    ends = torch.tensor([0, 1, 255, 256, 2**31 - 1, -1, -2, -256, -(2**31)], dtype=torch.int32)
    u = uniform(ends, 0, 0)
    assert bool(((u > 0) & (u < 1)).all())


def test_noise_of_other_steps_seeds_and_neighbours_is_unrelated():
    base = noise(N, 0, 0) - 0.5
    others = [noise(N, seed, step) - 0.5 for seed, step in ((0, 1), (1, 0), (0, 2), (7, 300))]
    others += [base.roll(lag) for lag in (1, 2, 8, 64, 1024)]
    for other in others:
        correlation = (base * other).mean() / (base.std() * other.std())
        assert abs(correlation.item()) < 4.5 / N**0.5
        squares = torch.corrcoef(torch.stack([base**2, other**2]))[0, 1]
        assert abs(squares.item()) < 4.5 / N**0.5


def test_noise_is_a_function_of_seed_step_and_position_alone():
    assert torch.equal(noise(N, 3, 4), noise(N, 3, 4))
    assert torch.equal(noise(100, 3, 4), noise(N, 3, 4)[:100])
    torch.rand(7)  # the global generator has nothing to do with it
    assert torch.equal(draw(torch.zeros(50), step=2), draw(torch.zeros(50), step=2))
    assert not torch.equal(noise(100, 3, 4), noise(100, 4, 3))
    assert noise_keys(3, 4) != noise_keys(3, 5)


@pytest.mark.parametrize("chunk", [64, 128, 448, 1000])
def test_size_of_pieces_does_not_change_a_bit(chunk, monkeypatch):
    expected = run_some_steps(500)
    monkeypatch.setattr(masks, "CHUNK", chunk)
    for a, b in zip(expected, run_some_steps(500), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("chunk", [1, 7])
def test_pieces_however_small_see_the_same_noise(chunk, monkeypatch):
    """Torch computes pieces that do not fill a vector register in another way, to the last bit."""
    expected = run_some_steps(50)
    monkeypatch.setattr(masks, "CHUNK", chunk)
    for a, b in zip(expected, run_some_steps(50), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


# -- the optimiser ------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_update_is_autograd_through_the_equation_and_adam(temperature, steps, share):
    n, seed, rate = 400, 2, 0.1
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(n, generator=generator)
    mask = MaskLogits.start(values, 1.0, temperature, seed)
    out = torch.empty(n)
    logits = torch.ones(n, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([logits], lr=rate, betas=(BETA1, BETA2))
    for step in range(steps):
        mask.sample(step, out, share)
        m = straight_through(logits, noise(n, seed, step).double(), temperature, share)
        masked = m * values.double()
        assert torch.equal(out, masked.detach().float())
        # Any loss of the masked values, the sparsity term, one step.
        upstream, push = torch.randn(n, generator=generator), 0.01 * (step + 1)
        loss = (masked * upstream.double()).sum() + push * torch.sigmoid(logits).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        mask.update(upstream, step, rate, push, share)
        torch.testing.assert_close(mask.logits.double(), logits.detach(), atol=1e-4, rtol=1e-4)
    adam_state = adam.state[logits]
    torch.testing.assert_close(
        mask.first_moment.double(), adam_state["exp_avg"], atol=1e-6, rtol=1e-3
    )
    torch.testing.assert_close(
        mask.second_moment.double(), adam_state["exp_avg_sq"], atol=1e-7, rtol=1e-3
    )


def test_push_alone_is_the_derivative_of_the_sparsity_loss():
    """lambda_s times the mean of sigmoid(logit), with lambda_s = push times the number of masks."""
    mask = MaskLogits.start(torch.ones(10), 0.7, 1.0, seed=0)
    mask.sample(0, torch.empty(10))
    push = 0.03
    logits = torch.full((10,), 0.7, dtype=torch.float64, requires_grad=True)
    (10 * push * torch.sigmoid(logits).mean()).backward()
    mask.update(torch.zeros(10), 0, 0.1, push)
    # After one step Adam's first moment is a tenth of the gradient.
    torch.testing.assert_close(10 * mask.first_moment.double(), logits.grad, atol=1e-8, rtol=1e-4)


# -- compiled -----------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")
def test_compiled_passes_are_the_plain_ones(monkeypatch, recwarn):
    n = 3001
    expected = run_some_steps(n)
    for name in ("_scramble", "uniform", "_count_on", "_sample_chunk", "_update_chunk"):
        # The shape checks of the test suite cannot be compiled.
        monkeypatch.setattr(masks, name, inspect.unwrap(getattr(masks, name)))
    monkeypatch.setattr(masks, "COMPILE_FROM", 1)
    monkeypatch.setattr(masks, "_COMPILED", {})
    actual = run_some_steps(n)
    assert len(masks._COMPILED) == 2
    assert None not in masks._COMPILED.values()
    assert not [w for w in recwarn if "torch.compile failed" in str(w.message)]
    for sample, compiled in zip(expected[:3], actual[:3], strict=True):
        assert torch.equal(sample, compiled)
    for plain, compiled in zip(expected[3:], actual[3:], strict=True):
        torch.testing.assert_close(compiled, plain, atol=1e-6, rtol=1e-4)
    counted = MaskLogits.start(torch.ones(n), 1.0, 1.0, seed=0)
    counted.logits[:1000] = -1.0
    assert counted.density() == (n - 1000) / n
    assert masks._COMPILED[masks._count_on] is not None


def test_without_a_compiler_the_search_goes_on_and_says_so(monkeypatch):
    def broken(function, dynamic):
        def fails(*args, **kwargs):
            raise RuntimeError("no compiler")

        return fails

    expected = run_some_steps(100)
    monkeypatch.setattr(masks, "COMPILE_FROM", 1)
    monkeypatch.setattr(masks, "_COMPILED", {})
    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(UserWarning, match="A C\\+\\+ compiler"):
        actual = run_some_steps(100)
    for plain, fallen_back in zip(expected, actual, strict=True):
        assert torch.equal(plain, fallen_back)
