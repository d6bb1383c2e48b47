"""``torchcaps bench compare`` measures a user's network and ours in one run."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from helpers.commands import invoke, refused
from torchcaps.bench import Compared, compare
from torchcaps.bench.compare import scores_of
from torchcaps.capsules import Output
from torchcaps.errors import UsageError

MINE = """
from torch import nn

def make_net():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

def make_wrong():
    return nn.Linear(3, 10)

def make_nothing():
    raise KeyError("no weights")

number = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_both_networks_are_measured_in_one_run(mine: Path, mode: str) -> None:
    options = ("--repeats", "2", "--batch", "2", "--mode", mode)
    name, ours = f"{mine}:make_net", "demo/strokes-dynamic"
    result = invoke("bench", "compare", name, ours, "--json", *options)
    assert result.exit_code == 0, result.output
    first, second = json.loads(result.stdout)
    assert (first["network"], second["network"]) == (name, ours)
    assert first["ratio"] == 1
    assert second["ratio"] == pytest.approx(second["images_per_s"] / first["images_per_s"])
    assert first["slow_images_per_s"] <= first["images_per_s"] <= first["fast_images_per_s"]
    table = invoke("bench", "compare", name, ours, *options).stdout
    assert "images/s" in table
    assert ours in table


class Noted(nn.Module):
    """A network that notes its name, its mode and its images whenever it is called."""

    def __init__(self, name: str, notes: list[tuple[str, bool, Tensor]]) -> None:
        super().__init__()
        self.name, self.notes = name, notes
        self.linear = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        self.notes.append((self.name, self.training, images))
        scores: Tensor = self.linear(images.flatten(1))
        return scores


@pytest.fixture
def notes() -> list[tuple[str, bool, Tensor]]:
    return []


def test_networks_take_turns_on_the_same_images(notes: list[tuple[str, bool, Tensor]]) -> None:
    networks = {name: Noted(name, notes) for name in ("a", "b")}
    before = networks["a"].linear.weight.detach().clone()
    cpu = torch.device("cpu")
    compared = compare(networks, image_shape=(1, 2, 2), batch=5, device=cpu, repeats=3)
    assert [len(one.seconds) for one in compared] == [3, 3]
    timed = notes[-6:]
    assert "".join(name for name, _, _ in timed) == "ababab"
    assert all(training and images is timed[0][2] for _, training, images in timed)
    assert not torch.equal(networks["a"].linear.weight, before)  # it trains


def test_the_spread_is_that_of_the_slowest_and_the_fastest_tenth() -> None:
    one = Compared("a", 10, tuple(float(n) for n in range(1, 21)), None)
    assert one.images_per_s == pytest.approx(10 / 10.5)
    assert one.spread == (10 / 18, 10 / 3)


def test_scores_are_found_in_what_networks_return() -> None:
    scores = torch.rand(2, 3)
    for output in (scores, Output(scores), (scores, "more")):
        assert scores_of(output) is scores
    with pytest.raises(UsageError, match=r"scores \[batch classes\], not shape \[2\]"):
        scores_of(scores[:, 0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("make_wrong", "fails on images"),
        ("make_nothing", "no weights"),
        ("number", "must be a function without arguments"),
        ("missing", "has no 'missing'"),
    ],
)
def test_what_cannot_be_compared_gets_one_sentence(mine: Path, name: str, message: str) -> None:
    said = refused("bench", "compare", f"{mine}:{name}", "demo/strokes-dynamic", "--batch", "2")
    assert message in said


def test_a_comparison_needs_a_network_and_a_plan_takes_none() -> None:
    assert "compare needs your network" in refused("bench", "compare")
    assert "only compare takes" in refused("bench", "small", "mine.py:net")
