"""The user's own images."""

import io
import weakref
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import helpers.data.files as files
from torchcaps.data import (
    FileFormatError,
    describe_own,
    image_folder as folder,
    load,
    load_folder,
)
from torchcaps.preprocessing.images import as_batch
from torchcaps.preprocessing.picture import decode_image, measure_image

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
    (tmp_path / ".hidden").mkdir()
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


def test_images_of_other_sizes_keep_their_aspect_ratio(tmp_path: Path) -> None:
    disk = np.hypot(*(np.mgrid[:60, :120] - np.array([29.5, 59.5])[:, None, None])) < 20
    for name, array in (("wide", disk), ("tall", disk.T)):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(array).convert("L").save(tmp_path / "a" / f"{name}.png")
    loaded = load_folder(tmp_path, size=(30, 30))
    for image in loaded.images[:, 0].float() / 255:
        ink = image.nonzero().float()
        height, width = (ink.amax(0) - ink.amin(0)).tolist()
        assert height == pytest.approx(20, abs=2)  # squeezed it would be 10 in one direction
        assert width == pytest.approx(20, abs=2)
    assert loaded.reading is not None
    assert loaded.reading.sizes == {(60, 120): 1, (120, 60): 1}


def test_a_folder_s_images_are_those_that_preprocessing_makes_of_its_files(tmp_path: Path) -> None:
    for name, shape in (("1", (37, 53, 3)), ("2", (90, 41)), ("3", (16, 16, 3))):
        picture(tmp_path / "a" / f"{name}.png", *shape)
    paths = sorted((tmp_path / "a").iterdir())
    for channels in (1, 3):
        expected = as_batch(paths, channels, (16, 16))
        loaded = load_folder(tmp_path, size=(16, 16), color=channels == 3)
        assert torch.equal(loaded.images, expected)


def test_gray_stays_gray_unless_something_has_color(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 8, 8)
    assert load_folder(tmp_path).images.shape[1] == 1
    picture(tmp_path / "b" / "2.png", 8, 8, 3)
    assert load_folder(tmp_path).images.shape[1] == 3
    assert load_folder(tmp_path, color=False).images.shape[1] == 1


def test_transparent_images_lie_on_black(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGBA", (4, 4), (10, 20, 30, 128)).save(tmp_path / "a" / "1.png")
    Image.new("RGBA", (4, 4), (200, 200, 200, 0)).save(tmp_path / "a" / "2.png")
    Image.new("LA", (4, 4), (100, 0)).save(tmp_path / "a" / "3.png")
    Image.new("P", (4, 4), 3).save(tmp_path / "a" / "4.gif", transparency=3)
    Image.new("L", (4, 4), 90).save(tmp_path / "a" / "5.png", transparency=90)
    loaded = load_folder(tmp_path)
    assert loaded.images[0, :, 0, 0].tolist() == [5, 10, 15]
    assert int(loaded.images[1:].max()) == 0
    for name in ("1.png", "2.png", "4.gif"):
        (tmp_path / "a" / name).unlink()
    assert load_folder(tmp_path).images.shape == (2, 1, 4, 4)


@pytest.mark.parametrize("suffix", ["gif", "png", "bmp", "tiff"])
def test_a_palette_of_grays_is_gray_and_one_of_colors_is_color(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "a").mkdir()
    for entries, channels in (([0, 0, 0, 90, 90, 90], 1), ([0, 0, 0, 90, 90, 91], 3)):
        image = Image.new("P", (4, 4), 1)
        image.putpalette(entries)
        image.save(tmp_path / "a" / f"1.{suffix}")
        loaded = load_folder(tmp_path)
        assert loaded.images.shape[1] == channels
        assert loaded.images[0, 0, 0, 0] == 90


def test_of_an_animation_the_first_frame_counts(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    frames = [Image.new("L", (4, 4), value) for value in (50, 250)]
    frames[0].save(tmp_path / "a" / "1.gif", save_all=True, append_images=frames[1:])
    assert set(load_folder(tmp_path).images.flatten().tolist()) == {50}


@pytest.mark.parametrize("suffix", ["jpg", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_their_exif_data_say(
    tmp_path: Path, suffix: str, orientation: int
) -> None:
    pixels = np.kron(np.array([[0, 80, 160], [240, 40, 120]], np.uint8), np.ones((16, 16), "u1"))
    # how each orientation stores an image that is seen as ``pixels``
    stored = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.T,
        6: np.rot90(pixels, 1),
        7: pixels[::-1, ::-1].T,
        8: np.rot90(pixels, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "a").mkdir()
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "a" / f"1.{suffix}", exif=exif)
    shown = load_folder(tmp_path, color=False).images[0, 0].numpy()
    assert shown.shape == (32, 48)
    assert np.abs(shown[8::16, 8::16].astype(int) - pixels[8::16, 8::16]).max() < 12


def test_damaged_exif_data_do_not_spoil_an_image(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    image = Image.new("L", (6, 4), 9)
    image.save(tmp_path / "a" / "1.jpg", exif=b"Exif\0\0no such thing")
    assert load_folder(tmp_path).images.shape == (1, 1, 4, 6)


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


def test_classes_size_and_color_are_those_of_train_in_every_split(tmp_path: Path) -> None:
    for name in "abc":
        picture(tmp_path / "train" / name / "1.png", 6, 8, 3)
    for name in "ac":
        picture(tmp_path / "test" / name / "1.png", 4, 4, value=ord(name))
    test = load_folder(tmp_path, "test")
    assert test.classes == ("a", "b", "c")
    assert test.labels.tolist() == [0, 2]
    assert test.images.shape == (2, 3, 6, 8)
    assert test.images[:, 0, 0, 0].tolist() == [ord("a"), ord("c")]
    picture(tmp_path / "test" / "d" / "1.png", 4, 4)
    with pytest.raises(ValueError, match=r"has the class 'd', which .*train lacks"):
        load_folder(tmp_path, "test")


def test_fit_and_validation_have_the_size_and_color_of_the_whole(tmp_path: Path) -> None:
    for number in range(10):
        shape = (5, 7, 3) if number == 9 else (4, 4)
        picture(tmp_path / "a" / f"{number}.png", *shape)
    for number in range(3):
        picture(tmp_path / "few" / f"{number}.png", 4, 4)
    parts = [load_folder(tmp_path, split) for split in ("train", "fit", "validation")]
    assert [part.images.shape[1:] for part in parts] == [(3, 4, 4)] * 3
    assert [part.classes for part in parts] == [("a", "few")] * 3


def test_only_one_decoded_image_is_held_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        picture(tmp_path / "a" / f"{number}.png", 50, 50)
    alive: list[weakref.ref[NDArray[np.uint8]]] = []

    def decode(file: IO[bytes]) -> NDArray[np.uint8]:
        assert not any(ref() is not None for ref in alive)
        array = decode_image(file)
        alive.append(weakref.ref(array))
        return array

    monkeypatch.setattr(folder, "decode_image", decode)
    load_folder(tmp_path, size=(8, 8))
    assert len(alive) == 5


def test_the_header_alone_gives_size_and_color(tmp_path: Path) -> None:
    picture(tmp_path / "1.png", 300, 200, 3)
    head = (tmp_path / "1.png").read_bytes()[:200]
    assert measure_image(io.BytesIO(head)) == ((300, 200), True)
    with pytest.raises(FileFormatError):
        decode_image(io.BytesIO(head))


@pytest.mark.parametrize("size", [32, (32,), (32, 0), (32, 1.5), "32"])
def test_a_size_is_height_and_width(tmp_path: Path, size: tuple[int, int]) -> None:
    picture(tmp_path / "a" / "1.png", 4, 4)
    with pytest.raises(ValueError, match=r"size.* not "):
        load_folder(tmp_path, size=size)


def test_the_home_folder_may_be_written_as_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture(tmp_path / "mine" / "a" / "1.png", 4, 4)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert len(load("~/mine")) == 1


@pytest.mark.parametrize(
    "content", [b"", b"<html></html>", files.png(RNG.integers(0, 9, (9, 9), dtype=np.uint8))[:40]]
)
def test_a_broken_image_is_named_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    picture(tmp_path / "a" / "1.png", 4, 4)
    (tmp_path / "a" / "2.png").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"2\.png cannot be used") as caught:
        load_folder(tmp_path)
    assert "\n" not in str(caught.value)


def test_bad_images_are_listed_at_once_or_skipped(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in "ab":
            for number in range(3):
                picture(tmp_path / split / name / f"{number}.png", 4, 4)
    whole = (tmp_path / "train" / "a" / "0.png").read_bytes()
    bad = [tmp_path / place for place in ("train/a/1.png", "train/b/2.png", "test/b/0.png")]
    bad[0].write_bytes(b"")
    bad[1].write_bytes(whole[:60])
    bad[2].write_bytes(b"<html></html>")
    for split in ("train", "test"):
        with pytest.raises(FileFormatError) as caught:
            load_folder(tmp_path, split)
        assert [str(path) in str(caught.value) for path in bad] == [True] * 3
        assert str(caught.value).count("cannot be used") == 3
        assert "\n" not in str(caught.value)
    train = load_folder(tmp_path, skip_bad=True)
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert train.images.shape == (4, 1, 4, 4)
    assert train.reading is not None
    assert train.reading.skipped == (str(bad[0]), str(bad[1]))
    assert load_folder(tmp_path, "test", skip_bad=True).labels.tolist() == [0, 0, 0, 1, 1]
    for number in (1, 2):
        (tmp_path / "test" / "b" / f"{number}.png").write_bytes(b"")
    with pytest.raises(ValueError, match="no usable image of the class 'b'"):
        load_folder(tmp_path, "test", skip_bad=True)


def test_a_long_list_of_bad_images_is_cut(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(23):
        (tmp_path / "a" / f"{number:02}.png").touch()
    with pytest.raises(FileFormatError, match=r"19\.png cannot .* and 3 more; convert"):
        load_folder(tmp_path)


def test_images_that_do_not_fit_into_memory_are_refused_before_they_are_read(
    tmp_path: Path,
) -> None:
    for number in range(3):
        picture(tmp_path / "a" / f"{number}.png", 4, 4)
    with pytest.raises(ValueError, match=r"3 images, which take .* GiB .* --set resize=64"):
        load_folder(tmp_path, size=(1_000_000, 1_000_000))


def test_a_link_to_nowhere_is_named_in_one_sentence(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 4, 4)
    (tmp_path / "a" / "2.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(FileFormatError, match=r"2\.png cannot be used: No such file"):
        load_folder(tmp_path)
    assert describe_own(tmp_path)["images"] == 2


def test_deep_and_huge_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "a" / "1.png")
    with pytest.raises(FileFormatError, match="8 bits"):
        load_folder(tmp_path)
    (tmp_path / "a" / "1.png").unlink()
    (tmp_path / "a" / "1.tiff").write_bytes(files.big_endian_tiff(4))
    with pytest.raises(FileFormatError, match=r"8 bits per channel; convert .*--skip-bad$"):
        load_folder(tmp_path, size=(4, 4), color=False)
    (tmp_path / "a" / "1.tiff").unlink()
    Image.new("1", (20_000, 20_000)).save(tmp_path / "a" / "1.png")
    with pytest.raises(FileFormatError, match=r"pixels|whole image"):
        load_folder(tmp_path)


def test_a_folder_without_classes_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="one folder per class"):
        load_folder(tmp_path)
