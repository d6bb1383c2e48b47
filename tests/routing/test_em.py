"""EM routing: competition over the whole image, and votes made to break it."""

import math
from collections import defaultdict
from typing import Any, Literal, cast

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.networks.windows import GEOMETRIES, grid, slow_windows


def slow_em(
    children: list[list[tuple[Any, Tensor, float]]],
    n_parents: int,
    beta_a: Tensor,
    beta_u: Tensor,
    iterations: int,
) -> list[tuple[Tensor, Tensor]]:
    """Procedure 1 capsule by capsule. A window is a list of (child's name, votes [j e], a_i)."""
    parents_of: dict[Any, int] = defaultdict(int)
    for window in children:
        for name, _, _ in window:
            parents_of[name] += n_parents
    r = [[torch.ones(n_parents).double() / parents_of[n] for n, _, _ in w] for w in children]
    for step in range(iterations):
        fits = []
        for window, shares in zip(children, r, strict=True):
            weights = torch.stack([s * a for s, (_, _, a) in zip(shares, window, strict=True)])
            votes = torch.stack([v for _, v, _ in window])  # [i j e]
            mass = weights.sum(0)
            mean = (weights[..., None] * votes).sum(0) / (mass + 1e-7)[:, None]
            variance = (weights[..., None] * (votes - mean) ** 2).sum(0) / (mass + 1e-7)[:, None]
            variance = variance + 5e-4
            cost = ((beta_u[:, None] + 0.5 * variance.log()) * mass[:, None]).sum(-1)
            heat = 0.01 * (1 - 0.95 ** (step + 1))
            fits.append((mean, variance, torch.sigmoid(heat * (beta_a - cost))))
        scores = [
            [
                a * ((-((v - mean) ** 2) / (2 * var)).exp() / (2 * math.pi * var).sqrt()).prod(-1)
                for _, v, _ in window
            ]
            for window, (mean, var, a) in zip(children, fits, strict=True)
        ]
        total: dict[Any, Tensor] = defaultdict(lambda: torch.tensor(0.0).double())
        for window, ps in zip(children, scores, strict=True):
            for (name, _, _), p in zip(window, ps, strict=True):
                total[name] = total[name] + p.sum()
        r = [
            [p / total[name] for (name, _, _), p in zip(window, ps, strict=True)]
            for window, ps in zip(children, scores, strict=True)
        ]
    return [(mean, a) for mean, _, a in fits]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("competition", ["image", "window"])
def test_convolutional_em_is_procedure_1_capsule_by_capsule(
    competition: Literal["image", "window"], geometry: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    layer = tc.ConvCapsules(
        2, 3, 4, 4, routing=tc.EMRouting, matrix=True, competition=competition, **geometry
    ).double()
    routing = cast(tc.EMRouting, layer.routing)
    torch.nn.init.normal_(routing.beta_a, std=100)
    torch.nn.init.normal_(routing.beta_u, std=10)
    capsules = grid()
    routed = layer(capsules)
    (_, kw), (sh, sw), (ph, pw) = layer.kernel_size, layer.stride, layer.padding
    for n, rows in enumerate(slow_windows(capsules, layer)):
        gathered = []
        for y, row in enumerate(rows):
            for x, (poses, activations) in enumerate(row):
                window = []
                for slot, (pose, activation) in enumerate(zip(poses, activations, strict=True)):
                    oy, ox, t = slot // 2 // kw, slot // 2 % kw, slot % 2
                    place = (y * sh - ph + oy, x * sw - pw + ox, t)
                    name = place if competition == "image" else (y, x, slot)
                    votes = (pose.reshape(2, 2) @ layer.weight[slot]).reshape(3, 4)
                    window.append((name, votes, float(activation)))
                gathered.append(window)
        expected = slow_em(gathered, 3, routing.beta_a, routing.beta_u, 3)
        poses = torch.stack([pose for pose, _ in expected])
        activations = torch.stack([activation for _, activation in expected])
        torch.testing.assert_close(routed.poses[n].flatten(0, 1), poses, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(
            routed.activations[n].flatten(0, 1), activations, rtol=1e-6, atol=1e-8
        )


def test_the_parents_of_a_child_share_it_over_the_whole_image() -> None:
    layer = tc.ConvCapsules(
        2, 3, 4, 4, kernel_size=3, routing=tc.EMRouting, matrix=True, competition="image"
    ).double()
    capsules = grid(5, 5)
    couplings = layer(capsules).couplings  # [b h' w' (k i) j]
    child = layer.votes(capsules).child
    assert child is not None
    total = torch.zeros(2 * 5 * 5 * 2).double()
    total.index_add_(0, child.flatten(), couplings.sum(-1).flatten())
    torch.testing.assert_close(total, torch.ones_like(total))


ADVERSARIAL = {
    "all equal": (torch.full((2, 6, 3, 4), 0.7), None),
    "all zero": (torch.zeros(2, 6, 3, 4), None),
    "one huge": (torch.full((2, 6, 3, 4), 0.1).index_fill(1, torch.tensor(0), 1e8), None),
    "one parent huge": (torch.full((2, 6, 3, 4), 0.1).index_fill(2, torch.tensor(0), 1e8), None),
    "far apart": (1e4 * torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0)), None),
    "nobody active": (torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0)), 0.0),
    "everybody active": (torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0)), 1.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_ten_iterations_on_adversarial_votes_stay_finite(name: str, dtype: torch.dtype) -> None:
    values, level = ADVERSARIAL[name]
    votes = values.detach().to(dtype, copy=True).requires_grad_()
    activations = torch.full((2, 6), 0.5) if level is None else torch.full((2, 6), level)
    activations[0, 0], activations[0, 1] = 0.0, 1.0
    if level == 0.0:
        activations.zero_()
    activations = activations.to(dtype).requires_grad_()
    beta_a, beta_u = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    routed = tc.em_routing(votes, activations, beta_a=beta_a, beta_u=beta_u, iterations=10)
    for tensor in routed:
        assert tensor.isfinite().all()
        assert tensor.dtype == dtype
    torch.testing.assert_close(routed.couplings.sum(-1), torch.ones(2, 6, dtype=dtype))
    (routed.poses.sum() + routed.activations.sum() + routed.couplings.square().sum()).backward()
    for tensor in (votes, activations, beta_a, beta_u):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [1e4, 1e6, 1e8])
def test_one_huge_child_among_others_stays_finite(size: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randn(2, 6, 3, 4, generator=generator)
    votes[:, 0] *= size
    activations = torch.rand(2, 6, generator=generator)
    activations[0, 0] = 0
    inputs = (votes.requires_grad_(), activations.requires_grad_())
    routed = tc.em_routing(*inputs, beta_a=0.0, beta_u=0.0, iterations=10)
    assert all(bool(x.isfinite().all()) for x in routed)
    (routed.poses.sum() + routed.activations.sum() + routed.couplings.square().sum()).backward()
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in inputs)


def test_a_parent_whose_children_agree_is_more_active() -> None:
    agree = torch.full((1, 8, 1, 4), 0.5)
    differ = torch.linspace(-2, 2, 8).reshape(1, 8, 1, 1).expand(1, 8, 1, 4)
    routed = tc.em_routing(
        torch.cat([agree, differ], dim=2), torch.ones(1, 8), beta_a=0.0, beta_u=0.0
    )
    assert routed.activations[0, 0] > routed.activations[0, 1]


def test_hintons_network_pads_nothing_and_gritzmans_does() -> None:
    images = torch.rand(1, 2, 32, 32, generator=torch.Generator().manual_seed(0))
    network = tc.EMCapsNet((2, 32, 32), 5, widths=(2, 2, 2), iterations=1)
    first, second, _ = network(images, couplings=True).couplings
    assert first.shape[1:3] == (6, 6)  # of 14x14 features
    assert second.shape[1:3] == (4, 4)
    small = cast(tc.EMCapsNet, tc.build("hinton2018/smallnorb-small"))
    assert small.backbone.output_size(32, 32) == (16, 16)
