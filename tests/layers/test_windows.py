"""Capsule windows are a true convolution."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import torchcaps as tc
from helpers.networks.windows import GEOMETRIES, grid, slow_windows
from helpers.routings import ROUTINGS, route
from torchcaps.layers.windows import same_child
from torchcaps.tensors import windows
from torchcaps.votes import Votes


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("name", ["dynamic", "em", "inverted-attention-3", "attention", "pairwise"])
def test_a_capsule_convolution_is_a_slow_loop_over_positions(
    name: str, matrix: bool, geometry: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    layer = tc.ConvCapsules(
        2, 3, 4, 4, routing=ROUTINGS[name], matrix=matrix, competition="window", **geometry
    ).double()
    capsules = grid()
    routed = layer(capsules)
    loops = slow_windows(capsules, layer)
    assert routed.poses.shape[:3] == (2, len(loops[0]), len(loops[0][0]))
    for n, rows in enumerate(loops):
        for y, row in enumerate(rows):
            for x, (poses, activations) in enumerate(row):
                votes = []
                for i, pose in enumerate(poses):
                    for weight in layer.weight[i]:
                        pose_matrix = pose.reshape(2, 2) if matrix else pose.reshape(1, 4)
                        votes.append((pose_matrix @ weight).reshape(4))
                dense = torch.stack(votes).reshape(1, len(poses), 3, 4)
                expected = route(layer.routing, dense, activations[None])
                for got, one in zip(routed, expected, strict=True):
                    torch.testing.assert_close(got[n, y, x], one[0])


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_with_uniform_couplings_it_is_torch_conv2d(geometry: dict[str, Any]) -> None:
    layer = tc.ConvCapsules(
        2, 3, 4, 5, routing=partial(tc.InvertedAttentionRouting, layer_norm=False), **geometry
    ).double()
    capsules = grid(6, 7)
    kh, kw = layer.kernel_size
    kernel = layer.weight.reshape(kh, kw, 2, 3, 4, 5).permute(3, 5, 2, 4, 0, 1)
    features = capsules.poses.permute(0, 3, 4, 1, 2).flatten(1, 2)
    expected = F.conv2d(
        features, kernel.reshape(15, 8, kh, kw), stride=layer.stride, padding=layer.padding
    )
    expected = expected.unflatten(1, (3, 5)).permute(0, 3, 4, 1, 2) / 3
    torch.testing.assert_close(layer(capsules).poses, expected)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_the_convolutional_transform_is_a_convolution_per_child_type(
    geometry: dict[str, Any],
) -> None:
    layer = tc.ConvTransformCapsules(2, 3, 4, 5, **geometry).double()
    assert layer.bias is not None
    torch.nn.init.normal_(layer.bias)
    capsules = grid(6, 7)
    kh, kw = layer.kernel_size
    votes = []
    for t in range(2):
        kernel = layer.weight[t].reshape(3, kh, kw, 4, 5).permute(0, 4, 3, 1, 2).flatten(0, 1)
        votes.append(
            F.conv2d(
                capsules.poses[..., t, :].permute(0, 3, 1, 2),
                kernel,
                layer.bias[t].flatten(),
                stride=layer.stride,
                padding=layer.padding,
            )
        )
    dense = torch.stack(votes, 1).unflatten(2, (3, 5)).permute(0, 4, 5, 1, 2, 3)  # [b h w i j e]
    routed = layer(capsules)
    expected = route(layer.routing, dense.flatten(0, 2))
    for got, flat in zip(routed, expected, strict=True):
        torch.testing.assert_close(got.flatten(0, 2), flat)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_the_grouped_convolution_casts_the_votes_of_copied_windows(
    geometry: dict[str, Any], bias: bool
) -> None:
    layer = tc.ConvTransformCapsules(2, 3, 4, 5, bias=bias, **geometry).double()
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    poses = grid(6, 7).poses.requires_grad_()
    leaves = [p for p in (poses, layer.weight, layer.bias) if p is not None]
    cast, plain = layer.convolved(tc.Capsules(poses)), layer.votes(tc.Capsules(poses)).dense()
    torch.testing.assert_close(cast, plain)
    towards = torch.randn_like(plain)
    got, expected = (torch.autograd.grad(votes, leaves, towards) for votes in (cast, plain))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(("kernel_size", "copies"), [(3, False), ((6, 7), True)])
def test_only_a_window_of_the_whole_grid_is_copied(
    kernel_size: int | tuple[int, int], copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = tc.ConvTransformCapsules(2, 3, 4, 5, kernel_size=kernel_size).double()
    cut: list[tc.Capsules] = []
    votes = layer.votes

    def watched(children: tc.Capsules) -> Votes:
        cut.append(children)
        return votes(children)

    monkeypatch.setattr(layer, "votes", watched)
    layer(grid(6, 7))
    assert bool(cut) == copies


def moved(capsules: tc.Capsules) -> tc.Capsules:
    """The same capsules one row further down and two columns to the right, wrapped around."""
    return tc.Capsules(*(x.roll((1, 2), dims=(1, 2)) for x in capsules if x is not None))


@pytest.mark.parametrize("name", ROUTINGS)
def test_interior_parents_move_with_the_children(name: str) -> None:
    layer = tc.ConvCapsules(
        2, 3, 4, 4, kernel_size=3, routing=ROUTINGS[name], matrix=True, competition="window"
    ).double()
    capsules = grid(7, 7)
    for before, after in zip(layer(capsules), layer(moved(capsules)), strict=True):
        torch.testing.assert_close(before[:, :-1, :-2], after[:, 1:, 2:])


def test_interior_parents_move_with_the_children_if_the_image_competes() -> None:
    # Children next to the border have fewer parents, so the 2 outermost rings of parents start
    # from other couplings; each of two E-steps carries that 2 positions further.
    layer = tc.ConvCapsules(
        2, 3, 4, 4, kernel_size=3, routing=tc.EMRouting, matrix=True, competition="image"
    ).double()
    capsules = grid(20, 20)
    for before, after in zip(layer(capsules), layer(moved(capsules)), strict=True):
        torch.testing.assert_close(before[:, 6:11, 6:10], after[:, 7:12, 8:12])
        assert not torch.allclose(before[:, :1, :1], after[:, 1:2, 2:3], rtol=1e-9, atol=0)


def test_windows_follow_rows_then_columns() -> None:
    image = torch.arange(20.0).reshape(1, 4, 5, 1)
    got = windows(image, (2, 3), (2, 1), (0, 0))
    assert got.shape == (1, 2, 3, 6, 1)
    assert got[0, 1, 2, :, 0].tolist() == [12, 13, 14, 17, 18, 19]


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_slots_of_one_child_share_a_number(stride: int) -> None:
    places = torch.arange(2 * 9 * 8 * 2).reshape(2, 9, 8, 2)
    shown = windows(places, (3, 3), (stride, stride), (0, 0))
    size = (2, shown.shape[1], shown.shape[2])
    numbers = same_child(size, (3, 3), (stride, stride), 2, torch.device("cpu"))
    if stride >= 3:
        assert numbers is None
        assert shown.unique().numel() == shown.numel()
        return
    assert numbers is not None
    assert numbers.max() < numbers.numel()
    pairs = {
        (a, b) for a, b in zip(shown.flatten().tolist(), numbers.flatten().tolist(), strict=True)
    }
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@pytest.mark.parametrize("size", [(3, 3), (2, 4), (6, 7), (1, 1)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
def test_compiled_windows_are_the_same_and_so_are_their_gradients(
    size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> None:
    def cut(grid: Tensor) -> Tensor:
        return windows(grid, size, stride, padding)

    grid = torch.randn(2, 6, 7, 3, 4, dtype=torch.float64, requires_grad=True)
    expected, got = cut(grid), torch.compile(cut, backend="aot_eager", fullgraph=True)(grid)
    assert torch.equal(got, expected)
    towards = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(one, grid, towards)[0] for one in (got, expected))
    torch.testing.assert_close(ours, theirs)
