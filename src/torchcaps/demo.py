"""The shortest honest demonstration: six routings learn which parts go where.

Every picture holds the same four parts: a disc, a ring, a bar and a cross. Only their arrangement,
turned, scaled and moved at random, tells the classes apart, so that counting parts is worth
nothing and agreeing on where the whole is, is worth everything.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.routing import RoutingFactory

__all__ = ["CONTENDERS", "Contender", "PartsNetwork", "Result", "arrangements", "train"]

SIZE = 28
ORDERS = torch.tensor(
    [[0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [2, 3, 0, 1], [3, 1, 0, 2], [1, 2, 3, 0]]
)
"""Class -> which part is at which corner of the whole."""


def arrangements(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw n pictures ``[n 1 28 28]`` between 0 and 1, and their classes ``[n]``."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=generator)

    labels = torch.randint(len(ORDERS), (n,), generator=generator)
    angle, scale = uniform(-0.6, 0.6), uniform(0.8, 1.15)
    centre = torch.stack([uniform(-3, 3), uniform(-3, 3)], dim=-1)
    axis = torch.arange(SIZE) - (SIZE - 1) / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    points = torch.stack([y, x], dim=-1) - centre[:, None, None]  # [n h w 2]
    cos, sin = angle.cos() / scale, angle.sin() / scale
    turn = torch.stack([cos, -sin, sin, cos], dim=-1).reshape(n, 2, 2)
    points = torch.einsum("nhwc,ncd->nhwd", points, turn)  # in the frame of the whole
    corners = 5.5 * torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1]])
    places = torch.zeros(n, 4, 2)
    places.scatter_(1, ORDERS[labels][..., None].expand(-1, -1, 2), corners.expand(n, -1, -1))
    y, x = (points[:, None] - places[:, :, None, None]).unbind(-1)  # [n part h w]
    radius = (y.square() + x.square()).sqrt()
    bar = torch.maximum(y.abs() - 0.8, x.abs() - 3.5)
    post = torch.maximum(x.abs() - 0.8, y.abs() - 3.5)
    distances = torch.stack(
        [
            radius[:, 0] - 3,
            (radius[:, 1] - 2.8).abs() - 0.8,
            bar[:, 2],
            torch.minimum(bar[:, 3], post[:, 3]),
        ]
    )
    images = (0.5 - distances.amin(dim=0)).clamp(0, 1)[:, None]
    noise = 0.1 * torch.randn(images.shape, generator=generator)
    return (images + noise).clamp(0, 1), labels


class PartsNetwork(nn.Module):
    """Two convolutions, primary capsules and one capsule per class."""

    def __init__(self, contender: "Contender") -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()
        )
        self.primary = tc.PrimaryCapsules(
            32, 8, 8, kernel_size=3, stride=2, nonlinearity=contender.nonlinearity, activations=True
        )
        self.classes: tc.LinearCapsules | tc.ConvTransformCapsules
        if contender.transform:
            self.classes = tc.ConvTransformCapsules(
                8, len(ORDERS), 8, 16, kernel_size=4, routing=contender.routing
            )
        else:
            self.classes = tc.LinearCapsules(
                4 * 4 * 8, len(ORDERS), 8, 16, routing=contender.routing
            )
        self.classifier = nn.Linear(16, 1) if contender.classifier else None

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes ``[n 6]``."""
        routed = self.classes(self.primary(self.backbone(images)))
        if self.classifier is None:
            return cast(Tensor, routed.activations.flatten(1))
        return cast(Tensor, self.classifier(routed.poses).squeeze(-1))


@dataclass(frozen=True)
class Contender:
    """A routing, with primary capsules, class layer, scores and loss it trains well with here."""

    routing: RoutingFactory
    nonlinearity: Callable[[int, int], nn.Module] = tc.Squash
    loss: Callable[[Tensor, Tensor], Tensor] = tc.margin_loss
    classifier: bool = False
    transform: bool = False


CONTENDERS: dict[str, Contender] = {
    "dynamic (Sabour 2017)": Contender(tc.DynamicRouting),
    "EM (Hinton 2018)": Contender(
        partial(tc.EMRouting, cost_scale=5.0), tc.PoseNorm, partial(tc.spread_loss, margin=0.9)
    ),
    "inverted attention (Tsai 2020)": Contender(
        partial(tc.InvertedAttentionRouting, iterations=2),
        tc.PoseNorm,
        tc.cross_entropy_loss,
        classifier=True,
    ),
    "attention (Choi 2019)": Contender(tc.AttentionRouting, tc.RectifiedActivation, transform=True),
    "pairwise (Zhao 2020)": Contender(tc.PairwiseRouting, loss=tc.cross_entropy_loss),
    "discriminative (Yang 2021)": Contender(tc.DiscriminativeRouting),
}


@dataclass(frozen=True)
class Result:
    """What a network reached on pictures it has not seen."""

    accuracy: float
    parameters: int
    seconds: float


def train(
    contender: Contender,
    *,
    steps: int = 300,
    batch: int = 64,
    seed: int = 0,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> Result:
    """Train on fresh pictures every step, then test on 2,000 others."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    network = PartsNetwork(contender)
    routing = network.classes.routing
    own = list(routing.parameters()) if isinstance(routing, tc.DiscriminativeRouting) else []
    weights = [p for p in network.parameters() if all(p is not q for q in own)]
    optimiser = torch.optim.Adam(weights, lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    ascent = torch.optim.Adam(own, lr=1e-3, maximize=True) if own else None
    for step in range(steps):
        images, labels = arrangements(batch, generator)
        loss = contender.loss(network(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if ascent is not None and isinstance(routing, tc.DiscriminativeRouting):
            with torch.no_grad():
                votes = network.classes.votes(network.primary(network.backbone(images)))
            ascent.zero_grad()
            routing.objective(votes, labels).backward()
            ascent.step()
        progress(step + 1, loss.item())
    images, labels = arrangements(2_000, torch.Generator().manual_seed(seed + 1_000_000))
    with torch.no_grad():
        right = network.eval()(images).argmax(dim=-1) == labels
    parameters = sum(p.numel() for p in network.parameters())
    return Result(right.double().mean().item(), parameters, time.perf_counter() - start)
