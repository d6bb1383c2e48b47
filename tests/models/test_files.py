"""Networks as files: exact round trips, hostile and broken files, the Hugging Face hub."""

import contextlib
import json
import random
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import torchcaps as tc
from helpers.networks.published import example
from helpers.repetitions import mark_slow_except
from torchcaps.models import ZOO
from torchcaps.models.weights.files import describe
from torchcaps.models.zoo import count_parameters

SMALL = [name for name in ZOO if count_parameters(name) < 1_500_000]


@pytest.mark.parametrize("name", mark_slow_except(ZOO, *SMALL, "sabour2017/mnist"))
def test_saving_and_loading_is_exact(name: str, tmp_path: Path) -> None:
    network, images, _ = example(name, 2)
    if name in SMALL:
        with torch.no_grad():
            network.train()(images)  # move the running statistics
    path = tmp_path / "network.safetensors"
    tc.save(network, path)
    assert list(tmp_path.iterdir()) == [path]
    again = tc.load(path)
    path.unlink()
    assert again.name == name
    assert not again.training
    assert all(p.requires_grad for p in again.parameters())
    saved, loaded = network.state_dict(), again.state_dict()
    assert saved.keys() == loaded.keys()
    assert all(torch.equal(saved[key], loaded[key]) for key in saved)
    if name in SMALL:
        with torch.no_grad():
            assert torch.equal(network.eval()(images).scores, again(images).scores)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_file_keeps_the_type_of_its_weights(dtype: torch.dtype, tmp_path: Path) -> None:
    network = tc.build("zhao2020/smallnorb").to(dtype)
    tc.save(network, tmp_path / "network.safetensors")
    again = tc.load(tmp_path / "network.safetensors")
    assert {p.dtype for p in again.parameters()} == {dtype}
    for a, b in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    single = tc.build("zhao2020/smallnorb")
    tc.load_weights(single, tmp_path / "network.safetensors")
    assert {p.dtype for p in single.parameters()} == {torch.float32}


def test_iterations_set_later_are_saved_too(tmp_path: Path) -> None:
    for name in ("sabour2017/svhn", "tsai2020/cifar10-simple"):
        network = tc.build(name).eval()
        network.set_iterations(1)
        tc.save(network, tmp_path / "network.safetensors")
        images = torch.rand(2, *network.image_shape)
        again = tc.load(tmp_path / "network.safetensors")
        assert torch.equal(network(images).scores, again(images).scores)


HOSTILE: list[Any] = [
    None, 5, [], {}, {"network": "sabour2017/mnist"}, {"network": 3, "overrides": {}},
    {"network": ["sabour2017/mnist"], "overrides": {}},
    {"network": "sabour2017/mnist\nrm", "overrides": {}},
    {"network": "sabour2017/mnist", "overrides": None},
    {"network": "sabour2017/mnist", "overrides": [1]},
    *(
        {"network": "sabour2017/mnist", "overrides": {key: value}}
        for key, value in (
            ("n_classes", 10**9), ("n_classes", 2.5), ("n_classes", "5"), ("n_classes", True),
            ("n_classes", -1), ("iterations", 10**6), ("image_shape", "abc"), ("image_shape", 5),
            ("image_shape", [[1], 2, 3]), ("image_shape", [1, 10**6, 10**6]),
            ("image_shape", [1, 28]), ("__class__", 1),
        )
    ),
    *(
        {"network": "sabour2017/mnist", "overrides": {}, "classes": classes}
        for classes in ("abc", [1], {"a": 0}, None)
    ),
]  # fmt: skip


@pytest.mark.parametrize("described", HOSTILE, ids=str)
def test_hostile_metadata_are_refused_before_anything_is_built(
    described: object, tmp_path: Path
) -> None:
    path = tmp_path / "network.safetensors"
    save_file({"x": torch.zeros(1)}, path, {"torchcaps": json.dumps(described)})
    for attempt in (tc.load, partial(tc.load_weights, tc.build("zhao2020/smallnorb"))):
        with pytest.raises(ValueError, match="does not know") as caught:
            attempt(path)
        assert "\n" not in str(caught.value)


def test_metadata_nested_without_end_and_weights_of_another_kind_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "network.safetensors"
    save_file({"x": torch.zeros(1)}, path, {"torchcaps": "[" * 100_000})
    with pytest.raises(ValueError, match="does not say which"):
        tc.load(path)
    network = tc.build("zhao2020/smallnorb")
    bytes_only = {name: x.to(torch.uint8) for name, x in network.state_dict().items()}
    described = {"network": "zhao2020/smallnorb", "overrides": {"definition": 2}}
    save_file(bytes_only, path, {"torchcaps": json.dumps(described)})
    with pytest.raises(ValueError, match="as U8, which is not a type it can have"):
        tc.load(path)
    described = {"network": "sabour2017/mnist", "overrides": {"image_shape": [1, 4000, 4000]}}
    save_file({"x": torch.zeros(1)}, path, {"torchcaps": json.dumps(described)})
    with pytest.raises(ValueError, match="tensors differ"):
        tc.load(path)


def test_a_file_that_is_cut_or_flipped_is_refused_or_whole(tmp_path: Path) -> None:
    path = tmp_path / "network.safetensors"
    tc.save(tc.build("zhao2020/smallnorb"), path)
    whole = path.read_bytes()
    generator = random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        if generator.random() < 0.3:
            del data[generator.randrange(len(data)) :]
        else:
            for _ in range(generator.randint(1, 8)):
                data[generator.randrange(12_000)] = generator.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(ValueError):
            assert tc.load(path).name == "zhao2020/smallnorb"


def test_a_flipped_bit_of_a_weight_is_noticed(tmp_path: Path) -> None:
    path, network = tmp_path / "network.safetensors", tc.build("zhao2020/smallnorb")
    tc.save(network, path)
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    generator = random.Random(0)
    for _ in range(20):
        data = bytearray(whole)
        data[generator.randrange(start, len(data))] ^= 1 << generator.randrange(8)
        path.write_bytes(data)
        with pytest.raises(ValueError, match="its data are not those that were saved"):
            tc.load(path)
        with pytest.raises(ValueError, match="its data are not those that were saved"):
            tc.load_weights(network, path)
    earlier = {"torchcaps": json.dumps({"network": "zhao2020/smallnorb", "overrides": {}})}
    save_file(tc.build("zhao2020/smallnorb", definition=1).state_dict(), path, earlier)
    assert tc.load(path).overrides == {"definition": 1}


def test_changes_to_a_published_network_are_saved_with_it(tmp_path: Path) -> None:
    network = tc.build(
        "tsai2020/cifar10-simple", image_shape=(1, 20, 24), n_classes=3, iterations=1
    )
    path = tmp_path / "network.safetensors"
    tc.save(network, path)
    again = tc.load(path)
    assert (again.image_shape, again.n_classes) == ((1, 20, 24), 3)
    images = torch.rand(1, 1, 20, 24)
    assert torch.equal(network.eval()(images).scores, again.eval()(images).scores)
    with pytest.raises(ValueError, match="and this network is tsai2020/cifar10-simple with iter"):
        tc.load_weights(tc.build("tsai2020/cifar10-simple", iterations=3), path)


def test_a_file_of_another_kind_is_refused_with_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "network.safetensors"
    tc.save(tc.build("zhao2020/affnist"), path)
    attempts: list[tuple[str, Any]] = [
        (
            "holds zhao2020/affnist with definition=2, and this",
            lambda: tc.load_weights(tc.build("sabour2017/svhn"), path),
        ),
        (
            "tensors differ",
            lambda: tc.load_weights(tc.EMCapsNet((2, 32, 32), 5, widths=(2, 2, 2)), path),
        ),
        ("built by hand", lambda: tc.save(tc.EMCapsNet((2, 32, 32), 5), tmp_path / "x")),
        (
            "built by hand",
            lambda: tc.save(cast(Any, tc.CapsuleHead(8, n_classes=2)), tmp_path / "x"),
        ),
    ]
    cut, foreign, unknown, empty = (tmp_path / name for name in "abcd")
    cut.write_bytes(path.read_bytes()[:-1000])
    empty.write_bytes(b"")
    save_file({"x": torch.zeros(1)}, foreign)
    named = json.dumps({"network": "nobody/nothing", "overrides": {}})
    save_file({"x": torch.zeros(1)}, unknown, {"torchcaps": named})
    attempts += [
        ("not a whole safetensors file", lambda: tc.load(cut)),
        ("not a whole safetensors file", lambda: tc.load(empty)),
        ("does not say which torchcaps network", lambda: tc.load(foreign)),
        ("this version does not know", lambda: tc.load(unknown)),
    ]
    for sentence, attempt in attempts:
        with pytest.raises(ValueError, match=sentence) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        tc.load(tmp_path / "nowhere")
    for place in (tmp_path, tmp_path / "no folder" / "network"):
        with pytest.raises(FileNotFoundError, match="cannot be written"):
            tc.save(tc.build("zhao2020/smallnorb"), place)


def test_a_file_that_may_not_be_read_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "network.safetensors"
    tc.save(tc.build("demo/strokes-em"), path)

    def denied(path: Path, *_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(PermissionError):
        describe(path)


def test_hugging_face_conventions(tmp_path: Path) -> None:
    network, images, _ = example("zhao2020/smallnorb", 2)
    network.save_pretrained(tmp_path / "folder")
    names = {path.name for path in (tmp_path / "folder").iterdir()}
    assert names == {"model.safetensors", "config.json", "README.md"}
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert config == {"network": "zhao2020/smallnorb", "overrides": {"definition": 2}}
    again = tc.Network.from_pretrained(tmp_path / "folder")
    assert torch.equal(network.eval()(images).scores, again.eval()(images).scores)
    assert isinstance(tc.ResCapsNet.from_pretrained(tmp_path / "folder"), tc.ResCapsNet)
    with pytest.raises(ValueError, match="holds a ResCapsNet, not a CapsNet"):
        tc.CapsNet.from_pretrained(tmp_path / "folder")
    with pytest.raises(ValueError, match="does not know nonsense"):
        tc.Network.from_pretrained(tmp_path / "folder", nonsense=3)


def test_a_compiled_or_distributed_network_is_saved_as_the_network_inside(tmp_path: Path) -> None:
    net = tc.build("demo/strokes-dynamic")
    path = tmp_path / "net.safetensors"
    compiled = cast(nn.Module, torch.compile(net, backend="eager"))
    for wrapped in (compiled, nn.DataParallel(net), nn.DataParallel(compiled)):
        tc.save(wrapped, path)
        for name, tensor in tc.load(path).state_dict().items():
            assert torch.equal(tensor, net.state_dict()[name]), name
    with pytest.raises(ValueError, match="this Linear was built by hand"):
        tc.save(nn.DataParallel(nn.Linear(2, 2)), path)
