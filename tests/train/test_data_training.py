"""From a data set to a gradient: batches fit the networks and the losses."""

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.data import (
    Batch,
    Batches,
    Channels,
    DiverseMultiMNIST,
    ImageSet,
    MultiMNIST,
    Strokes,
)


def digits() -> ImageSet:
    drawn = Strokes(60)
    return ImageSet(drawn.images, drawn.labels, drawn.classes)


def check_gradients(network: nn.Module, loss: Tensor) -> None:
    assert bool(loss.isfinite())
    loss.backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert gradients
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients)


@pytest.mark.parametrize("overlapping", ["multimnist", "strokes"])
def test_overlapping_digits_train_a_network_with_a_decoder(overlapping: str) -> None:
    torch.manual_seed(0)
    source = (
        MultiMNIST(digits())
        if overlapping == "multimnist"
        else Strokes(60, size=36, overlapping=True)
    )
    batch = next(Batches(source, 4).epoch(0))
    assert batch.targets is not None
    assert batch.targets.dtype == batch.images.dtype == torch.float32
    network = tc.build("zhao2020/multimnist")
    output = network(batch.images, batch.labels)
    assert output.reconstruction is not None
    assert output.reconstruction.shape == batch.targets.shape
    loss = tc.margin_loss(output.scores, batch.multi_hot(10))
    loss = loss + tc.reconstruction_loss(output.reconstruction, batch.targets)
    check_gradients(network, loss)


def test_diverse_digits_train_a_network_of_three_channels() -> None:
    torch.manual_seed(0)
    source = DiverseMultiMNIST(digits(), single=0.5)
    batch: Batch = next(Batches(source, 8, transforms=[Channels(3)]).epoch(0))
    assert bool((batch.labels == -1).any())
    network = tc.AttentionCapsNet((3, 36, 36), 10, n_types=4)
    output = network(batch.images)
    check_gradients(network, tc.binary_cross_entropy_loss(output.scores, batch.multi_hot(10)))
