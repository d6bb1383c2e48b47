"""Run the Python examples of a document."""

import re
from pathlib import Path
from typing import Any


def run_examples(document: Path) -> dict[str, Any]:
    """Run every Python block of a document, and check the shapes that its comments claim.

    The blocks share their names, which are returned. A claim is a comment such as ``# [2, 10]``
    after an expression.
    """
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL)
    assert blocks, f"{document} has no examples"
    names: dict[str, Any] = {"__name__": document.stem}
    for block in blocks:
        exec(compile(block, str(document), "exec"), names)
        for line in block.splitlines():
            if claim := re.match(r"(\w+(?:\.\w+|\[[^\]]+\])*) *# (\[[\d, ]+\])", line):
                shape = str(list(eval(claim[1], names).shape))
                assert shape == claim[2], f"{document}: {line}"
    return names
