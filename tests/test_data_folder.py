"""The user's own images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import data_files as files
from torchcaps.data import FileFormatError, load, load_folder

RNG = np.random.default_rng(0)


def picture(path: Path, *shape: int, value: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    if value is not None:
        array[:] = value
    Image.fromarray(array).save(path)


def test_a_folder_per_class_becomes_a_data_set(tmp_path: Path) -> None:
    for number in range(3):
        picture(tmp_path / "rose" / f"{number}.png", 20, 30, 3, value=number)
        picture(tmp_path / "aster" / f"{number}.bmp", 20, 30, 3, value=100 + number)
    (tmp_path / "rose" / "notes.txt").write_text("not an image")
    (tmp_path / "empty").mkdir()
    loaded = load(str(tmp_path))
    assert loaded.classes == ("aster", "rose")
    assert loaded.images.shape == (6, 3, 20, 30)
    assert loaded.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert loaded.images[:, 0, 0, 0].tolist() == [100, 101, 102, 0, 1, 2]
    assert torch.equal(load(tmp_path).images, loaded.images)


def test_images_take_the_most_common_size_or_the_one_asked_for(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 8, 10)
    picture(tmp_path / "a" / "2.png", 8, 10)
    picture(tmp_path / "b" / "3.png", 16, 16, value=77)
    assert load_folder(tmp_path).images.shape == (3, 1, 8, 10)
    resized = load_folder(tmp_path, size=(5, 7))
    assert resized.images.shape == (3, 1, 5, 7)
    assert set(resized.images[2].flatten().tolist()) == {77}


def test_grey_stays_grey_unless_something_has_colour(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 8, 8)
    assert load_folder(tmp_path).images.shape[1] == 1
    picture(tmp_path / "b" / "2.png", 8, 8, 3)
    assert load_folder(tmp_path).images.shape[1] == 3
    assert load_folder(tmp_path, colour=False).images.shape[1] == 1


def test_palettes_and_transparency_are_read_as_colour(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGBA", (4, 4), (10, 20, 30, 128)).save(tmp_path / "a" / "1.png")
    Image.new("P", (4, 4), 3).save(tmp_path / "a" / "2.gif")
    loaded = load_folder(tmp_path)
    assert loaded.images[0, :, 0, 0].tolist() == [10, 20, 30]


def test_splits_divide_each_class_and_never_overlap(tmp_path: Path) -> None:
    for name in "ab":
        for number in range(20):
            picture(tmp_path / name / f"{number:02}.png", 4, 4, value=number)
    sizes = {split: load_folder(tmp_path, split) for split in ("train", "fit", "validation")}
    values = {split: part.images[:, 0, 0, 0].tolist() for split, part in sizes.items()}
    assert values["validation"] == [9, 19, 9, 19]
    assert sorted(values["fit"] + values["validation"]) == sorted(values["train"])
    with pytest.raises(ValueError, match="no split 'test'"):
        load_folder(tmp_path, "test")


def test_folders_named_train_and_test_are_the_splits(tmp_path: Path) -> None:
    for split, value in (("train", 1), ("test", 2)):
        for name in "ab":
            picture(tmp_path / split / name / "1.png", 4, 4, value=value)
    assert set(load_folder(tmp_path, "test").images.flatten().tolist()) == {2}
    assert load_folder(tmp_path).classes == ("a", "b")
    with pytest.raises(ValueError, match="no split 'dev'"):
        load_folder(tmp_path, "dev")


@pytest.mark.parametrize(
    "content", [b"", b"<html></html>", files.png(RNG.integers(0, 9, (9, 9), dtype=np.uint8))[:40]]
)
def test_a_broken_image_is_named_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    picture(tmp_path / "a" / "1.png", 4, 4)
    (tmp_path / "a" / "2.png").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"2\.png cannot be used") as caught:
        load_folder(tmp_path)
    assert "\n" not in str(caught.value)


def test_deep_and_huge_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "a" / "1.png")
    with pytest.raises(FileFormatError, match="8 bits"):
        load_folder(tmp_path)
    Image.new("1", (20_000, 20_000)).save(tmp_path / "a" / "1.png")
    with pytest.raises(FileFormatError, match=r"pixels|whole image"):
        load_folder(tmp_path)


def test_a_folder_without_classes_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="one folder per class"):
        load_folder(tmp_path)
