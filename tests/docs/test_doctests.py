"""The examples of docstrings run and print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import torchcaps as tc

PACKAGE = Path(tc.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module: str) -> None:
    names = {"tc": tc, "torch": torch}
    failed, tried = doctest.testmod(importlib.import_module(module), extraglobs=names)
    assert tried > 0
    assert failed == 0


def test_the_main_modules_have_examples() -> None:
    assert {"torchcaps.functional", "torchcaps.layers.head"} <= set(MODULES)
    assert len(MODULES) >= 8
