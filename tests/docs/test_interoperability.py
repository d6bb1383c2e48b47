"""The snippets of the page on other libraries run, where these are installed."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.documents import run_examples

PAGE = Path(__file__).parents[2] / "docs/interoperability.md"
START, *SECTIONS = PAGE.read_text().split("\n## ")
NAMES = [section.partition("\n")[0] for section in SECTIONS]
PACKAGES = {
    "PyTorch alone": "torch",
    "Lightning": "lightning",
    "Accelerate": "accelerate",
    "Hugging Face Transformers": "transformers",
    "skorch and scikit-learn": "skorch",
    "Weights & Biases": "wandb",
    "TorchMetrics": "torchmetrics",
    "Captum": "captum",
    "torch.export and torch.compile": "torch",
}


def run_section(name: str, folder: Path) -> dict[str, Any]:
    """Run the lines that every snippet starts from, and those of a section."""
    page = folder / "section.md"
    page.write_text(START + SECTIONS[NAMES.index(name)])
    return run_examples(page)


def test_every_section_names_its_library() -> None:
    assert list(PACKAGES) == NAMES
    for name, section in zip(NAMES, SECTIONS, strict=True):
        if PACKAGES[name] != "torch":
            assert re.search(rf"^(from|import) {PACKAGES[name]}\b", section, re.MULTILINE)


@pytest.mark.filterwarnings("default")  # other libraries warn of themselves
@pytest.mark.parametrize("name", PACKAGES)
def test_the_snippet_of_a_library_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = PACKAGES[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install {package}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    names = run_section(name, tmp_path)
    if "loader" in names and "optimizer" in names:
        assert all(torch.isfinite(value).all() for value in names["net"].parameters())
    if name == "skorch and scikit-learn":
        chances = names["classifier"].predict_proba(names["images"].numpy())
        assert chances.shape == (256, 10)
        assert abs(chances.sum(-1) - 1).max() < 1e-5
    if name == "TorchMetrics":
        assert 0 <= float(names["accuracy"].compute()) <= 1
