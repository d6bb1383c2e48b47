import sys
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _compile_once() -> None:
    """Dynamo knows functions by identity from its first use on: no test's stand-in for one."""
    torch.compile(torch.neg, backend="eager")(torch.zeros(1))


@pytest.fixture(autouse=True)
def _forget_compiled_graphs() -> Iterator[None]:
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
