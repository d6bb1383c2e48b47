"""Networks that users register: built, saved and loaded by name, refused in one sentence."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from helpers.registry import restored_zoo
from torchcaps.models.weights.files import describe
from torchcaps.models.zoo import count_parameters


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with restored_zoo():
        yield


class Linear(tc.Network):
    def __init__(
        self, image_shape: tuple[int, int, int], n_classes: int, *, width: int = 4
    ) -> None:
        super().__init__(image_shape, n_classes)
        size = image_shape[0] * image_shape[1] * image_shape[2]
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, n_classes)
        )

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> tc.Output:
        return tc.Output(self.layers(self.checked(images)))


def test_a_registered_network_is_built_saved_and_loaded_by_name(tmp_path: Path) -> None:
    tc.register_network("me/linear", partial(Linear, width=3), image_shape=(1, 8, 8), n_classes=5)
    assert tc.list_models()[-1] == "me/linear"
    network = tc.build("me/linear")
    assert isinstance(network, Linear)
    assert (network.image_shape, network.n_classes) == ((1, 8, 8), 5)
    assert count_parameters("me/linear") == network.n_parameters == 64 * 3 + 3 + 3 * 5 + 5
    other = tc.build("me/linear", image_shape=(3, 4, 4), n_classes=2)
    path = tmp_path / "linear.safetensors"
    tc.save(other, path)
    assert describe(path) == {
        "network": "me/linear",
        "overrides": {"image_shape": [3, 4, 4], "n_classes": 2},
        "trained": {},
        "classes": [],
        "preprocessing": None,
    }
    again = tc.load(path)
    assert isinstance(again, Linear)
    images = torch.rand(2, 3, 4, 4)
    assert torch.equal(again(images).scores, other.eval()(images).scores)
    with pytest.raises(ValueError, match="did you mean 'me/linear'"):
        tc.build("me/liner")


def test_a_file_of_a_network_that_is_not_registered_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "linear.safetensors"
    with restored_zoo():
        tc.register_network("me/linear", Linear, image_shape=(1, 8, 8))
        network = tc.build("me/linear")
        tc.save(network, path)
    for attempt in (lambda: tc.load(path), lambda: tc.load_weights(network, path)):
        with pytest.raises(
            ValueError, match=r"call torchcaps\.register_network\('me/linear', "
        ) as c:
            attempt()
        assert "\n" not in str(c.value)


def test_a_name_belongs_to_one_network() -> None:
    make = partial(Linear, width=3)
    tc.register_network("me/linear", make, image_shape=(1, 8, 8))
    tc.register_network("me/linear", make, image_shape=(1, 8, 8))
    for other in (Linear, partial(Linear, width=3)):
        with pytest.raises(ValueError, match="another network 'me/linear' already"):
            tc.register_network("me/linear", other, image_shape=(1, 8, 8))
    with pytest.raises(ValueError, match="another network 'me/linear' already"):
        tc.register_network("me/linear", make, image_shape=(1, 9, 9))
    with pytest.raises(ValueError, match="another network 'sabour2017/mnist' already"):
        tc.register_network("sabour2017/mnist", Linear, image_shape=(1, 28, 28))
    assert tc.list_models().count("me/linear") == 1


def broken(image_shape: tuple[int, int, int], n_classes: int) -> tc.Network:
    raise RuntimeError("two\nlines")


def deaf(image_shape: tuple[int, int, int], n_classes: int) -> tc.Network:
    return Linear((1, 4, 4), n_classes)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda image_shape, n_classes: nn.Linear(2, 2), "returns a Linear, not a torchcaps.Net"),
        (Linear((1, 8, 8), 10), "make must be a class or a function, not a Linear"),
        ("me.module:Linear", "make must be a class or a function, not 'me.module:Linear'"),
        (lambda: None, "raises TypeError: "),
        (broken, r"make\(\(1, 8, 8\), 10\) raises RuntimeError: two lines"),
        (deaf, r"network for images \(1, 4, 4\) of 10 classes: pass both arguments on"),
    ],
)
def test_what_builds_no_network_is_refused_on_registration(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^'me/bad' cannot be registered: .*{sentence}") as caught:
        tc.register_network("me/bad", cast(Any, make), image_shape=(1, 8, 8))
    assert "\n" not in str(caught.value)
    assert "me/bad" not in tc.list_models()


def test_a_factory_that_changes_its_mind_is_refused_when_it_builds() -> None:
    results: list[Any] = [Linear((1, 8, 8), 10)]
    tc.register_network("me/fickle", lambda *sizes: results.pop(), image_shape=(1, 8, 8))
    results.append(nn.Linear(2, 2))
    with pytest.raises(
        ValueError, match=r"factory of 'me/fickle' returns a Linear, not a torchcaps"
    ):
        tc.build("me/fickle")


@pytest.mark.parametrize("name", ["", "/a", "a/", "../a", "a b", "a\n", "a/b/c/d/e", "é", 3, None])
def test_a_name_is_words_with_slashes(name: object) -> None:
    with pytest.raises(ValueError, match="name must be words of letters, digits"):
        tc.register_network(cast(Any, name), Linear, image_shape=(1, 8, 8))
