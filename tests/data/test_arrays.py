"""The user's own images as arrays that NumPy has saved."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from torchcaps.data import describe_own, load, load_arrays, load_own, own_parts
from torchcaps.errors import TorchcapsError

RNG = np.random.default_rng(0)


def pixels(*shape: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def archive(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "mine.npz", **arrays)
    return folder / "mine.npz"


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6, 28, 28), "nhw"),
        ((6, 28, 28, 1), "nhwc"),
        ((6, 1, 28, 28), "nchw"),
        ((6, 20, 24, 3), "nhwc"),
        ((6, 3, 20, 24), "nchw"),
        ((6, 30, 32, 5), "nhwc"),
        ((6, 5, 1, 128), "nchw"),
        ((6, 1, 128), "nhw"),
        ((6, 70, 100, 64), "nhwc"),
    ],
)
def test_the_channels_are_the_smaller_of_the_second_and_the_last_axis(
    tmp_path: Path, shape: tuple[int, ...], axes: str
) -> None:
    array = pixels(*shape)
    expected = array if axes == "nchw" else array.reshape(*shape[:3], -1).transpose(0, 3, 1, 2)
    path = archive(tmp_path, images=array, labels=[0, 1, 2] * 2)
    assert np.array_equal(load_arrays(path).images, expected)
    said = archive(tmp_path, images=array, labels=[0, 1, 2] * 2, layout=axes)
    assert np.array_equal(load_arrays(said).images, expected)


@pytest.mark.parametrize("shape", [(4, 8, 8, 8), (4, 1, 60, 5), (4, 5, 60, 1), (4, 28, 28, 16)])
def test_images_whose_channels_may_be_either_axis_need_a_layout(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    array = pixels(*shape)
    with pytest.raises(ValueError, match="may be the second or the last axis: add an array layout"):
        load_arrays(archive(tmp_path, images=array, labels=[0, 1] * 2))
    path = archive(tmp_path, images=array, labels=[0, 1] * 2, layout="nhwc")
    assert np.array_equal(load_arrays(path).images, np.moveaxis(array, 3, 1))


def test_floats_are_rounded_to_bytes(tmp_path: Path) -> None:
    array = pixels(4, 6, 7)
    for kind in (np.float64, np.float32, np.float16, np.dtype(">f4")):
        path = archive(tmp_path, images=(array / 255).astype(kind), labels=[0, 1] * 2)
        assert np.array_equal(load_arrays(path).images[:, 0], array)


def test_labels_are_numbers_words_or_columns(tmp_path: Path) -> None:
    array = pixels(4, 6, 6)
    for given, classes, labels in (
        (np.array([10, 9, 9, 10]), ("9", "10"), [1, 0, 0, 1]),
        (np.array([[7], [7], [0], [7]], np.uint8), ("0", "7"), [1, 1, 0, 1]),
        (np.array(["cat", "ape", "cat", "dog"]), ("ape", "cat", "dog"), [1, 0, 1, 2]),
        (np.array([b"b", b"a", b"b", b"b"]), ("a", "b"), [1, 0, 1, 1]),
    ):
        images = load_arrays(archive(tmp_path, images=array, labels=given))
        assert images.classes == classes
        assert images.labels.tolist() == labels
    named = archive(tmp_path, images=array, labels=[2, 0, 0, 2], classes=["x", "y", "z"])
    assert load_arrays(named).classes == ("x", "y", "z")
    assert load_arrays(named).labels.tolist() == [2, 0, 0, 2]
    words = archive(tmp_path, images=array, labels=["z", "x", "x", "z"], classes=["z", "y", "x"])
    assert load_arrays(words).labels.tolist() == [0, 2, 2, 0]


def test_every_tenth_image_of_a_class_is_held_out_as_in_a_folder(tmp_path: Path) -> None:
    labels = np.repeat([0, 1], [25, 10])
    path = archive(tmp_path, images=pixels(35, 4, 4), labels=labels)
    assert load_own(path, "validation").indices.tolist() == [9, 19, 34]
    fit = load_own(path, "fit")
    assert sorted([*fit.indices.tolist(), 9, 19, 34]) == [*range(35)]
    assert fit.labels.tolist() == [0] * 23 + [1] * 9
    assert own_parts(path) == []
    few = archive(tmp_path, images=pixels(4, 4, 4), labels=[0, 1] * 2)
    with pytest.raises(FileNotFoundError, match="no images in its validation split"):
        load_own(few, "validation")


def test_splits_are_arrays_of_their_own_or_words(tmp_path: Path) -> None:
    train, test = pixels(6, 4, 4), pixels(2, 4, 4)
    for prefix in ("", "train_"):
        given = {f"{prefix}images": train, f"{prefix}labels": [4, 2, 9] * 2}
        path = archive(tmp_path, **given, test_images=test, test_labels=[9, 2])
        assert own_parts(path) == ["train", "test"]
        assert np.array_equal(load_own(path, "test").images[:, 0], test)
        assert load_own(path, "test").labels.tolist() == [2, 0]
        assert describe_own(path)["images"] == 8
    words = np.array(["train", "test", "val", "train", "test", "train"])
    path = archive(tmp_path, images=train, labels=[1, 0, 1, 0, 1, 1], split=words)
    assert own_parts(path) == ["train", "validation", "test"]
    for split, rows in (("train", [0, 3, 5]), ("validation", [2]), ("test", [1, 4])):
        part = load_own(path, split)
        assert part.indices.tolist() == rows
        assert np.array_equal(part.images[:, 0], train[rows])
        assert part.labels.tolist() == [[1, 0, 1, 0, 1, 1][row] for row in rows]


def test_npy_files_of_a_folder_are_the_same_arrays(tmp_path: Path) -> None:
    array, labels = pixels(4, 5, 6), np.array([1, 0, 1, 1])
    np.save(tmp_path / "images.npy", array)
    with pytest.raises(ValueError, match=r"images without labels: add it"):
        load(tmp_path)
    np.save(tmp_path / "labels.npy", labels)
    np.save(tmp_path / "test_images.npy", array[:2])
    np.save(tmp_path / "test_labels.npy", labels[:2])
    for path in (tmp_path, tmp_path / "images.npy"):
        assert np.array_equal(load_own(path).images[:, 0], array)
    assert own_parts(tmp_path) == ["train", "test"]
    assert own_parts(tmp_path / "images.npy") == []
    assert load_own(tmp_path / "test_images.npy").labels.tolist() == [1, 0]
    before = describe_own(tmp_path)
    np.save(tmp_path / "test_labels.npy", labels[1:3])
    assert describe_own(tmp_path)["files_sha256"] != before["files_sha256"]
    (tmp_path / "images.npy").rename(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"x.npy must end in images.npy"):
        load_own(tmp_path / "x.npy")


def test_arrays_get_the_size_and_the_channels_that_are_asked_for(tmp_path: Path) -> None:
    path = archive(tmp_path, images=pixels(4, 20, 30), labels=[0, 1] * 2)
    images = load_own(path, size=(10, 10), channels=3)
    assert images.images.shape == (4, 3, 10, 10)
    assert images.reading is not None
    assert images.reading.sizes == {(20, 30): 4}
    with pytest.raises(ValueError, match="takes images of 5 channels, not 1"):
        load_own(path, channels=5)


GOOD = pixels(4, 6, 6)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no labels": ({"images": GOOD}, "images without labels"),
    "other names": ({"x": GOOD, "y": [0, 1, 0, 1]}, "no arrays images and labels"),
    "lengths": ({"images": GOOD, "labels": [0, 1, 0]}, "one label for each image"),
    "no images": ({"images": GOOD[:0], "labels": np.array([], int)}, "one image or more"),
    "a number": ({"images": np.uint8(3), "labels": [0]}, "one label for each image"),
    "two axes": ({"images": GOOD[0, :4], "labels": [0, 1, 0, 1]}, "give images as"),
    "no width": ({"images": GOOD[..., :0], "labels": [0, 1, 0, 1]}, "channels of 6x0"),
    "wide": ({"images": np.zeros((2, 1, 5000), np.uint8), "labels": [0, 1]}, "the most are"),
    "many channels": ({"images": pixels(2, 99, 99, 65), "labels": [0, 1]}, "65 channels"),
    "integers": ({"images": GOOD.astype(int), "labels": [0, 1, 0, 1]}, "give uint8, or floats"),
    "bright": ({"images": GOOD * 1.0, "labels": [0, 1, 0, 1]}, "scale them to 0..1"),
    "NaN": ({"images": GOOD * np.nan, "labels": [0, 1, 0, 1]}, "NaN or infinite"),
    "objects": ({"images": GOOD, "labels": np.array([{}] * 4)}, "Python objects"),
    "object images": ({"images": GOOD.astype(object), "labels": [0, 1, 0, 1]}, "Python objects"),
    "negative": ({"images": GOOD, "labels": [0, -1, 0, 1]}, "label -1: count classes from 0"),
    "real labels": ({"images": GOOD, "labels": [0.5, 1, 0, 1]}, "give whole numbers or words"),
    "high": ({"images": GOOD, "labels": [0, 9, 0, 1], "classes": ["a", "b"]}, "has the label 9"),
    "same": ({"images": GOOD, "labels": [0, 1, 0, 1], "classes": ["a", "a"]}, "differently"),
    "layout": ({"images": GOOD, "labels": [0, 1, 0, 1], "layout": "nchw"}, "layout must be one of"),
    "split": ({"images": GOOD, "labels": [0, 1, 0, 1], "split": ["fit"] * 4}, "word train"),
    "test label": (
        {"images": GOOD, "labels": [0, 1, 0, 1], "test_images": GOOD[:1], "test_labels": [3]},
        "label 3, which is not among the training images",
    ),
    "test kind": (
        {"images": GOOD, "labels": [9, 10, 9, 9], "test_images": GOOD[:1], "test_labels": ["9"]},
        "both be numbers or both be words",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays_are_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    arrays, said = WRONG[case]
    path = archive(tmp_path, **arrays)
    with pytest.raises(TorchcapsError, match=said) as error:
        load_own(path, "test" if "test_images" in arrays else "train")
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def header(shape: str) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
        b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000,
        header("(100000000000, 28, 28)"),
        header("(-4, 6, 6)"),
        header("(4, 6, 6)") + bytes(143),
        header("(4, 6, 6)") + bytes(145),
        header("'x'") + bytes(144),
    ],
)
def test_damaged_files_take_no_memory(tmp_path: Path, content: bytes) -> None:
    np.save(tmp_path / "labels.npy", [0, 1, 0, 1])
    (tmp_path / "images.npy").write_bytes(content)
    with pytest.raises(TorchcapsError, match=r"images.npy cannot be used: .*; save it again"):
        load_own(tmp_path)
    with zipfile.ZipFile(tmp_path / "mine.npz", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("images.npy", content)
        packed.write(tmp_path / "labels.npy", "labels.npy")
    with pytest.raises(TorchcapsError, match=r"mine.npz \(images\) cannot be used: "):
        load_own(tmp_path / "mine.npz")


def test_an_archive_cut_or_changed_anywhere_is_refused_or_read_as_before(tmp_path: Path) -> None:
    path = archive(tmp_path, images=GOOD, labels=[0, 1, 0, 1])
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(TorchcapsError):
            load_own(path)
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 0x55
        path.write_bytes(changed)
        try:
            images = load_own(path)
        except TorchcapsError:
            continue
        assert torch.equal(images.images[:, 0], torch.from_numpy(GOOD))
        assert images.labels.tolist() == [0, 1, 0, 1]


def test_a_member_that_announces_more_than_it_can_hold_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, images=GOOD, labels=[0, 1, 0, 1])
    content = header("(4, 40000, 40000)") + bytes(144)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("images.npy", content)
        file.writestr("labels.npy", (np.lib.format.magic(1, 0)))
    announced = 4 * 40_000**2 + len(header("(4, 40000, 40000)"))
    data = packed.getvalue().replace(
        struct.pack("<I", len(content)), struct.pack("<I", announced % 2**32)
    )
    path.write_bytes(data)
    with pytest.raises(TorchcapsError, match=r"cannot be used: it announces \d+ bytes, which"):
        load_own(path)
