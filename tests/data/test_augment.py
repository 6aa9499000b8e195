"""Random draws: in bounds, in step, applied to the right sample, and mixed into proper targets."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.data import Augmentation
from maqee.data.augment import Draws, _beta
from maqee.data.transforms import inside_box
from tests.helpers import max_difference

EVERYTHING: dict[str, Any] = {
    "padding": 2, "flip": True, "trivial": True, "min_scale": 0.4,
    "jitter": 0.3, "erase": 0.5, "mixup": 0.4, "cutmix": 1.0,
}  # fmt: skip
seeds = st.integers(0, 2**32 - 1)


def _draw(augmentation: Augmentation, seed: int, count: int = 16) -> Draws:
    return augmentation.draw(torch.Generator().manual_seed(seed), count)


def _images(count: int = 16, size: int = 12) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(3))


def test_nothing_is_varied_by_default() -> None:
    images, plain = _images(), Augmentation()
    assert not plain.mixes
    assert torch.equal(plain.vary(images, _draw(plain, 0), torch.arange(16)), images)


@pytest.mark.parametrize("name", ["padding", "flip", "trivial", "min_scale", "jitter", "erase"])
def test_each_setting_changes_images_on_its_own(name: str) -> None:
    images, augmentation = _images(), Augmentation(**{name: EVERYTHING[name]})
    varied = augmentation.vary(images, _draw(augmentation, 0), torch.arange(16))
    changed = (varied != images).flatten(1).any(dim=1)
    assert varied.shape == images.shape
    assert changed.sum() >= 4
    assert 0 <= float(varied.min()) <= float(varied.max()) <= 1


@given(seed=seeds)
def test_draws_depend_on_the_generator_alone(seed: int) -> None:
    one, two = (_draw(Augmentation(**EVERYTHING), seed) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        assert torch.equal(torch.as_tensor(first), torch.as_tensor(second))


@pytest.mark.parametrize("name", EVERYTHING)
def test_switching_one_setting_off_leaves_the_other_draws(name: str) -> None:
    one = _draw(Augmentation(**EVERYTHING), 5)
    two = _draw(Augmentation(**{key: value for key, value in EVERYTHING.items() if key != name}), 5)
    own = {"padding": "shifts", "flip": "mirrored", "min_scale": "boxes", "jitter": "factors", "erase": "holes"}
    for field in own.values():
        assert torch.equal(getattr(one, field), getattr(two, field)) == (own.get(name) != field)
    assert torch.equal(one.partner, two.partner)


@given(seed=seeds, min_scale=st.floats(0.05, 0.99), padding=st.integers(0, 5), jitter=st.floats(0, 0.9))
def test_draws_are_in_bounds(seed: int, min_scale: float, padding: int, jitter: float) -> None:
    draws = _draw(Augmentation(min_scale=min_scale, padding=padding, jitter=jitter, erase=1.0), seed)
    assert 0 <= int(draws.shifts.min()) <= int(draws.shifts.max()) <= 2 * padding
    assert float((draws.factors - 1).abs().max()) <= jitter + 1e-6
    _assert_boxes(draws.boxes, min_scale, 1.0)
    _assert_boxes(draws.holes, 0.02, 0.33)
    assert sorted(draws.partner.tolist()) == list(range(16))


def _assert_boxes(boxes: Tensor, smallest: float, largest: float) -> None:
    """Inside the image, of the promised area, and not thinner than 3:4."""
    start, extent = boxes[:, :2], boxes[:, 2:]
    assert float(start.min()) >= 0
    assert float((start + extent).max()) <= 1 + 1e-6
    area = extent.prod(dim=1)
    assert smallest - 1e-5 <= float(area.min()) <= float(area.max()) <= largest + 1e-5
    ratio = extent[:, 0] / extent[:, 1]
    assert 3 / 4 - 1e-5 <= float(ratio.min()) <= float(ratio.max()) <= 4 / 3 + 1e-5


def test_probabilities_are_honoured() -> None:
    draws = _draw(Augmentation(flip=True, erase=0.25), 0, 20000)
    assert float(draws.mirrored.float().mean()) == pytest.approx(0.5, abs=0.02)
    assert float((draws.holes[:, 2] > 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    never = _draw(Augmentation(), 0, 1000)
    assert not never.mirrored.any()
    assert not never.holes[:, 2].any()


@settings(max_examples=30)
@given(seed=seeds, which=st.lists(st.integers(0, 15), min_size=1, max_size=8))
def test_samples_are_varied_alike_alone_and_in_company(seed: int, which: list[int]) -> None:
    images, augmentation, chosen = _images(), Augmentation(**EVERYTHING), torch.tensor(which)
    draws = _draw(augmentation, seed)
    together = augmentation.vary(images, draws, torch.arange(16))[chosen]
    assert max_difference(augmentation.vary(images[chosen], draws, chosen), together) < 1e-6


# --- mixing ----------------------------------------------------------------------------------------------------------


@given(seed=seeds, mixup=st.sampled_from([0.0, 0.2, 1.0]), cutmix=st.sampled_from([0.0, 0.2, 1.0]))
def test_mixed_targets_are_probabilities(seed: int, mixup: float, cutmix: float) -> None:
    draws = _draw(Augmentation(mixup=mixup, cutmix=cutmix), seed)
    own, other = torch.eye(5)[torch.arange(16) % 5], torch.eye(5)[(torch.arange(16) + 1) % 5]
    black, white = torch.zeros(16, 1, 9, 7), torch.ones(16, 1, 9, 7)
    images, targets = draws.mix(black, white, own, other)
    assert max_difference(targets.sum(dim=1), torch.ones(16)) < 1e-6
    assert float(targets.min()) >= 0
    # The partner's share of the target is its share of the pixels, to the last pixel.
    assert max_difference((targets * other).sum(dim=1), images.mean(dim=(1, 2, 3))) < 1e-6


@given(seed=seeds)
def test_mixup_is_the_weighted_mean(seed: int) -> None:
    draws, images = _draw(Augmentation(mixup=1.0), seed), _images()
    partners = images[draws.partner]
    assert not draws.pasted
    expected = torch.lerp(partners, images, draws.weight)
    assert max_difference(draws.mix(images, partners, images, partners)[0], expected) < 1e-6


@given(seed=seeds)
def test_cutmix_pastes_one_box_whose_area_is_the_partners_share(seed: int) -> None:
    draws = _draw(Augmentation(cutmix=1.0), seed)
    size = 100
    own, other = torch.zeros(2, 1, size, size), torch.ones(2, 1, size, size)
    mixed, _ = draws.mix(own, other, own, other)
    assert draws.pasted
    assert torch.equal(mixed[0], mixed[1])
    assert torch.equal(mixed[:1] == 1, inside_box(own, draws.box))
    side = math.sqrt(1 - draws.weight)  # a box's edge can be off by a pixel
    assert float(mixed.mean()) == pytest.approx(1 - draws.weight, abs=2 * (side + 1 / size) / size)


def test_with_both_a_coin_decides_and_without_either_nothing_is_mixed() -> None:
    both = [_draw(Augmentation(mixup=0.5, cutmix=0.5), seed, 1).pasted for seed in range(400)]
    assert sum(both) == pytest.approx(200, abs=50)
    assert not any(_draw(Augmentation(mixup=0.5), seed, 1).pasted for seed in range(50))
    assert all(_draw(Augmentation(cutmix=0.5), seed, 1).pasted for seed in range(50))
    neither, images = _draw(Augmentation(), 0), _images()
    assert torch.equal(neither.mix(images, images.flip(0), images, images)[0], images)


def test_a_share_of_batches_stays_unmixed_and_the_others_are_as_they_were() -> None:
    images = _images()
    partners = images.flip(0)
    unmixed = 0
    for seed in range(400):
        always, sometimes = (_draw(Augmentation(mixup=0.5, cutmix=0.5, mix_share=share), seed, 1) for share in (1, 0.3))
        if sometimes.weight == 1.0:
            unmixed += 1
            assert torch.equal(sometimes.mix(images, partners, images, partners)[0], images)
        else:
            assert (sometimes.pasted, sometimes.weight) == (always.pasted, always.weight)
        assert torch.equal(sometimes.shifts, always.shifts)
    assert unmixed == pytest.approx(280, abs=50)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_beta_has_the_moments_of_the_beta_distribution(alpha: float) -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.tensor([_beta(alpha, generator) for _ in range(5000)])
    assert 0 <= float(drawn.min()) <= float(drawn.max()) <= 1
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(drawn.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.08)
