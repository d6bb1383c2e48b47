"""What cannot work is answered with one clear sentence."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

import torchcaps as tc
from helpers.routings import ROUTINGS, route
from torchcaps.routing import Sizes

GRID = tc.Capsules(torch.randn(2, 4, 4, 3, 8))

CASES: list[tuple[str, Callable[[], object]]] = [
    ("votes must be [b i j e]", lambda: tc.dynamic_routing(torch.randn(3, 4, 5))),
    ("at least one child", lambda: tc.dynamic_routing(torch.randn(2, 0, 3, 4))),
    ("at least one child", lambda: tc.pairwise_agreement(torch.randn(2, 3, 0, 4))),
    ("iterations must be", lambda: tc.dynamic_routing(torch.randn(1, 2, 3, 4), iterations=0)),
    ("iterations must be", lambda: tc.DynamicRouting(Sizes(2, 3, 8, 4), iterations=cast(Any, 1.5))),
    ("iterations must be", lambda: tc.EMRouting(Sizes(2, 3, 8, 4), iterations=-1)),
    ("iterations must be", lambda: tc.InvertedAttentionRouting(Sizes(2, 3, 8, 4), iterations=0)),
    (
        "one number per child",
        lambda: tc.em_routing(torch.randn(1, 2, 3, 4), torch.ones(1, 3), beta_a=0.0, beta_u=0.0),
    ),
    (
        "one number per child",
        lambda: route(
            tc.InvertedAttentionRouting(Sizes(2, 3, 8, 4), activated=True),
            torch.randn(1, 2, 3, 4),
            torch.ones(1, 1),
        ),
    ),
    (
        "build the layer below with activations",
        lambda: route(tc.EMRouting(Sizes(2, 3, 8, 4)), torch.zeros(1, 2, 3, 4)),
    ),
    (
        "must be [1, 3, 4] for votes",
        lambda: tc.inverted_attention_routing(torch.zeros(1, 2, 3, 4), torch.zeros(1, 3, 5)),
    ),
    (
        "the attention kernel",
        lambda: tc.attention_routing(torch.zeros(1, 2, 3, 4), torch.zeros(3, 2, 4, 3)),
    ),
    (
        "coefficients [3, 2] must be [2, 3]",
        lambda: tc.discriminative_routing(torch.zeros(1, 2, 3, 4), torch.zeros(3, 2)),
    ),
    (
        'penalty must be "l1" or "l2"',
        lambda: tc.DiscriminativeRouting(Sizes(2, 3, 8, 4), penalty=cast(Any, "l3")),
    ),
    (
        "targets [4] do not fit scores [1, 3]",
        lambda: tc.discriminative_objective(
            torch.zeros(1, 2, 3, 4), torch.zeros(2, 3), torch.zeros(4).long(), strength=1.0
        ),
    ),
    (
        "takes no parents",
        lambda: route(
            tc.DynamicRouting(Sizes(2, 3, 8, 4)), torch.zeros(1, 2, 3, 4), None, torch.zeros(1)
        ),
    ),
    ("n_parents must be at least 1", lambda: tc.DynamicRouting(Sizes(2, 0, 8, 4))),
    ("no fused kernel", lambda: tc.AttentionRouting(Sizes(2, 3, 8, 4), implementation="fused")),
    (
        '"auto", "torch" or "fused"',
        lambda: tc.EMRouting(Sizes(2, 3, 8, 4), implementation=cast(Any, "fast")),
    ),
    ("child poses must be [b i d]", lambda: tc.Votes(torch.zeros(2, 3), torch.zeros(3, 2, 4, 4))),
    ("must be [i j q r]", lambda: tc.Votes(torch.zeros(2, 3, 4), torch.zeros(3, 4, 4))),
    ("rows of 3", lambda: tc.Votes(torch.zeros(2, 3, 4), torch.zeros(3, 2, 3, 4))),
    (
        "share the weights of 2 evenly",
        lambda: tc.Votes(torch.zeros(2, 3, 4), torch.zeros(2, 2, 4, 4)),
    ),
    ("a matrix pose is square", lambda: tc.LinearCapsules(4, 3, 8, 8, matrix=True)),
    ("does not divide into them", lambda: tc.LinearCapsules(4, 3, 9, 8, matrix=True)),
    ("n_children must be at least 1", lambda: tc.LinearCapsules(0, 3, 8, 8)),
    ("d_child must be at least 1", lambda: tc.LinearCapsules(4, 3, 0, 8)),
    ("takes 48 children with poses of 4", lambda: tc.LinearCapsules(48, 3, 4, 8)(GRID)),
    ("takes 5 children with poses of 8", lambda: tc.LinearCapsules(5, 3, 8, 8)(GRID)),
    ("kernel_size must be at least 1", lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=0)),
    ("stride must be at least 1", lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=3, stride=0)),
    ("padding must be at least 0", lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=3, padding=-1)),
    ("5x5 does not fit a grid of 4x4", lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=5)(GRID)),
    ("a grid of capsules [b h w 2 8]", lambda: tc.ConvCapsules(2, 2, 8, 8, kernel_size=3)(GRID)),
    (
        "a grid of capsules [b h w 3 8]",
        lambda: tc.ConvTransformCapsules(3, 2, 8, 8, kernel_size=3)(
            tc.Capsules(torch.zeros(2, 48, 8))
        ),
    ),
    (
        'competition="image" is not for InvertedAttentionRouting',
        lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=3, competition="image"),
    ),
    (
        '"window" or "image"',
        lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=3, competition=cast(Any, "all")),
    ),
    (
        "must start with [2, 2, 2]",
        lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=3)(GRID, torch.zeros(2, 3, 3, 2, 8)),
    ),
    ("at least 2 numbers", lambda: tc.ClassCapsules(3, 2, 8, 1, matrix=False)),
    ("n_types must be at least 1", lambda: tc.PrimaryCapsules(3, 0, 8)),
    ("n_types must be a whole number", lambda: tc.PrimaryCapsules(3, cast(Any, True), 8)),
    ("n_classes must be a whole", lambda: tc.CapsuleHead(512, n_classes=cast(Any, 2.5))),
    ("in_channels must be a whole", lambda: tc.CapsuleHead(cast(Any, "512"), n_classes=2)),
    ("d_parent must be a whole", lambda: tc.LinearCapsules(4, 3, 8, cast(Any, 8.0))),
    ("n_children must be a whole", lambda: tc.DynamicRouting(Sizes(cast(Any, None), 3, 8, 4))),
    ("takes features [b 3 h w]", lambda: tc.PrimaryCapsules(3, 2, 8)(torch.zeros(2, 4, 5, 5))),
    (
        "9x9 kernel does not fit features of 5x5",
        lambda: tc.PrimaryCapsules(3, 2, 8, kernel_size=9)(torch.zeros(2, 3, 5, 5)),
    ),
    (
        "pass targets",
        lambda: tc.FullyConnectedDecoder(3, 4, (1, 4, 4))(torch.zeros(2, 3, 4), torch.zeros(2, 3)),
    ),
    (
        "takes poses [b 3 4]",
        lambda: tc.FullyConnectedDecoder(3, 4, (1, 4, 4)).decode(
            torch.zeros(2, 3, 5), torch.zeros(2).long()
        ),
    ),
    (
        "chosen classes must be 2 integers",
        lambda: tc.FullyConnectedDecoder(3, 4, (1, 4, 4)).decode(
            torch.zeros(2, 3, 4), torch.zeros(2, 3)
        ),
    ),
    (
        "must be a routing class",
        lambda: tc.LinearCapsules(6, 3, 8, 8, routing=cast(Any, "dynamic")),
    ),
    (
        "must be a routing class",
        lambda: tc.LinearCapsules(
            6, 3, 8, 8, routing=cast(Any, tc.DynamicRouting(Sizes(6, 3, 8, 8)))
        ),
    ),
    (
        "routing=dynamic_routing cannot be built",
        lambda: tc.LinearCapsules(6, 3, 8, 8, routing=cast(Any, tc.dynamic_routing)),
    ),
    (
        "must build a torchcaps.Routing, not tuple",
        lambda: tc.LinearCapsules(6, 3, 8, 8, routing=cast(Any, lambda *sizes: sizes)),
    ),
    (
        "takes Capsules(poses)",
        lambda: tc.LinearCapsules(6, 3, 8, 8)(cast(Any, torch.zeros(2, 6, 8))),
    ),
    (
        "takes Capsules(poses)",
        lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=3)(cast(Any, torch.zeros(2, 4, 4, 3, 8))),
    ),
    (
        "nonlinearity must be",
        lambda: tc.PrimaryCapsules(3, 2, 8, nonlinearity=cast(Any, tc.squash)),
    ),
    (
        "padding must be a whole number or two",
        lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=3, padding=cast(Any, "same")),
    ),
    (
        "kernel_size must be a whole number or two",
        lambda: tc.ConvCapsules(3, 2, 8, 8, kernel_size=cast(Any, (3, 3, 3))),
    ),
    (
        "image_shape must be (channels, height, width)",
        lambda: tc.FullyConnectedDecoder(3, 4, cast(Any, (28, 28))),
    ),
    ("there is no class 5", lambda: tc.margin_loss(torch.zeros(2, 5), torch.tensor([0, 5]))),
    (
        "there is no class -100",
        lambda: tc.cross_entropy_loss(torch.zeros(1, 5), torch.tensor([-100])),
    ),
    (
        "there is no class 3",
        lambda: tc.FullyConnectedDecoder(3, 4, (1, 4, 4)).decode(
            torch.zeros(1, 3, 4), torch.tensor([3])
        ),
    ),
    (
        "must be one per class pose",
        lambda: tc.FullyConnectedDecoder(3, 4, (1, 4, 4)).eval()(
            torch.zeros(1, 3, 4), torch.zeros(1, 4)
        ),
    ),
    (
        "priors [3] must be [2, 3]",
        lambda: tc.dynamic_routing(torch.zeros(1, 2, 3, 4), priors=torch.zeros(3)),
    ),
    (
        "bias [4] must be [3, 4]",
        lambda: tc.dynamic_routing(torch.zeros(1, 2, 3, 4), bias=torch.zeros(4)),
    ),
    (
        "beta_a [2] must be one number or one per parent",
        lambda: tc.em_routing(
            torch.zeros(1, 2, 3, 4), torch.ones(1, 2), beta_a=torch.zeros(2), beta_u=0.0
        ),
    ),
    (
        "min_variance must be at least 0",
        lambda: tc.em_routing(
            torch.zeros(1, 2, 3, 4), torch.ones(1, 2), beta_a=0.0, beta_u=0.0, min_variance=-1.0
        ),
    ),
    ("votes must be a tensor", lambda: tc.dynamic_routing(cast(Any, [1.0]))),
    (
        "parents must be a tensor",
        lambda: tc.inverted_attention_routing(torch.zeros(1, 2, 3, 4), cast(Any, GRID)),
    ),
    (
        "use local=True",
        lambda: tc.ClassCapsules(
            3, 2, 8, 8, matrix=False, routing=tc.AttentionRouting, local=False
        ),
    ),
    (
        "use ConvCapsules",
        lambda: tc.ConvTransformCapsules(3, 2, 8, 8, kernel_size=3, routing=tc.EMRouting),
    ),
    ("needs at least one entry", lambda: tc.Votes(torch.zeros(2, 3, 4), torch.zeros(0, 2, 4, 4))),
    ("scores must be a tensor", lambda: tc.margin_loss(cast(Any, GRID), torch.zeros(2).long())),
    ("multiples of 4", lambda: tc.DeconvolutionDecoder(3, 4, (1, 30, 28))),
    ("width must be a multiple of 4", lambda: tc.DeconvolutionDecoder(3, 4, (1, 28, 28), width=6)),
    ("at least one class", lambda: tc.FullyConnectedDecoder(0, 4, (1, 28, 28))),
    (
        "targets [3] do not fit scores [2, 5]",
        lambda: tc.margin_loss(torch.zeros(2, 5), torch.zeros(3).long()),
    ),
    ("class numbers must be integers", lambda: tc.margin_loss(torch.zeros(2, 5), torch.zeros(2))),
    (
        "they must be [batch]",
        lambda: tc.spread_loss(torch.zeros(2, 5), torch.zeros(2, 5), margin=0.2),
    ),
    (
        "must have the same shape",
        lambda: tc.reconstruction_loss(torch.zeros(2, 4), torch.zeros(2, 5)),
    ),
    (
        'reduction must be "sum" or "mean"',
        lambda: tc.reconstruction_loss(
            torch.zeros(2, 4), torch.zeros(2, 4), reduction=cast(Any, "max")
        ),
    ),
]


@pytest.mark.parametrize(("sentence", "attempt"), CASES, ids=[sentence for sentence, _ in CASES])
def test_it_is_refused_with_one_sentence(sentence: str, attempt: Callable[[], object]) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        attempt()
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message
    assert len(message) < 220


@pytest.mark.parametrize("name", ROUTINGS)
def test_votes_of_other_sizes_than_the_routing_was_built_for(name: str) -> None:
    routing = ROUTINGS[name](Sizes(6, 3, 8, 4))
    for shape in ((2, 6, 2, 4), (2, 6, 3, 5)):
        with pytest.raises(ValueError, match="was built for 3 parents with poses of 4"):
            route(routing, torch.zeros(shape), torch.zeros(2, 6))


@pytest.mark.parametrize("name", ROUTINGS)
@pytest.mark.parametrize(
    "kind", ["empty batch", "not contiguous", "1e18", "nan", "integers", "float16"]
)
def test_odd_votes_give_a_result_or_a_sentence(name: str, kind: str) -> None:
    torch.manual_seed(0)
    routing = ROUTINGS[name](Sizes(6, 3, 8, 4))
    votes, activations = torch.randn(2, 6, 3, 4), torch.rand(2, 6)
    if kind == "empty batch":
        routed = route(routing, votes[:0], activations[:0])
        assert [tuple(x.shape) for x in routed] == [(0, 3, 4), (0, 3), (0, 6, 3)]
    elif kind == "not contiguous":
        strided = torch.randn(4, 3, 12, 2).permute(3, 2, 1, 0)[:, ::2]
        routed = route(routing, strided, activations)
        expected = route(routing, strided.contiguous(), activations)
        for got, same in zip(routed, expected, strict=True):
            torch.testing.assert_close(got, same)
    elif kind == "1e18":
        routed = route(routing, 1e18 * votes.clamp(-1, 1), activations)
        assert all(bool(x.isfinite().all()) for x in routed)
    elif kind == "nan":
        votes[0, 0, 0, 0] = torch.nan
        routed = route(routing, votes, activations)
        assert routed.poses[0].isnan().any()
        assert routed.poses[1].isfinite().all()
    elif kind == "integers":
        with pytest.raises(ValueError, match="floating point"):
            route(routing, votes.long(), activations)
    else:
        half, weights = votes.half().requires_grad_(), activations.half()
        routed = route(routing.half(), half, weights)
        assert all(bool(x.isfinite().all()) for x in routed)
        routed.poses.sum().backward()
        assert half.grad is not None
        assert half.grad.isfinite().all()


@pytest.mark.parametrize("size", [1e-4, 1e-3, 1.0])
def test_many_agreeing_votes_in_float16(size: float) -> None:
    votes = (size * torch.ones(1, 1152, 3, 16)).half().requires_grad_()
    routed = tc.pairwise_agreement(votes)
    assert all(bool(x.isfinite().all()) for x in routed)
    routed.activations.sum().backward()
    assert votes.grad is not None
    assert votes.grad.isfinite().all()
