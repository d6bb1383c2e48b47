"""Data sets and their files are found by name and folder, or named in one sentence."""

from pathlib import Path

import pytest

from torchcaps.data import (
    data_folder,
    find,
    load,
)


def test_a_missing_file_is_one_sentence_with_file_folder_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load("smallnorb", root=tmp_path, download=False)
    message = str(caught.value)
    assert "training-dat.mat.gz" in message
    assert str(tmp_path) in message
    assert "https://cs.nyu.edu" in message
    assert "\n" not in message


def test_unknown_names_and_splits_say_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'fashion_mnist'"):
        load("fashion_mnits")
    with pytest.raises(ValueError, match="named by a string such as 'mnist', not None"):
        load(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it has train, fit, validation, test"):
        load("mnist", "dev", root=tmp_path)
    with pytest.raises(FileNotFoundError, match="not a folder"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("CIFAR-10", "cifar10"),
        ("cifar_100", "cifar100"),
        ("FashionMNIST", "fashion_mnist"),
        ("Fashion-MNIST", "fashion_mnist"),
        ("small-norb", "smallnorb"),
        ("strokes-overlapping", "strokes_overlapping"),
    ],
)
def test_hyphens_underscores_and_capitals_do_not_matter(name: str, found: str) -> None:
    assert find(name).name == found


def test_the_data_folder_is_named_by_argument_then_variable_then_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "variable"))
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == tmp_path / "variable"
    monkeypatch.delenv("TORCHCAPS_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert data_folder() == tmp_path / "torchcaps"
