"""The ascent on routing coefficients: one objective at the classes, for every layer below too."""

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.data import Batch
from torchcaps.recipes import get
from torchcaps.train.process import Process
from torchcaps.train.step import Step, make_step


class Deep(tc.Network):
    """Two layers of discriminative routing over the pixels; inner parents are no classes."""

    def __init__(self) -> None:
        super().__init__((1, 4, 4), 10)
        linear = partial(tc.LinearCapsules, routing=tc.DiscriminativeRouting)
        self.inner = linear(8, 5, 2, 4)
        self.classes = linear(5, 10, 4, 4)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> tc.Output:
        capsules = tc.Capsules(self.scale * images.reshape(-1, 8, 2))
        routed = self.classes(self.inner(capsules))
        return tc.Output(routed.activations, tc.Capsules(routed.poses, routed.activations))


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(12, 1, 4, 4, generator=generator)
    return Batch(images, torch.arange(12) % 10, torch.arange(12))


def coefficients(network: tc.Network, layer: str) -> nn.Parameter:
    return network.get_parameter(f"{layer}.routing.coefficients")


def objective(network: Deep, images: Tensor, labels: Tensor) -> Tensor:
    """The objective of the class layer, with the poses below it."""
    inner = network.inner(tc.Capsules(network.scale * images.reshape(-1, 8, 2)))
    votes = network.classes.votes(inner)
    found = network.classes.routing.objective(votes, labels)
    assert found is not None
    return found


def test_inner_coefficients_climb_the_objective_of_the_class_layer() -> None:
    torch.manual_seed(0)
    network = Deep()
    sgd: Any = partial(torch.optim.SGD)
    recipe = get("yang2021/mnist-l1-plain").variant("x", coefficient_optimizer=sgd)
    step = cast(Step, make_step(recipe, network, Process(torch.device("cpu"))))
    data = batch()
    before = [coefficients(network, name).detach().clone() for name in ("inner", "classes")]
    parameters = [coefficients(network, name) for name in ("inner", "classes")]
    expected = torch.autograd.grad(objective(network, data.images, data.labels), parameters)
    step(data)
    for old, parameter, slope in zip(before, parameters, expected, strict=True):
        assert float(slope.abs().max()) > 1e-4
        torch.testing.assert_close(parameter.detach(), old + recipe.coefficient_lr * slope)
