import sys
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _forget_compiled_graphs() -> Iterator[None]:
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
