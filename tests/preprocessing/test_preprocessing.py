"""Images of users become what a network was trained to see, and the record travels with it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

import torchcaps as tc
from torchcaps.data import (
    Batches,
    Brightness,
    CenterCrop,
    Channels,
    ImageSet,
    Mono,
    Normalize,
    Standardize,
)
from torchcaps.models.weights.files import describe
from torchcaps.preprocessing import looks_inverted

RECORDS = [
    tc.Preprocessing(1, (28, 28)),
    tc.Preprocessing(3, (32, 32), (Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),), 0.25),
    tc.Preprocessing(3, (32, 32), (CenterCrop(24), Standardize())),
    tc.Preprocessing(1, (36, 36), (Channels(3), Normalize((0.1,) * 3, (0.3,) * 3)), 0.0),
    tc.Preprocessing(2, (48, 48), (Mono(), CenterCrop(32))),
]


def pixels(record: tc.Preprocessing, count: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (count, record.channels, *record.size)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_images_become_what_training_made_of_them(record: tc.Preprocessing) -> None:
    images = pixels(record)
    source = ImageSet(images, torch.zeros(5, dtype=torch.long), ("a",))
    seen = Batches(source, 5, transforms=record.steps, shuffled=False).batch(torch.arange(5)).images
    assert torch.equal(record(images), seen)
    assert record(images).shape[1:] == record.output_shape()
    torch.testing.assert_close(record(images / 255), seen, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_a_record_is_the_same_after_json(record: tc.Preprocessing) -> None:
    again = tc.Preprocessing.from_json(json.loads(json.dumps(record.to_json())))
    assert again.to_json() == record.to_json()
    assert torch.equal(again(pixels(record)), record(pixels(record)))


NORMAL = {"name": "normalize", "mean": [0.5], "std": [0.5]}
WRONG: list[dict[str, Any]] = [
    {"channels": 0}, {"channels": True}, {"channels": 65}, {"size": [28]}, {"size": [28, 10**6]},
    {"size": "28"}, {"size": [28, 28.0]}, {"steps": None}, {"steps": [NORMAL] * 17},
    {"steps": [{"name": "os.system"}]}, {"steps": [{"name": "mono", "path": "x"}]}, {"steps": [[]]},
    {"steps": [{"name": ["mono"]}]}, {"steps": [{"name": "channels", "count": 10**9}]},
    {"steps": [NORMAL | {"std": [0]}]}, {"steps": [NORMAL | {"std": [float("nan")]}]},
    {"steps": [NORMAL | {"mean": [0.5, 0.5]}]}, {"steps": [NORMAL | {"mean": "0"}]},
    {"steps": [NORMAL | {"mean": [10**400]}]}, {"steps": [{"name": "center_crop", "size": 29}]},
    {"steps": [{"name": "center_crop"}]}, {"background": 2}, {"background": "dark"}, {"code": "x"},
]  # fmt: skip


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_hostile_record_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    record = tc.Preprocessing(1, (28, 28)).to_json() | change
    with pytest.raises(ValueError, match=r"."):
        tc.Preprocessing.from_json(record)
    described = {"network": "sabour2017/mnist", "overrides": {}, "preprocessing": record}
    path = tmp_path / "network.safetensors"
    save_file({"x": torch.zeros(1)}, path, {"torchcaps": json.dumps(described)})
    with pytest.raises(ValueError, match="does not know"):
        tc.load(path)


def test_every_form_of_an_image_gives_the_same_batch(tmp_path: Path) -> None:
    record = RECORDS[1]
    batch = pixels(record)
    array = batch.permute(0, 2, 3, 1).numpy()
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for path, image in zip(paths, array, strict=True):
        Image.fromarray(image).save(path)
    expected = record(batch)
    forms: list[Any] = [
        array, batch.numpy(), list(batch), list(array), paths, [str(path) for path in paths],
        [Image.open(path) for path in paths], [batch[:2], *paths[2:]],
    ]  # fmt: skip
    for form in forms:
        assert torch.equal(record(form), expected)
    one: list[Any] = [batch[0], array[0], paths[0], str(paths[0]), Image.fromarray(array[0])]
    for form in one:
        assert torch.equal(record(form), expected[:1])
    mixed = record([batch[0].double() / 255, paths[1], np.ascontiguousarray(array[2])])
    torch.testing.assert_close(mixed, expected[:3], rtol=1e-4, atol=1e-5)
    gray = RECORDS[0]
    image = pixels(gray, 1)
    for form in (image[0, 0], image[0], image[0, 0].numpy(), image[0, 0][..., None]):
        assert torch.equal(gray(form), gray(image))


def test_gray_becomes_color_and_color_gray() -> None:
    gray, color = tc.Preprocessing(1, (8, 8)), tc.Preprocessing(3, (8, 8))
    image = torch.randint(256, (8, 8, 3), dtype=torch.uint8)
    expected = np.asarray(Image.fromarray(image.numpy()).convert("L"), dtype=np.float32) / 255
    torch.testing.assert_close(
        gray(image)[0, 0], torch.from_numpy(expected), atol=1.1 / 255, rtol=0
    )
    one = torch.rand(8, 8)
    assert torch.equal(color(one), one.expand(1, 3, 8, 8))


def test_another_size_keeps_the_aspect_ratio_and_the_center() -> None:
    record = tc.Preprocessing(1, (28, 28))
    wide = torch.zeros(56, 112, dtype=torch.uint8)
    wide[:, 28:84] = 200
    inner = record(wide)[..., 1:-1]
    torch.testing.assert_close(inner, torch.full((1, 1, 28, 26), 200 / 255))
    assert record(torch.rand(5, 90)).shape == (1, 1, 28, 28)
    assert record([torch.rand(1, 28, 28), torch.rand(3, 29, 28), torch.rand(1, 1)]).shape[0] == 3
    flat = torch.full((3, 1, 17, 61), 0.5)
    torch.testing.assert_close(record(flat), torch.full((3, 1, 28, 28), 0.5))


RAMP = torch.linspace(0, 1, 28 * 28).view(1, 28, 28)
BAD: list[tuple[Any, str | None]] = [
    (RAMP * 255, "pixels are between 0 and 255: give uint8, or floats between 0 and 1"),
    (RAMP - 0.5, "are not normalized yet"),
    (torch.full((28, 28), float("nan")), "between nan and nan"),
    (torch.zeros(28, 28, dtype=torch.long), "not torch.int64"),
    (np.zeros((28, 28), np.uint16), "not torch.uint16|not uint16"),
    (np.array([["a"]]), "uint8, or floats between 0 and 1, not <U1"),
    (torch.rand(2, 2), None),
    (torch.rand(5, 28, 28), r"images \[5, 28, 28\] must be \[b c h w\]"),
    (torch.rand(0, 1, 28, 28), r"images \[0, 1, 28, 28\] must be"),
    (torch.rand(2, 2, 1, 28, 28), "with 1 or 3 channels"),
    (torch.rand(28), r"images \[28\] must be"),
    ([], "the list is empty"),
    (7, "not int"),
    ([None], "not NoneType"),
    ("nowhere.png", "there is no image nowhere.png"),
    (Path(), "is a folder"),
    (__file__, "cannot be used: it is not a whole image"),
    (Image.new("I", (28, 28)), "more than 8 bits per channel"),
]  # fmt: skip


@pytest.mark.parametrize(("images", "sentence"), BAD, ids=[str(number) for number in range(18)])
def test_what_is_no_image_gets_one_sentence(images: Any, sentence: str | None) -> None:
    record = tc.Preprocessing(1, (28, 28))
    if sentence is None:
        assert record(images).shape == (1, 1, 28, 28)
        return
    with pytest.raises((ValueError, FileNotFoundError), match=sentence) as caught:
        record(images)
    assert "\n" not in str(caught.value)


def test_a_stereo_network_refuses_color_and_a_transform_at_random_is_no_step() -> None:
    with pytest.raises(ValueError, match="takes images of 2 channels, not 3"):
        RECORDS[4](torch.rand(3, 48, 48))
    random: Any = (Brightness(),)
    with pytest.raises(ValueError, match="steps must be transforms such as Normalize"):
        tc.Preprocessing(1, (28, 28), random)


def test_the_record_and_the_class_names_travel_with_the_weights(tmp_path: Path) -> None:
    network = tc.build("zhao2020/smallnorb")
    with pytest.raises(ValueError, match="unknown how images of this zhao2020/smallnorb must be"):
        network.preprocess(torch.rand(32, 32))
    network.preprocessing = tc.Preprocessing(2, (48, 48), (Mono(), CenterCrop(32)))
    network.class_names = ("animal", "human", "plane", "truck", "car")
    path = tmp_path / "network.safetensors"
    tc.save(network, path)
    again, other = tc.load(path), tc.build("zhao2020/smallnorb")
    tc.load_weights(other, path)
    for loaded in (again, other):
        assert loaded.preprocessing == network.preprocessing
        assert loaded.class_names == network.class_names
    images = pixels(RECORDS[4])
    assert torch.equal(again.preprocess(images), network.preprocess(images))
    assert again.double().preprocess(images).dtype == torch.float64
    described = describe(path)
    tensors = load_file(path)
    for key, value, sentence in (
        ("classes", ["a", "b"], "2 class names do not fit 5 classes"),
        ("preprocessing", RECORDS[0].to_json(), r"gives images \(1, 28, 28\), and the network"),
    ):
        save_file(tensors, path, {"torchcaps": json.dumps({**described, key: value})})
        with pytest.raises(ValueError, match=sentence):
            tc.load(path)
    network.preprocessing = RECORDS[0]
    with pytest.raises(ValueError, match="the preprocessing gives images"):
        tc.save(network, path)


def test_inverted_scans_are_recognized() -> None:
    digit = torch.zeros(4, 1, 28, 28)
    digit[..., 8:20, 10:18] = 0.9
    ink = 1 - digit
    assert looks_inverted(ink, 0.0)
    assert looks_inverted((ink * 255).byte(), 0.1)
    assert not looks_inverted(digit, 0.0)
    assert looks_inverted(digit, 1.0)
    assert not looks_inverted(ink, 1.0)
    assert not looks_inverted(ink, None)
    assert not looks_inverted(ink, 0.5)
    assert not looks_inverted(ink.expand(-1, 3, -1, -1), 0.0)
    assert not looks_inverted(torch.ones(4, 1, 28, 28), 0.0)
    assert not looks_inverted(torch.cat([digit, digit, ink]), 0.0)
