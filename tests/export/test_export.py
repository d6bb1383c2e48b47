"""Exported networks: run by others, they give PyTorch's numbers and say what they are."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.commands import invoke, refused
from helpers.repetitions import mark_slow_except
from torchcaps.data import Normalize
from torchcaps.errors import MissingFileError, TorchcapsError, UsageError
from torchcaps.export.parity import find_images, recipe_of
from torchcaps.export.traced import Graph, Traced
from torchcaps.models.weights.files import describe
from torchcaps.models.weights.pretrained import shipped

QUICK = "yang2021/fashion-mnist-l1"


def small(name: str = "demo/strokes-dynamic") -> tc.Network:
    torch.manual_seed(0)
    network = tc.build(name).eval()
    network.preprocessing = tc.Preprocessing(1, (28, 28), (Normalize([0.2], [0.4]),))
    return network


def run(path: Path, images: Tensor) -> dict[str, Tensor]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    parts = [session.run(None, {"images": part.numpy()}) for part in images.split(100)]
    outputs = (torch.cat([torch.from_numpy(part[i]) for part in parts]) for i in range(len(names)))
    return dict(zip(names, outputs, strict=True))


def metadata(path: Path) -> dict[str, Any]:
    (entry,) = onnx.load(path, load_external_data=False).metadata_props
    assert entry.key == "torchcaps"
    facts: dict[str, Any] = json.loads(entry.value)
    return facts


@pytest.mark.parametrize("name", mark_slow_except(shipped(), QUICK))
def test_a_shipped_network_gives_pytorchs_predictions_as_onnx(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    result = invoke("export", name, "--to", "onnx", "--out", path)
    assert result.exit_code == 0, result.output
    assert "100 of 100 predictions are equal" in " ".join(result.stdout.split())
    network = tc.build(name, pretrained=True).eval()
    shape = Graph(network).input_shape
    images, _ = find_images(recipe_of(name, network.name), shape, 30 if name == QUICK else 1000)
    images = (images * 255).round() / 255  # as files hold them
    outputs = run(path, images)
    with torch.no_grad():
        bytes_seen = (images * 255).round().byte()
        expected = torch.cat(
            [network(network.preprocess(part)).scores for part in bytes_seen.split(100)]
        )
    assert next(iter(outputs)) == "scores"
    torch.testing.assert_close(outputs["scores"], expected, rtol=1e-4, atol=1e-4)
    top = network.n_objects
    assert torch.equal(tc.predict(outputs["scores"], top=top), tc.predict(expected, top=top))
    trained = describe(shipped()[name])["trained"]
    facts = metadata(path)
    assert facts["classes"] == list(network.class_names or ())
    for fact in ("recipe", "test", "commit", "weights_sha256"):
        assert facts["trained"][fact] == trained[fact]
    assert len(facts["sha256"]) == 64
    n_encoder = sum(
        weight.numel() for key, weight in network.state_dict().items() if "decoder" not in key
    )
    limit = 2.6 if name.startswith("zhao2020") else 4 / 3  # Zhao's small weights are float16
    assert path.stat().st_size < limit * n_encoder
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]


def test_no_path_of_the_exporting_machine_is_in_the_file(tmp_path: Path) -> None:
    tc.export(small(), tmp_path / "net.onnx", decoder=True)
    content = (tmp_path / "net.onnx").read_bytes()
    assert b".py" not in content
    assert str(tmp_path).encode() not in content


@pytest.mark.parametrize("name", mark_slow_except([n for n in tc.list_models() if "strokes" in n]))
def test_a_traced_network_gives_pytorchs_couplings_as_onnx(name: str, tmp_path: Path) -> None:
    _check_trace(small(name), tmp_path / "net.onnx")


def test_a_traced_network_gives_pytorchs_couplings_without_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = small()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        exported = tc.export(network, tmp_path / "net.onnx", trace=True, iterations=2)
    assert exported.difference < 1e-5
    assert metadata(exported.path)["layers"][0]["name"] == "classes"
    images = torch.rand(3, 1, 28, 28)
    _check_outputs(exported.path, Traced(network, iterations=2), images)


def _check_trace(network: tc.Network, path: Path) -> None:
    tc.export(network, path, trace=True)
    _check_outputs(path, Traced(network), torch.rand(3, 1, 28, 28))


def _check_outputs(path: Path, graph: Traced, images: Tensor) -> None:
    outputs = run(path, images)
    with torch.no_grad():
        expected = graph(images)
    assert list(outputs) == list(expected)
    torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-4)


def test_nearly_absent_children_keep_their_shares_as_onnx(tmp_path: Path) -> None:
    network = small("demo/strokes-self")
    with torch.no_grad():
        network.get_parameter("primary.activation_conv.bias").fill_(-18.0)
        network.get_parameter("classes.routing.weight").normal_()
    exported = tc.export(network, tmp_path / "net.onnx", trace=True)
    assert exported.difference < 1e-5


def test_a_pytorch_program_gives_the_networks_scores(tmp_path: Path) -> None:
    network, path = small("demo/strokes-attention"), tmp_path / "net.pt2"
    exported = tc.export(network, path)
    extra = {"torchcaps.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    assert json.loads(extra["torchcaps.json"]) == exported.facts
    pixels = torch.randint(0, 256, (7, 1, 28, 28), dtype=torch.uint8)
    with torch.no_grad():
        outputs = program(pixels / 255)
        expected = network(network.preprocess(pixels))
    torch.testing.assert_close(outputs["scores"], expected.scores)
    torch.testing.assert_close(outputs["poses"], expected.capsules.poses)


@pytest.mark.slow
def test_a_pytorch_program_runs_where_torchcaps_is_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    tc.export("sabour2017/mnist-modern", path, trace=True)
    code = (
        "import sys, torch; sys.modules['torchcaps'] = None; "
        f"print(torch.export.load({str(path)!r}).module()(torch.rand(3, 1, 28, 28))"
        "['classes.couplings'].shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "torch.Size([3, 3, 1, 1152, 10])", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", tc.list_models())
def test_every_network_passes_torch_export_with_a_free_batch_size(name: str) -> None:
    torch.manual_seed(0)
    network = tc.build(name)
    channels, *size = network.image_shape
    network.preprocessing = tc.Preprocessing(channels, (size[0], size[1]))
    graph = Graph(network)
    with torch.no_grad():
        program = torch.export.export(
            graph, (graph.example(2),), dynamic_shapes={"images": {0: torch.export.Dim("b")}}
        ).module()
        for count in (1, 3):
            images = torch.rand(count, *graph.input_shape)
            torch.testing.assert_close(program(images), graph(images))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sabour2017/mnist-modern", "zhao2020/cifar10-modern"])
def test_int8_convolutions_keep_the_accuracy(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    assert tc.export(name, path, int8=True).equal >= 97
    network = tc.build(name, pretrained=True).eval()
    shape = Graph(network).input_shape
    images, source = find_images(recipe_of(name, network.name), shape, 1000)
    if source.startswith("generated"):
        pytest.skip("TORCHCAPS_DATA has no test images of this recipe")
    with torch.no_grad():
        expected = torch.cat(
            [network(network.preprocess(part)).scores for part in images.split(100)]
        )
    equal = run(path, images)["scores"].argmax(1) == expected.argmax(1)
    assert float(equal.float().mean()) >= 0.98


class Fickle(tc.Network):
    """A network that computes something else while it is exported."""

    def __init__(self) -> None:
        super().__init__((1, 4, 4), 2)
        self.layer = torch.nn.Linear(16, 2)
        self.preprocessing = tc.Preprocessing(1, (4, 4))

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> tc.Output:
        scores = self.layer(images.flatten(1))
        return tc.Output(scores + 1 if torch.compiler.is_compiling() else scores)


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_a_file_that_differs_from_pytorch_is_not_written(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"net.{kind}"
    path.write_bytes(b"before")
    with pytest.raises(TorchcapsError, match="output 'scores' differs from PyTorch's by up to"):
        tc.export(Fickle(), path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [
        (path.name, b"before")
    ]


def test_arguments_that_cannot_be_used_are_refused_in_a_sentence(tmp_path: Path) -> None:
    network, path = small(), tmp_path / "net.onnx"
    for target, options, sentence in (
        (tmp_path / "net.zip", {}, r"must end in \.onnx or \.pt2"),
        (tmp_path / "net.pt2", {"int8": True}, "int8 is for ONNX alone"),
        (path, {"int8": True, "trace": True}, "int8 is for scores alone"),
        (path, {"trace": True, "decoder": True}, "trace and decoder are two files"),
    ):
        with pytest.raises(UsageError, match=sentence):
            tc.export(network, target, **options)
    with pytest.raises(MissingFileError, match="must be a file in a folder that is"):
        tc.export(network, tmp_path / "no" / "net.onnx")
    with pytest.raises(UsageError, match=r"takes a torchcaps\.Network, not Linear"):
        tc.export(cast(Any, torch.nn.Linear(2, 2)), path)
    network.preprocessing = None
    with pytest.raises(UsageError, match="unknown how images"):
        tc.export(network, path)
    assert list(tmp_path.iterdir()) == []


def test_onnx_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(TorchcapsError, match=r'this needs onnx: pip install "torchcaps\[export\]"'):
        tc.export(small(), tmp_path / "net.onnx")


def test_the_command_refuses_in_a_sentence(tmp_path: Path) -> None:
    assert "did you mean" in refused("export", "sabour2017/mnist-moder", "--out", "net.onnx")
    assert "has no shipped weights" in refused("export", "sabour2017/svhn", "--out", "net.onnx")
    assert "does not end in .pt2" in refused(
        "export", "sabour2017/mnist-modern", "--to", "pt2", "--out", tmp_path / "net.onnx"
    )
