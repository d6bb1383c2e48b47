"""Files of sets in MNIST's layout: two IDX files per split."""

from torchcaps.data.download import Download
from torchcaps.data.files import Columns, DataFile, to_tensor
from torchcaps.data.readers.idx import read_idx


def read_images(data: bytes, count: int) -> Columns:
    """Parse images ``[n 1 28 28]``."""
    return {"images": to_tensor(read_idx(data, ndim=3, limit=count * 28 * 28)[:, None])}


def read_labels(data: bytes, count: int) -> Columns:
    """Parse labels ``[n]``."""
    return {"labels": to_tensor(read_idx(data, ndim=1, limit=count)).long()}


def idx_files(folder: str, mirrors: tuple[str, ...], table: str) -> dict[str, tuple[DataFile, ...]]:
    """Return the files of both splits.

    Args:
        folder: torchvision's name of the folder.
        mirrors: URLs of folders that hold the files.
        table: name, size of the .gz file, sha256 of the .gz file and sha256 of its content, for
            the images and labels of train and of test.
    """
    words = table.split()
    files = []
    for start in range(0, len(words), 4):
        name, size, packed, plain = words[start : start + 4]
        paths = (f"{folder}/raw/{name}.gz", f"{folder}/raw/{name}", f"{name}.gz", name)
        urls = tuple(f"{mirror}{name}.gz" for mirror in mirrors)
        files.append(
            DataFile(
                paths=paths,
                hashes=(f"sha256:{packed}", f"sha256:{plain}") * 2,
                count=60_000 if name.startswith("train") else 10_000,
                read=read_images if "images" in name else read_labels,
                download=Download(paths[0], urls, f"sha256:{packed}", int(size)),
            )
        )
    return {"train": tuple(files[:2]), "test": tuple(files[2:])}
