"""Readers of the canonical files: what they read, and what they refuse."""

import dataclasses
import gzip
import hashlib
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import helpers.data.files as files
from torchcaps.data import (
    SETS,
    Description,
    FileFormatError,
    ImageSet,
    load,
    missing_files,
)
from torchcaps.data.files import DataFile, DataFolder
from torchcaps.data.readers.bytes import gunzip
from torchcaps.data.readers.cifar import read_cifar_binary, read_cifar_pickle, unpickle
from torchcaps.data.readers.idx import read_idx
from torchcaps.data.readers.mat import read_mat
from torchcaps.data.readers.norb import read_norb
from torchcaps.data.sets.affnist import read_affnist
from torchcaps.data.sets.svhn import read_svhn

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)
COLOR = RNG.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 1, 1, 5], np.uint8)
FORTY = RNG.integers(0, 256, (6, 1, 40, 40), dtype=np.uint8)
STEREO = RNG.integers(0, 256, (6, 2, 96, 96), dtype=np.uint8)
INFO = RNG.integers(0, 9, (6, 4), dtype=np.int32)


def small(name: str, **counts: int) -> Description:
    """Return the set of that name with fewer images and no hashes, for files that a test wrote."""
    whole = SETS[name]
    all_counts = {**whole.counts, **counts}
    unhashed = {
        split: tuple(
            dataclasses.replace(
                file,
                hashes=("",) * len(file.paths),
                count=all_counts[split] * file.count // whole.counts[split],
                download=None,
            )
            for file in split_files
        )
        for split, split_files in whole.files.items()
    }
    return dataclasses.replace(whole, counts=all_counts, files=unhashed)


def load_files(description: Description, split: str, *, root: Path) -> ImageSet:
    loaded = description.read(description, split, DataFolder(root))
    assert isinstance(loaded, ImageSet)
    return loaded


def write(root: Path, file: DataFile, data: bytes, *, place: int = 0) -> Path:
    path = root / file.paths[place]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_idx_files_load_packed_or_not_and_in_either_folder(tmp_path: Path, place: int) -> None:
    spec = small("mnist", train=6)
    for file, array in zip(spec.files["train"], (GRAY, LABELS), strict=True):
        data = files.idx(array)
        write(tmp_path, file, files.gz(data) if place % 2 == 0 else data, place=place)
    loaded = load_files(spec, "train", root=tmp_path)
    assert loaded.images.shape == (6, 1, 28, 28)
    assert (loaded.images[:, 0].numpy() == GRAY).all()
    assert loaded.labels.tolist() == LABELS.tolist()
    assert loaded.classes[9] == "9"


def test_svhn_keeps_orientation_and_calls_ten_zero(tmp_path: Path) -> None:
    spec = small("svhn", test=6)
    write(tmp_path, spec.files["test"][0], files.svhn(COLOR, LABELS), place=1)
    loaded = load_files(spec, "test", root=tmp_path)
    assert (loaded.images.numpy() == COLOR).all()
    assert loaded.labels.tolist() == LABELS.tolist()


def test_affnist_is_read_from_all_its_batches(tmp_path: Path) -> None:
    spec = small("affnist", test=32 * 6)
    for number, file in enumerate(spec.files["test"]):
        rolled = np.roll(FORTY, number, 0)
        write(tmp_path, file, files.affnist(rolled, np.roll(LABELS, number)))
    loaded = load_files(spec, "test", root=tmp_path)
    assert loaded.images.shape == (192, 1, 40, 40)
    assert (loaded.images[6:12].numpy() == np.roll(FORTY, 1, 0)).all()
    assert loaded.labels[6:12].tolist() == np.roll(LABELS, 1).tolist()


def test_smallnorb_has_stereo_images_and_four_annotations(tmp_path: Path) -> None:
    spec = small("smallnorb", train=6)
    categories = np.array([0, 1, 2, 3, 4, 0], np.int32)
    contents = (files.norb(STEREO), files.norb(categories), files.norb(INFO))
    for file, data in zip(spec.files["train"], contents, strict=True):
        write(tmp_path, file, files.gz(data))
    loaded = load_files(spec, "train", root=tmp_path)
    assert (loaded.images.numpy() == STEREO).all()
    assert loaded.labels.tolist() == categories.tolist()
    for column, name in enumerate(("instance", "elevation", "azimuth", "lighting")):
        assert loaded.annotations[name].tolist() == INFO[:, column].tolist()


def test_both_cameras_of_smallnorb_are_images_of_their_own(tmp_path: Path) -> None:
    spec = small("smallnorb_mono", train=12)
    categories = np.array([0, 1, 2, 3, 4, 0], np.int32)
    contents = (files.norb(STEREO), files.norb(categories), files.norb(INFO))
    for file, data in zip(spec.files["train"], contents, strict=True):
        write(tmp_path, file, files.gz(data))
    loaded = load_files(spec, "train", root=tmp_path)
    assert loaded.images.shape == (12, 1, 96, 96)
    assert (loaded.images[:6, 0].numpy() == STEREO[:, 0]).all()
    assert (loaded.images[6:, 0].numpy() == STEREO[:, 1]).all()
    assert loaded.labels.tolist() == [*categories, *categories]
    assert loaded.annotations["camera"].tolist() == [0] * 6 + [1] * 6
    assert loaded.annotations["azimuth"].tolist() == INFO[:, 2].tolist() * 2
    assert len(set(loaded.indices.tolist())) == 12


@pytest.mark.parametrize("place", [0, 1])
def test_cifar100_loads_from_pickles_and_from_binaries(tmp_path: Path, place: int) -> None:
    spec = small("cifar100", train=6)
    fine, coarse = [99, 0, 5, 6, 7, 8], [19, 0, 1, 2, 3, 4]
    if place:
        labels = np.array([coarse, fine], np.uint8).T
        data = files.cifar_binary(COLOR, labels)
    else:
        data = files.cifar_pickle(COLOR, {"fine_labels": fine, "coarse_labels": coarse})
    write(tmp_path, spec.files["train"][0], data, place=place)
    loaded = load_files(spec, "train", root=tmp_path)
    assert (loaded.images.numpy() == COLOR).all()
    assert loaded.labels.tolist() == fine
    assert loaded.annotations["coarse_labels"].tolist() == coarse
    assert loaded.classes[99] == "worm"


def test_cifar10_batches_are_joined_in_order(tmp_path: Path) -> None:
    spec = small("cifar10", train=30)
    for number, file in enumerate(spec.files["train"]):
        write(tmp_path, file, files.cifar_pickle(COLOR, {"labels": [number] * 6}))
    loaded = load_files(spec, "train", root=tmp_path)
    assert loaded.labels.tolist() == [number for number in range(5) for _ in range(6)]


def test_fit_and_validation_divide_train_and_never_overlap(tmp_path: Path) -> None:
    spec = small("mnist", train=60)
    images, labels = np.tile(GRAY, (10, 1, 1)), np.tile(LABELS, 10)
    for file, array in zip(spec.files["train"], (images, labels), strict=True):
        write(tmp_path, file, files.idx(array), place=1)
    parts = {
        split: set(load_files(spec, split, root=tmp_path).indices.tolist())
        for split in ("train", "fit", "validation")
    }
    assert parts["fit"] | parts["validation"] == parts["train"] == set(range(60))
    assert not parts["fit"] & parts["validation"]
    assert parts["validation"] == set(range(54, 60))


WHOLE: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "idx": (files.idx(GRAY[:1, :4, :4]), lambda d: read_idx(d, ndim=3, limit=100)),
    "idx.gz": (files.gz(files.idx(GRAY[:1, :4, :4])), lambda d: read_idx(d, ndim=3, limit=100)),
    "norb": (files.norb(INFO), lambda d: read_norb(d, ndim=2, limit=100)),
    "binary": (
        files.cifar_binary(COLOR[:1], LABELS[:1, None]),
        lambda d: read_cifar_binary(d, label_bytes=1, limit=9),
    ),
    "pickle": (
        files.cifar_pickle(COLOR[:1], {"labels": [1]}),
        lambda d: read_cifar_pickle(d, label_keys=("labels",), limit=9),
    ),
    "mat": (files.svhn(COLOR[:1], LABELS[:1]), lambda d: read_svhn(d, 9)),
    "struct": (files.affnist(FORTY[:1], LABELS[:1]), lambda d: read_affnist(d, 9)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_every_truncation_is_refused(name: str) -> None:
    data, read = WHOLE[name]
    read(data)
    for length in range(len(data)):
        with pytest.raises(FileFormatError):
            read(data[:length])


@pytest.mark.parametrize("name", WHOLE)
def test_bytes_after_the_end_are_refused(name: str) -> None:
    data, read = WHOLE[name]
    with pytest.raises(FileFormatError):
        read(data + b"more")


def test_a_pickle_that_would_run_a_command_is_refused_unrun(tmp_path: Path) -> None:
    mark = tmp_path / "owned"
    hostile = f"\x80\x02cos\nsystem\nU\x80touch {mark}\x85R.".encode("latin-1")
    with pytest.raises(FileFormatError, match=r"names b'os\.system'"):
        unpickle(hostile)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "os\nsystem",
        "posix\nsystem",
        "nt\nsystem",
        "subprocess\nPopen",
        "builtins\neval",
        "builtins\nexec",
        "__builtin__\neval",
        "builtins\ngetattr",
        "importlib\nimport_module",
        "pickle\nloads",
        "numpy\nload",
        "numpy.core.multiarray\nfromfile",
        "numpy.core.multiarray\n_reconstruct_",
        "numpy\nndarray_",
        "torch\nload",
        "_codecs\nencode",
        "copyreg\n_reconstructor",
        "numpy\n\u0441ore",
    ],
)
@pytest.mark.parametrize("call", [b"U\x01x\x85R", b")R", b"}b", b"(U\x01xo", b")\x81"])
def test_no_name_outside_the_list_is_looked_up_or_called(name: str, call: bytes) -> None:
    with pytest.raises(FileFormatError, match="which CIFAR never does"):
        unpickle(b"\x80\x02c" + name.encode() + b"\n" + call + b".")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]q\x00h\x00a.",
        b"\x80\x02(((((.",
        b"\x80\x02}(]K\x01u.",
        b"\x80\x02cnumpy\nndarray\nK\x01\x85R.",
        b"\x80\x02cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.",
        b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00N.",
        b"\x80\x02r\xff\xff\xff\xffN.",
        b"\x80\x02T\xff\xff\xff\x7f.",
        b"",
    ],
)
def test_odd_pickles_are_not_batches(data: bytes) -> None:
    with pytest.raises(FileFormatError):
        read_cifar_pickle(data, label_keys=("labels",), limit=4)


def test_headers_that_announce_too_much_are_refused_before_anything_is_allocated() -> None:
    huge = 0xFFFFFFFF
    with pytest.raises(FileFormatError, match="more than"):
        read_idx(bytes((0, 0, 8, 3)) + struct.pack(">3I", huge, huge, huge), ndim=3, limit=10**9)
    norb = struct.pack("<6I", 0x1E3D4C55, 4, huge, huge, huge, huge)
    with pytest.raises(FileFormatError, match="more than"):
        read_norb(norb, ndim=4, limit=10**9)


def test_compressed_floods_stop_at_the_cap() -> None:
    flood = bytes(10_000_000)
    with pytest.raises(FileFormatError, match="more than the 1000 bytes"):
        gunzip(files.gz(flood), limit=1000)
    packed = zlib.compress(files.mat_array("unwanted", np.zeros((10_000_000, 1), np.uint8)))
    element = struct.pack("<II", 15, len(packed)) + packed
    with pytest.raises(FileFormatError, match="more than the 1000 bytes"):
        read_mat(files.mat_file(element), names=("X",), limit=1000)
    with pytest.raises(FileFormatError, match="unpack to more"):
        read_mat(files.mat_file(*[element] * 3), names=("X",), limit=15_000_000)


def test_big_endian_mat_files_are_read() -> None:
    def element(kind: int, content: bytes) -> bytes:
        return struct.pack(">II", kind, len(content)) + content + b"\0" * (-len(content) % 8)

    content = element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(">2i", 2, 1))
    content += element(1, b"label") + element(9, struct.pack(">2d", 1.5, -2.0))
    data = b" " * 124 + struct.pack(">H", 0x0100) + b"MI" + element(14, content)
    value = read_mat(data, names=("label",), limit=0)["label"]
    assert isinstance(value, np.ndarray)
    assert value.tolist() == [[1.5], [-2.0]]


def test_a_changed_pixel_is_noticed_where_the_hash_is_published(tmp_path: Path) -> None:
    spec = SETS["mnist"]
    for file, array in zip(spec.files["test"], (GRAY, LABELS), strict=True):
        write(tmp_path, file, files.gz(files.idx(array)))
    with pytest.raises(FileFormatError, match="differs from the published") as caught:
        load("mnist", "test", root=tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def published(spec: Description, images: bytes, labels: bytes) -> Description:
    """Return the set as if these were its published test files."""
    hashed = tuple(
        dataclasses.replace(
            file,
            hashes=tuple(
                f"sha256:{hashlib.sha256(form).hexdigest()}" for form in (files.gz(data), data)
            )
            * 2,
            count=6,
        )
        for file, data in zip(spec.files["test"], (images, labels), strict=True)
    )
    return dataclasses.replace(
        spec, counts={**spec.counts, "test": 6}, files={**spec.files, "test": hashed}
    )


def test_the_right_file_packed_again_is_accepted_and_another_is_not(tmp_path: Path) -> None:
    images, labels = files.idx(GRAY), files.idx(LABELS)
    spec = published(SETS["mnist"], images, labels)
    for file, data in zip(spec.files["test"], (images, labels), strict=True):
        assert gzip.compress(data, 1) != files.gz(data)
        write(tmp_path, file, gzip.compress(data, 1))
    assert (load_files(spec, "test", root=tmp_path).images[:, 0].numpy() == GRAY).all()
    write(tmp_path, spec.files["test"][0], gzip.compress(files.idx(GRAY[::-1]), 1))
    with pytest.raises(FileFormatError, match="differs from the published"):
        load_files(spec, "test", root=tmp_path)


@pytest.mark.parametrize("pack", [bytes, files.gz, lambda data: gzip.compress(data, 1)])
def test_a_file_of_the_same_name_that_is_another_set_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    labels = files.idx(LABELS)
    mnist = published(SETS["mnist"], files.idx(GRAY), labels)
    fashion = published(SETS["fashion_mnist"], files.idx(GRAY[::-1]), files.idx(LABELS[::-1]))
    monkeypatch.setitem(SETS, "mnist", mnist)
    monkeypatch.setitem(SETS, "fashion_mnist", fashion)
    for file, data in zip(mnist.files["test"], (files.idx(GRAY), labels), strict=True):
        write(tmp_path, file, pack(data), place=3 if pack is bytes else 2)
    assert len(load("mnist", "test", root=tmp_path, download=False)) == 6
    with pytest.raises(FileNotFoundError, match="downloading is off"):
        load("fashion-mnist", "test", root=tmp_path, download=False)
    assert len(missing_files("mnist", tmp_path)) == 2
    assert len(missing_files("fashion_mnist", tmp_path)) == 4


def test_too_few_images_and_foreign_labels_are_refused(tmp_path: Path) -> None:
    spec = small("mnist", train=7)
    for file, array in zip(spec.files["train"], (GRAY, LABELS), strict=True):
        write(tmp_path, file, files.idx(array), place=1)
    with pytest.raises(FileFormatError, match=r"\[7, 1, 28, 28\] but is \[6, 1, 28, 28\]"):
        load_files(spec, "train", root=tmp_path)
    write(tmp_path, spec.files["train"][1], files.idx(LABELS + 10), place=1)
    with pytest.raises(FileFormatError, match=r"outside 0\.\.9"):
        load_files(small("mnist", train=6), "train", root=tmp_path)


def test_an_image_set_refuses_what_is_not_images() -> None:
    with pytest.raises(ValueError, match="uint8"):
        ImageSet(torch.zeros(2, 1, 4, 4), torch.zeros(2, dtype=torch.long), ("a",))
    with pytest.raises(ValueError, match="labels must be long"):
        ImageSet(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(3).long(), ("a",))
