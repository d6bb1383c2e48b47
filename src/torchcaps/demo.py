"""The shortest honest demonstration: six routings learn to read digits drawn by `strokes`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.data import Batches, Strokes
from torchcaps.routing import RoutingFactory

__all__ = ["CONTENDERS", "Contender", "Result", "SmallCapsNet", "train"]


class SmallCapsNet(nn.Module):
    """Two convolutions, primary capsules and one capsule per digit."""

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
                8, 10, 8, 16, kernel_size=4, routing=contender.routing
            )
        else:
            self.classes = tc.LinearCapsules(4 * 4 * 8, 10, 8, 16, routing=contender.routing)
        self.classifier = nn.Linear(16, 1) if contender.classifier else None

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the digits ``[n 10]``."""
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
    """What a network reached on digits it has not seen."""

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
    """Train on digits no two of which are alike, then test on 2,000 others."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    network = SmallCapsNet(contender)
    routing = network.classes.routing
    own = list(routing.parameters()) if isinstance(routing, tc.DiscriminativeRouting) else []
    weights = [p for p in network.parameters() if all(p is not q for q in own)]
    optimiser = torch.optim.Adam(weights, lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    ascent = torch.optim.Adam(own, lr=1e-3, maximize=True) if own else None
    digits = Batches(Strokes(steps * batch, seed=seed), batch, seed=seed)
    for step, (images, labels, *_) in enumerate(digits.epoch(0), start=1):
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
        progress(step, loss.item())
    right = 0
    with torch.no_grad():
        for images, labels, *_ in Batches(Strokes(2_000, split="test"), 500).epoch(0):
            right += int((network(images).argmax(dim=-1) == labels).sum())
    parameters = sum(p.numel() for p in network.parameters())
    return Result(right / 2_000, parameters, time.perf_counter() - start)
