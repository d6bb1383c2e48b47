"""Files of CIFAR-10 and CIFAR-100: Python pickles or the binary version."""

from collections.abc import Mapping
from functools import partial

from torchcaps.data.download import Download
from torchcaps.data.files import Columns, DataFile, to_tensor
from torchcaps.data.readers.cifar import read_cifar_binary, read_cifar_pickle


def read_batch(data: bytes, count: int, *, label_keys: tuple[str, ...]) -> Columns:
    """Parse images and labels of one file; a pickle begins with a byte that is no label."""
    if data[:1] == b"\x80":
        images, labels = read_cifar_pickle(data, label_keys=label_keys, limit=count)
    else:
        images, raw = read_cifar_binary(data, label_bytes=len(label_keys), limit=count)
        labels = raw.astype("int64")
    columns = {"images": to_tensor(images), "labels": to_tensor(labels[:, -1])}
    if len(label_keys) > 1:
        columns["coarse_labels"] = to_tensor(labels[:, 0])
    return columns


def cifar_files(
    archive: Download,
    pickles: str,
    binaries: str,
    label_keys: tuple[str, ...],
    splits: Mapping[str, Mapping[str, str]],
) -> dict[str, tuple[DataFile, ...]]:
    """Return the files of all splits.

    Args:
        archive: archive of the pickles.
        pickles: folder of the pickles.
        binaries: folder of the binary version.
        label_keys: names of the label lists in a pickle, the last one for ``labels``.
        splits: md5 of each pickle by file name, by split.
    """
    count = {"train": 50_000, "test": 10_000}
    return {
        split: tuple(
            DataFile(
                paths=(f"{pickles}/{name}", f"{binaries}/{name}.bin"),
                hashes=(f"md5:{digest}", ""),
                count=count[split] // len(hashes),
                read=partial(read_batch, label_keys=label_keys),
                download=archive,
            )
            for name, digest in hashes.items()
        )
        for split, hashes in splits.items()
    }
