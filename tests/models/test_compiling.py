"""``torch.compile`` takes every network whole, and new batch sizes do not compile it again."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from helpers.networks.families import FAMILIES
from helpers.repetitions import mark_slow_except

MOST_COMPILATIONS = 3
"""One for the first size, one for any size, one more where a convolution changes its algorithm."""


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
