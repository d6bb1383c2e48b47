"""Exports of every shipped network: right, or not written at all."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnxruntime
import torch
from torch import Tensor, nn

import torchcaps as tc
from reliability.trials.disks import small_disk
from torchcaps.capsules import Output
from torchcaps.errors import TorchcapsError
from torchcaps.export.traced import Graph
from torchcaps.models.weights.pretrained import shipped

N_IMAGES = 20
TOLERANCE = 1e-4
FACTS = {"torchcaps", "network", "classes", "trained", "sha256", "inputs", "outputs"}
TRAINED = {"recipe", "seed", "epochs", "test", "commit", "weights_sha256"}


def trials(first: int, count: int) -> Iterator[str]:
    """Each shipped network, the smallest first: both formats, and two that must fail."""
    names = sorted(shipped(), key=lambda name: (shipped()[name].stat().st_size, name))
    cases = [(name, kind) for name in names for kind in KINDS]
    for name, kind in cases[first : first + count]:
        try:
            with tempfile.TemporaryDirectory(prefix="torchcaps-export-") as folder:
                KINDS[kind](name, Path(folder))
            yield ""
        except (AssertionError, OSError, ValueError) as error:
            yield f"{name}, {kind}: {error!r}"[:500]


def as_onnx(name: str, folder: Path) -> None:
    """An ONNX file gives PyTorch's scores for images that the export did not see."""
    path = folder / "net.onnx"
    exported = tc.export(name, path)
    assert exported.equal == exported.images, "another prediction was let through"
    assert [file.name for file in folder.iterdir()] == [path.name]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    check_scores(
        name, lambda x: torch.from_numpy(session.run(["scores"], {"images": x.numpy()})[0])
    )
    (entry,) = onnx.load(path).metadata_props
    check_facts(name, entry.value)


def as_program(name: str, folder: Path) -> None:
    """A PyTorch program does so too."""
    path = folder / "net.pt2"
    exported = tc.export(name, path)
    assert exported.equal == exported.images, "another prediction was let through"
    assert [file.name for file in folder.iterdir()] == [path.name]
    extra = {"torchcaps.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    check_scores(name, lambda x: program(x)["scores"])
    check_facts(name, extra["torchcaps.json"])


def check_scores(name: str, run: Callable[[Tensor], Tensor]) -> None:
    network = tc.build(name, pretrained=True).eval()
    generator = torch.Generator().manual_seed(1)
    shape = (N_IMAGES, *Graph(network).input_shape)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    with torch.no_grad():
        expected = network(network.preprocess(pixels)).scores
        actual = run(pixels / 255)
    far = float((actual - expected).abs().max()) / max(1.0, float(expected.abs().max()))
    assert far <= TOLERANCE, f"scores differ by {far:.2g}"


def check_facts(name: str, text: str) -> None:
    facts = json.loads(text)
    assert set(facts) >= FACTS, sorted(FACTS - set(facts))
    assert set(facts["trained"]) >= TRAINED, sorted(TRAINED - set(facts["trained"]))
    assert facts["trained"]["recipe"] == name
    assert len(facts["sha256"]) == 64


def that_differs(name: str, folder: Path) -> None:
    """A graph that is not what PyTorch computes is refused, and the file of before stays."""

    def shifted(network: nn.Module, inputs: object, output: Output) -> Output:
        shift = 0.01 if torch.compiler.is_compiling() else 0.0
        return output._replace(scores=output.scores + shift)

    network = tc.build(name, pretrained=True).eval()
    network.register_forward_hook(shifted)
    message = refused(network, folder)
    assert "differs from PyTorch's by up to" in message, message


def without_room(name: str, folder: Path) -> None:
    """Without room on the disk nothing is left but the file of before."""
    with small_disk() as (disk, fill):
        message = refused(name, disk, lambda: fill(50_000))
    assert str(disk) in message, message


def refused(
    network: tc.Network | str, folder: Path, before: Callable[[], None] | None = None
) -> str:
    """Export over a file, which must fail and leave that file alone; return the message."""
    path = folder / "net.pt2"
    path.write_bytes(b"before")
    if before is not None:
        before()
    message = ""
    try:
        tc.export(network, path)
    except TorchcapsError as error:
        message = str(error)
    assert message, "it was not noticed"
    assert "\n" not in message, message
    assert path.read_bytes() == b"before"
    left = [file.name for file in folder.iterdir() if file.name not in (path.name, "filler")]
    assert left == [], left
    return message


KINDS: dict[str, Callable[[str, Path], None]] = {
    "onnx": as_onnx,
    "differs": that_differs,
    "pt2": as_program,
    "no room": without_room,
}
