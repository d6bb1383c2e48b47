"""Wrong and odd tensors into every routing: a result of the right shape or one sentence."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import torchcaps as tc
from helpers.routings import ROUTINGS, route
from torchcaps.routing import RoutingFactory, Sizes

N, CHILDREN, PARENTS, POSE, CHILD_POSE = 2, 8, 3, 4, 4
NAMES = ("dynamic", "em", "inverted-attention", "attention", "pairwise", "discriminative")
Odd = Callable[[Tensor], Tensor]


def trials(first: int, count: int) -> Iterator[str]:
    """Every routing times every oddity, on votes, then in a linear and a convolutional layer."""
    cases = [(place, name, kind) for place in PLACES for name in NAMES for kind in ODDITIES]
    for number in range(first, first + count):
        place, name, kind = cases[number % len(cases)]
        torch.manual_seed(number)
        try:
            PLACES[place](name, kind)
            yield ""
        except AssertionError as error:
            yield f"{place}, {name}, {kind}: {error}"


def one(x: Tensor, value: float) -> Tensor:
    """One wrong number in the first sample."""
    x = x.clone()
    x.view(-1)[0] = value
    return x


ODDITIES: dict[str, Odd] = {
    "empty batch": lambda x: x[:0],
    "batch of one": lambda x: x[:1],
    "not contiguous": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "one number everywhere": lambda x: x[:1, :1].expand_as(x),
    "zeros": torch.zeros_like,
    "smaller than float32": lambda x: x * 1e-42,
    "1e30": lambda x: x.sign() * 1e30,
    "nan": lambda x: one(x, torch.nan),
    "inf": lambda x: one(x, torch.inf),
    "whole numbers": lambda x: x.long(),
    "truth values": lambda x: x > 0,
    "complex numbers": lambda x: x.to(torch.complex64),
    "an axis too few": lambda x: x[0],
    "an axis too many": lambda x: x[None],
    "no children": lambda x: x[:, :0],
    "one child": lambda x: x[:, :1],
    "float64": lambda x: x.double(),
    "another device": lambda x: x.to("meta"),
}
FINITE = (
    "batch of one",
    "not contiguous",
    "one number everywhere",
    "zeros",
    "smaller than float32",
)


def votes(name: str, kind: str) -> None:
    """Votes straight into the routing."""
    routing = ROUTINGS[name](Sizes(CHILDREN, PARENTS, CHILD_POSE, POSE))
    odd = ODDITIES[kind](torch.randn(N, CHILDREN, PARENTS, POSE))
    activations = torch.rand(odd.shape[:2] if odd.ndim > 1 else (N,))
    judge(lambda: route(routing, odd, activations), odd, kind, (PARENTS, POSE))


def linear(name: str, kind: str) -> None:
    """Child poses into a linear layer."""
    layer = tc.LinearCapsules(CHILDREN, PARENTS, CHILD_POSE, POSE, routing=factory(name))
    odd = ODDITIES[kind](torch.randn(N, CHILDREN, CHILD_POSE))
    activations = torch.rand(odd.shape[:-1])
    judge(lambda: layer(tc.Capsules(odd, activations)), odd, kind, (PARENTS, POSE))


def conv(name: str, kind: str) -> None:
    """A grid of child poses into a convolutional layer."""
    layer = tc.ConvCapsules(2, PARENTS, CHILD_POSE, POSE, kernel_size=3, routing=factory(name))
    odd = ODDITIES[kind](torch.randn(N, 4, 4, 2, CHILD_POSE))
    activations = torch.rand(odd.shape[:-1])
    judge(lambda: layer(tc.Capsules(odd, activations)), odd, kind, (2, 2, PARENTS, POSE))


def factory(name: str) -> RoutingFactory:
    return ROUTINGS[name]


def judge(
    attempt: Callable[[], tuple[Tensor | None, ...]], odd: Tensor, kind: str, shape: tuple[int, ...]
) -> None:
    """Assert a result of the right shape, finite where it can be, or one sentence."""
    try:
        found = attempt()
    except ValueError as error:
        message = str(error)
        assert kind not in FINITE, f"refused: {message}"
        assert message, "an empty message"
        assert "\n" not in message, f"more than a sentence: {message}"
        assert len(message) < 220, f"a long message: {message}"
        return
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    poses = found[0]
    assert poses is not None
    assert tuple(poses.shape) == (len(odd), *shape), f"a result of shape {list(poses.shape)}"
    assert poses.is_floating_point(), f"a result of {poses.dtype}"
    if kind in FINITE:
        assert poses.isfinite().all(), "a result that is not finite"
    elif kind in ("nan", "inf"):
        assert poses[1:].isfinite().all(), "one sample spoils another"


PLACES = {"votes": votes, "linear": linear, "conv": conv}
