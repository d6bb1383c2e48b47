"""``torch.compile`` takes every network whole, and new batch sizes do not compile it again."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from helpers.networks.families import FAMILIES
from helpers.repetitions import mark_slow_except
from torchcaps.data import Batch
from torchcaps.models import build
from torchcaps.models.weights.pretrained import shipped
from torchcaps.models.zoo import ZOO
from torchcaps.recipes import RECIPES
from torchcaps.train.step import total_loss

MOST_COMPILATIONS = 3
"""One for the first size, one for any size, one more where a convolution changes its algorithm."""


OUTGROWS = {"sabour2017/multimnist-modern"}
"""Networks whose votes of 16 images are cast in chunks on a CPU, and those of 8 at once."""

PAPERS = [name for name in shipped() if not name.startswith("demo/")]


@pytest.mark.parametrize("family", mark_slow_except(FAMILIES, "dynamic", "inverted"))
def test_batch_sizes_share_a_compilation_without_graph_breaks(family: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    network = FAMILIES[family]()
    counter = CompileCounter()
    compiled = torch.compile(network, backend=counter, fullgraph=True)
    for size in (8, 5, 6, 9, 7, 10, 11):
        compiled(torch.rand(size, *network.image_shape))
    assert 1 <= counter.frame_count <= MOST_COMPILATIONS


def draw(name: str, size: int) -> Batch:
    """Draw a batch as the recipe's data set has it, of one or two objects per image."""
    entry = ZOO[RECIPES[name].network]
    images, indices = torch.rand(size, *entry.image_shape), torch.arange(size)
    if RECIPES[name].measure == "top1":
        return Batch(images, torch.randint(entry.n_classes, (size,)), indices)
    labels = torch.rand(size, entry.n_classes).argsort(1)[:, :2]
    return Batch(images, labels, indices, torch.rand(size, 2, *entry.image_shape))


@pytest.fixture
def _convolutions_of_any_batch() -> Iterator[None]:
    """Leave out the libraries of a CPU that choose a convolution by whether there are 16 images."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    with torch.backends.nnpack.flags(enabled=False):
        yield
    torch._C._set_mkldnn_enabled(enabled)


@pytest.mark.usefixtures("_convolutions_of_any_batch")
@pytest.mark.parametrize("name", mark_slow_except(PAPERS, "yang2021/fashion-mnist-l1"))
def test_a_shipped_network_and_its_loss_compile_twice_for_all_batch_sizes(name: str) -> None:
    assert len(PAPERS) == 8
    torch._dynamo.reset()
    recipe = RECIPES[name]
    network = build(recipe.network).train()
    decodes = bool(recipe.reconstruction_weight)

    def loss(images: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        output = network(images, labels if decodes else None)
        batch = Batch(images, labels, torch.arange(len(images)), targets)
        return total_loss(recipe, output, batch, torch.zeros(()))

    counter = CompileCounter()
    compiled = torch.compile(loss, backend=counter, fullgraph=True)
    for size in (3, 5, 8, 16):
        batch = draw(name, size)
        compiled(batch.images, batch.labels, batch.targets)
    # one for the first size and one for any, and where votes outgrow a chunk one for chunks
    assert counter.frame_count == 2 + (name in OUTGROWS)
