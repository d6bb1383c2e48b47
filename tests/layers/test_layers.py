"""Layers: shapes, sizes of every kind, chaining, compilation, saving, and the decoders."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

import torchcaps as tc
from helpers.networks.published import SmallNetwork
from helpers.routings import ROUTINGS, route
from torchcaps.routing import Sizes

size = st.integers(1, 5)


USES_ACTIVATIONS = ("em", "em-1", "em-scaled", "inverted-attention-c")


@pytest.mark.parametrize("name", ROUTINGS)
def test_layers_chain_train_compile_and_save(name: str) -> None:
    torch.manual_seed(0)
    network = SmallNetwork(ROUTINGS[name])
    images = torch.randn(3, 3, 6, 6)
    routed = network(images)
    assert [tuple(x.shape) for x in routed] == [(3, 5, 4), (3, 5), (3, 8, 5)]
    (routed.poses.square().sum() + routed.activations.square().sum()).backward()
    for parameter_name, parameter in network.named_parameters():
        if "activation_conv" in parameter_name and name not in USES_ACTIVATIONS:
            continue
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
    other = SmallNetwork(ROUTINGS[name])
    other.load_state_dict(network.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(other(images), routed, strict=True))
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    for got, expected in zip(compiled(images), routed, strict=True):
        torch.testing.assert_close(got, expected)
    alone = network(images[:1])
    torch.testing.assert_close(alone.poses, routed.poses[:1])


@pytest.mark.parametrize("name", ROUTINGS)
def test_layers_run_in_bfloat16_and_under_autocast(name: str) -> None:
    torch.manual_seed(0)
    network = SmallNetwork(ROUTINGS[name])
    images = torch.randn(2, 3, 6, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        routed = network(images)
    assert all(bool(x.isfinite().all()) for x in routed)
    routed.poses.float().sum().backward()
    routed = copy.deepcopy(network).bfloat16()(images.bfloat16())
    assert all(x.dtype == torch.bfloat16 and bool(x.isfinite().all()) for x in routed)


@pytest.mark.parametrize("name", ROUTINGS)
def test_layers_are_not_tied_to_a_device(name: str) -> None:
    with torch.device("meta"):
        network = SmallNetwork(ROUTINGS[name])
        routed = network(torch.empty(2, 3, 6, 6))
        last = tc.ClassCapsules(2, 5, 4, 4, routing=tc.EMRouting)
        conv = tc.ConvCapsules(
            3, 2, 4, 4, kernel_size=3, routing=tc.EMRouting, matrix=True, competition="image"
        )
        scores = last(conv(network.primary(torch.empty(2, 3, 6, 6))))
        decoder = tc.FullyConnectedDecoder(5, 4, (1, 8, 8))
        images = decoder(routed.poses, routed.activations, torch.zeros(2, dtype=torch.long))
    assert {x.device.type for x in (*routed, *scores, images)} == {"meta"}


@settings(deadline=None, max_examples=40)
@given(
    b=size, height=st.integers(3, 9), width=st.integers(3, 9), channels=size, types=size,
    d=size, parents=size, e=size, kernel=st.integers(1, 3), stride=st.integers(1, 3),
    padding=st.integers(0, 2), name=st.sampled_from(sorted(ROUTINGS)),
)  # fmt: skip
def test_any_size_that_makes_sense_works(
    b: int, height: int, width: int, channels: int, types: int, d: int, parents: int, e: int,
    kernel: int, stride: int, padding: int, name: str,
) -> None:  # fmt: skip
    primary = tc.PrimaryCapsules(channels, types, d, activations=True)
    geometry: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "padding": padding}
    conv = tc.ConvCapsules(types, parents, d, e, routing=ROUTINGS[name], **geometry)
    transform = tc.ConvTransformCapsules(types, parents, d, e, **geometry)
    capsules = primary(torch.randn(b, channels, height, width))
    grid = (
        (height + 2 * padding - kernel) // stride + 1,
        (width + 2 * padding - kernel) // stride + 1,
    )
    routed = conv(capsules)
    assert routed.poses.shape == (b, *grid, parents, e)
    assert routed.activations.shape == (b, *grid, parents)
    assert routed.couplings.shape == (b, *grid, kernel**2 * types, parents)
    assert transform(capsules).couplings.shape == (b, *grid, types, parents)
    n_children = grid[0] * grid[1] * parents
    linear = tc.LinearCapsules(n_children, 3, e, 2, routing=ROUTINGS[name])
    routed = linear(routed)
    assert routed.poses.shape == (b, 3, 2)
    assert all(bool(x.isfinite().all()) for x in routed)


@pytest.mark.parametrize("name", ROUTINGS)
def test_an_empty_batch_gives_an_empty_result(name: str) -> None:
    network = SmallNetwork(ROUTINGS[name])
    assert [x.shape[0] for x in network(torch.zeros(0, 3, 6, 6))] == [0, 0, 0]
    head = tc.ClassCapsules(3, 2, 4, 4, routing=ROUTINGS[name])
    grid = tc.Capsules(torch.zeros(0, 2, 2, 3, 4), torch.zeros(0, 2, 2, 3))
    assert head(grid).poses.shape == (0, 2, 4)
    norm = tc.LinearCapsules(3, 2, 4, 4, routing=ROUTINGS[name], vote_norm=tc.VoteNorm)
    row = tc.Capsules(torch.zeros(0, 3, 4), torch.zeros(0, 3))
    assert norm(row).poses.shape == (0, 2, 4)
    assert norm.vote_norm is not None
    assert norm.vote_norm.running_mean.isfinite().all()


def test_local_class_capsules_are_the_mean_over_positions() -> None:
    torch.manual_seed(0)
    layer = tc.ClassCapsules(3, 2, 4, 4, routing=tc.AttentionRouting)
    assert layer.local
    poses = torch.randn(2, 2, 3, 3, 4)
    routed = layer(tc.Capsules(poses))
    here = [
        route(layer.routing, tc.Votes(poses[:, y, x], layer.weight))
        for y in range(2)
        for x in range(3)
    ]
    torch.testing.assert_close(routed.poses, torch.stack([r.poses for r in here]).mean(0))
    torch.testing.assert_close(
        routed.activations, torch.stack([r.activations for r in here]).mean(0)
    )
    assert routed.couplings.shape == (2, 18, 2)
    torch.testing.assert_close(routed.couplings.sum(1), torch.ones(2, 2))


def test_learning_starts_from_the_documented_scales() -> None:
    torch.manual_seed(0)
    linear = tc.LinearCapsules(64, 10, 16, 16, matrix=True)
    assert linear.weight.std().item() == pytest.approx((10 / (4 * 64)) ** 0.5, rel=0.02)
    vector = tc.LinearCapsules(64, 10, 8, 16, weight_std=0.1)
    assert vector.weight.std().item() == pytest.approx(0.1, rel=0.02)
    transform = tc.ConvTransformCapsules(8, 8, 16, 32, kernel_size=3)
    assert transform.weight.std().item() == pytest.approx((9 * 16) ** -0.5, rel=0.02)
    attention = tc.AttentionRouting(Sizes(8, 10, 8, 16))
    fan = 8 * 16
    assert attention.weight.abs().max().item() == pytest.approx((6 / (fan * 11)) ** 0.5, rel=0.01)
    activation = tc.CapsuleActivation(20, 16)
    assert activation.weight.abs().max().item() == pytest.approx((6 / 32) ** 0.5, rel=0.01)
    biased = tc.DynamicRouting(Sizes(4, 3, 8, 2), bias=True, learned_priors=True)
    assert biased.bias is not None
    assert biased.priors is not None
    assert torch.equal(biased.bias, torch.full((3, 2), 0.1))
    assert torch.equal(biased.priors, torch.zeros(4, 3))
    assert tc.DiscriminativeRouting(Sizes(4, 3, 8, 2)).strength == 1e-3
    choi = tc.ARCapsNet((1, 28, 28), 10)
    keras = (2 / (9 * (16 + 8 * 32 * 8))) ** 0.5
    assert cast(Any, choi.layers[0]).weight.std().item() == pytest.approx(keras, rel=0.02)


def test_a_pose_of_one_number_is_not_normalized_away() -> None:
    layer = tc.PrimaryCapsules(3, 4, 1, nonlinearity=tc.PoseNorm)
    poses = layer(torch.randn(2, 3, 5, 5)).poses
    assert poses.std() > 0


def test_votes_with_a_bias_keep_the_precision_of_autocast() -> None:
    layer = tc.ConvTransformCapsules(2, 3, 4, 4, kernel_size=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        dense = layer.votes(tc.Capsules(torch.randn(1, 2, 2, 2, 4))).dense()
    assert dense.dtype == torch.bfloat16


def test_concurrent_routing_is_a_call_per_layer_and_iteration() -> None:
    torch.manual_seed(0)
    routing = tc.InvertedAttentionRouting
    conv = tc.ConvCapsules(2, 3, 4, 4, kernel_size=2, routing=routing, matrix=True)
    last = tc.LinearCapsules(2 * 2 * 3, 5, 4, 4, routing=routing, matrix=True)
    primary = tc.Capsules(torch.randn(2, 3, 3, 2, 4))
    middle = conv(primary)
    final = last(middle)
    middle, final = conv(primary, middle.poses), last(middle, final.poses)
    repeated = tc.ConvCapsules(
        2, 3, 4, 4, kernel_size=2, routing=partial(routing, iterations=2), matrix=True
    )
    repeated.load_state_dict(conv.state_dict())
    for got, expected in zip(repeated(primary), middle, strict=True):
        torch.testing.assert_close(got, expected)
    assert final.poses.shape == (2, 5, 4)


def test_class_capsules_share_weights_and_add_coordinates() -> None:
    torch.manual_seed(0)
    layer = tc.ClassCapsules(2, 3, 4, 4)
    poses = torch.randn(1, 1, 1, 2, 4).expand(1, 2, 5, 2, 4)
    dense = layer.votes(tc.Capsules(poses)).dense().reshape(2, 5, 2, 3, 2, 2)  # h w i j p q
    plain = tc.Votes(poses.flatten(1, 3), layer.weight).dense().reshape(2, 5, 2, 3, 2, 2)
    added = dense - plain
    torch.testing.assert_close(added[..., 0], torch.zeros_like(added[..., 0]))
    rows = torch.tensor([0.25, 0.75]).reshape(2, 1, 1, 1).expand(2, 5, 2, 3)
    columns = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9]).reshape(1, 5, 1, 1).expand(2, 5, 2, 3)
    torch.testing.assert_close(added[..., 0, 1], rows)
    torch.testing.assert_close(added[..., 1, 1], columns)
    vector = tc.ClassCapsules(2, 3, 4, 6, matrix=False)
    bias = vector.votes(tc.Capsules(poses)).bias
    assert bias is not None
    assert bias[-1, 0].tolist() == pytest.approx([0.75, 0.9, 0, 0, 0, 0])
    activations = torch.rand(1, 2, 5, 2)
    assert layer(tc.Capsules(poses, activations)).poses.shape == (1, 3, 4)
    assert sum(p.numel() for p in layer.parameters()) == 2 * 3 * 4 + 2 * 3


def test_primary_nonlinearities() -> None:
    torch.manual_seed(0)
    features = torch.randn(2, 8, 5, 5)
    make = partial(tc.PrimaryCapsules, 8, 3, 4)
    raw = make(nonlinearity=None)
    state = raw.state_dict()
    expected: list[tuple[Any, Callable[[Tensor], Tensor]]] = [
        (tc.Squash, tc.squash),
        (tc.PoseNorm, nn.LayerNorm(4)),
    ]
    for kind, function in expected:
        layer = make(nonlinearity=kind)
        layer.load_state_dict(state, strict=False)
        torch.testing.assert_close(layer(features).poses, function(raw(features).poses))
    layer = make(nonlinearity=tc.RectifiedActivation)
    layer.load_state_dict(state, strict=False)
    activation = cast(tc.CapsuleActivation, layer.nonlinearity.activation)
    rectified = raw(features).poses.relu()
    for t in range(3):
        mapped = torch.tanh(rectified[..., t, :] @ activation.weight[t] + activation.bias[t])
        torch.testing.assert_close(layer(features).poses[..., t, :], mapped)
    assert raw(features).activations is None
    with_activations = make(activations=True, batch_norm=True)(features).activations
    assert with_activations.shape == (2, 5, 5, 3)
    assert ((with_activations > 0) & (with_activations < 1)).all()


def test_vote_norm_in_layers() -> None:
    torch.manual_seed(0)
    layer = tc.LinearCapsules(
        6, 3, 4, 4, routing=tc.PairwiseRouting, matrix=True, vote_norm=tc.VoteNorm
    )
    capsules = tc.Capsules(5 + 3 * torch.randn(16, 6, 4))
    dense = layer.votes(capsules).dense()
    assert dense.mean(dim=(0, 1, 2)).abs().max() < 1e-5
    torch.testing.assert_close(dense.std(dim=(0, 1, 2)), torch.ones(4), atol=1e-2, rtol=0)
    conv = tc.ConvCapsules(
        2, 3, 4, 4, kernel_size=2, routing=tc.PairwiseRouting,
        vote_norm=partial(tc.VoteNorm, per="capsule"),
    )  # fmt: skip
    assert conv.vote_norm is not None
    assert conv.vote_norm.weight.shape == (8, 3, 4)
    assert conv(tc.Capsules(torch.randn(2, 3, 3, 2, 4))).poses.isfinite().all()


@pytest.mark.parametrize(
    "decoder",
    [
        tc.FullyConnectedDecoder(3, 4, (2, 5, 7), hidden=(8, 9)),
        tc.FullyConnectedDecoder(3, 4, (1, 4, 4), hidden=()),
        tc.DeconvolutionDecoder(3, 4, (1, 8, 12), width=8),
    ],
    ids=lambda decoder: type(decoder).__name__,
)
def test_decoders_follow_the_label_in_training_and_the_prediction_at_test(
    decoder: tc.Decoder,
) -> None:
    torch.manual_seed(0)
    poses, scores = torch.randn(4, 3, 4), torch.tensor([[0.1, 0.9, 0.2]]).repeat(4, 1)
    labels = torch.tensor([0, 1, 2, 2])
    decoder.train()
    trained = decoder(poses, scores, labels)
    assert trained.shape == (4, *decoder.image_shape)
    assert ((trained >= 0) & (trained <= 1)).all()
    torch.testing.assert_close(trained, decoder.decode(poses, labels))
    decoder.eval()
    predicted = torch.ones(4, dtype=torch.long)
    assert torch.equal(decoder(poses, scores, labels), decoder.decode(poses, predicted))
    assert torch.equal(decoder(poses, scores), decoder.decode(poses, predicted))
    # Only the chosen capsule is seen, at test and in training.
    other = poses.clone()
    other[:, [0, 2]] = torch.randn(4, 2, 4)
    assert torch.equal(decoder(poses, scores), decoder(other, scores))
    poses.requires_grad_()
    (gradient,) = torch.autograd.grad(decoder.decode(poses, labels).square().sum(), poses)
    chosen = torch.zeros(4, 3).scatter(1, labels[:, None], 1).bool()
    assert (gradient[~chosen] == 0).all()
    assert (gradient[chosen] != 0).any()


def test_decoder_sizes_are_the_papers() -> None:
    sabour = tc.FullyConnectedDecoder(10, 16, (1, 28, 28))
    assert sum(p.numel() for p in sabour.parameters()) == 1_411_344
    zhao = tc.DeconvolutionDecoder(10, 16, (1, 40, 40))
    assert sum(p.numel() for p in zhao.parameters()) == 186_145
    floats = [x for x in zhao.state_dict().values() if x.is_floating_point()]
    assert sum(x.numel() for x in floats) == 199_041


def test_layer_sizes_are_the_papers() -> None:
    # Sabour, MNIST: 1152 children of 8, 10 parents of 16, one bias per entry of a parent.
    sabour = tc.LinearCapsules(1152, 10, 8, 16, routing=partial(tc.DynamicRouting, bias=True))
    assert sum(p.numel() for p in sabour.parameters()) == 1_474_560 + 160
    # Yang, MNIST: 11,520 coefficients more than the weights.
    yang = tc.DiscriminativeRouting(Sizes(1152, 10, 8, 16))
    assert sum(p.numel() for p in yang.parameters()) == 11_520
    # Tsai, CIFAR-10: 3x3 windows over 32 types of 4x4 poses, one LayerNorm.
    tsai = tc.ConvCapsules(32, 32, 16, 16, kernel_size=3, matrix=True)
    assert sum(p.numel() for p in tsai.parameters()) == 9 * 32 * 32 * 16 + 32
    # Choi, MNIST conv caps: 8 channels of 16 to 8 of 32.
    choi = tc.ConvTransformCapsules(8, 8, 16, 32, kernel_size=3, stride=2, padding=1)
    transform, attention = 9 * 16 * 8 * 8 * 32 + 8 * 8 * 32, 8 * 8 * 32 * 8
    assert sum(p.numel() for p in choi.parameters()) == transform + attention + 8 * (32 * 32 + 32)


@pytest.mark.parametrize(("leaky", "shares"), [(False, 3), (True, 4)])
def test_coupled_primary_capsules_are_one_pass_of_equal_couplings(leaky: bool, shares: int) -> None:
    torch.manual_seed(0)
    layer = tc.PrimaryCapsules(2, 3, 4, nonlinearity=None, coupled=True, leaky=leaky)
    votes = torch.randn(1, 2)  # what the two channels say at one place
    summed = votes @ layer.pose_conv.weight.flatten(1).T
    expected = summed / shares + 0.1  # the bias of the authors' code
    torch.testing.assert_close(layer(votes[..., None, None]).poses.flatten(1), expected)
