"""A network written as an ONNX or PyTorch file that takes pixels, checked against PyTorch."""

import hashlib
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchcaps.errors import MissingFileError, UsageError
from torchcaps.models import Network
from torchcaps.storage import write_bytes
from torchcaps.version import __version__

if TYPE_CHECKING:
    from torch import nn

    from torchcaps.export.programs import Inputs, Run
    from torchcaps.export.traced import Drawing, Graph

FORMATS = (".onnx", ".pt2")

N_IMAGES = 100
"""Images of the parity check."""

N_TRACED = 8
"""Images of the parity check of a traced network, whose outputs are large."""

FACTS = ("recipe", "seed", "epochs", "test", "commit", "weights_sha256")
"""What a file says of the training, as far as it is known."""


class Exported(NamedTuple):
    """A file that was written, and how it compares with PyTorch.

    Attributes:
        path: the file.
        n_bytes: its size.
        facts: its metadata.
        source: which images it was checked on.
        images: how many.
        difference: largest difference of a score.
        equal: number of equal predictions.
    """

    path: Path
    n_bytes: int
    facts: dict[str, Any]
    source: str
    images: int
    difference: float
    equal: int


def export(
    network: Network | str | Path,
    path: str | Path,
    *,
    trace: bool = False,
    decoder: bool = False,
    int8: bool = False,
    iterations: int | None = None,
) -> Exported:
    """Write a network as a file that runs without torchcaps.

        tc.export("sabour2017/mnist-modern", "net.onnx")

    The file takes ``images`` ``[b c h w]`` of pixels in 0 to 1, in any number, and preprocesses
    them itself. Its first output are the ``scores`` ``[b n]``. Before anything is written, its
    outputs are compared with PyTorch's, on real test images if they are on this machine. Weights
    that were stored as int8 stay int8 in the file and are multiplied by their scales when it runs.

    Args:
        network: a network that knows its preprocessing, or the name of pretrained weights, a
            weight file or a run folder.
        path: file to write, ``.onnx`` or ``.pt2``; ONNX needs ``torchcaps[export]``.
        trace: also return what the capsule layers did; see `torchcaps.export.traced.Traced`.
        decoder: write the decoder instead, from ``poses`` and ``classes`` to ``drawing``.
        int8: let convolutions and linear layers compute in int8; ONNX alone, needs onnxruntime.
        iterations: with ``trace``, how many routing iterations to show.

    Returns:
        The file with its metadata and the result of the comparison.
    """
    from torchcaps.export.parity import compare
    from torchcaps.export.programs import to_int8, to_onnx, to_program

    path = Path(path)
    _check_arguments(path, trace=trace, decoder=decoder, int8=int8)
    opened, trained = _open(network)
    module = _module(opened, trace=trace, decoder=decoder, iterations=iterations)
    batches, source = _batches(module, opened, trained, N_TRACED if trace else N_IMAGES)
    facts = _facts(module, opened, trained)
    graph, outputs = _for_export(module, int8=int8), list(module.output_shapes())
    if path.suffix == ".onnx":
        content = to_onnx(graph, module.inputs(2), outputs, facts)
    else:
        content = to_program(graph, module.inputs(2), facts)
    if int8:
        content = to_int8(content, batches)
    parity = compare(module, _runner(path, content), batches, outputs, exact=not int8)
    write_bytes(path, content)
    return Exported(path, len(content), facts, source, *parity)


def _check_arguments(path: Path, *, trace: bool, decoder: bool, int8: bool) -> None:
    if path.suffix not in FORMATS:
        raise UsageError(f"{path} must end in {' or '.join(FORMATS)}")
    if trace and decoder:
        raise UsageError("trace and decoder are two files: export one after the other")
    if int8 and path.suffix != ".onnx":
        raise UsageError(f"int8 is for ONNX alone: leave it out, or name {path.stem}.onnx")
    if int8 and (trace or decoder):
        raise UsageError("int8 is for scores alone: leave it out, or trace and decoder")
    if path.is_dir() or not path.parent.is_dir():
        raise MissingFileError(f"{path} cannot be written: it must be a file in a folder that is")


def _open(network: Network | str | Path) -> tuple[Network, dict[str, Any]]:
    """Return a copy of the network on the CPU in float32, and what is known of its training."""
    from torchcaps.models.weights.files import describe
    from torchcaps.train.evaluation.trained import find_trained, find_weights, load_trained
    from torchcaps.train.outputs.folder import RunFolder

    trained: dict[str, Any] = {}
    if isinstance(network, str | Path):
        path = find_trained(Path(network))
        network = load_trained(path)
        row = RunFolder(path).row() if path.is_dir() else None
        known = describe(find_weights(path))["trained"] if row is None else vars(row)
        trained = {fact: known[fact] for fact in FACTS if known.get(fact) is not None}
    elif not isinstance(network, Network):
        raise UsageError(f"export takes a torchcaps.Network, not {type(network).__name__}")
    return deepcopy(network).cpu().float().eval().requires_grad_(False), trained


def _module(
    network: Network, *, trace: bool, decoder: bool, iterations: int | None
) -> "Graph | Drawing":
    from torchcaps.export.traced import Drawing, Graph, Traced

    if decoder:
        return Drawing(network)
    return Traced(network, iterations=iterations) if trace else Graph(network)


def _batches(
    module: "Graph | Drawing", network: Network, trained: dict[str, Any], count: int
) -> "tuple[list[Inputs], str]":
    """Return inputs for the check, a single image first, and what they are."""
    import torch

    from torchcaps.export.parity import find_images, recipe_of
    from torchcaps.export.traced import Drawing, Graph

    graph = Graph(network)
    recipe = recipe_of(trained.get("recipe"), network.name)
    images, source = find_images(recipe, graph.input_shape, count)
    parts = [images[:1], *images[1:].split(20)]
    if not isinstance(module, Drawing):
        return [{"images": part} for part in parts], source
    with torch.no_grad():
        outputs = [graph(part) for part in parts]
    return [{"poses": o["poses"], "classes": o["scores"].argmax(dim=1)} for o in outputs], source


def _facts(module: "Graph | Drawing", network: Network, trained: dict[str, Any]) -> dict[str, Any]:
    """Return what the file says of itself."""
    from torchcaps.export.traced import Traced

    return {
        "torchcaps": __version__,
        "network": network.name,
        "overrides": network.overrides,
        "classes": None if network.class_names is None else list(network.class_names),
        "n_objects": network.n_objects,
        "trained": trained,
        "sha256": _hash(network),
        "inputs": {name: list(t.shape[1:]) for name, t in module.inputs(1).items()},
        "outputs": {name: list(shape[1:]) for name, shape in module.output_shapes().items()},
        "layers": module.describe()["layers"] if isinstance(module, Traced) else [],
    }


def _hash(network: Network) -> str:
    """Return the SHA-256 of names and values of the weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _for_export(module: "Graph | Drawing", *, int8: bool) -> "nn.Module":
    """Return a copy with packed weights, except those that will be quantized again."""
    from torch.nn import Conv2d, Linear

    from torchcaps.export.packed import keep_packed

    copy = deepcopy(module)
    keep_packed(copy, but=(Conv2d, Linear) if int8 else ())
    return copy


def _runner(path: Path, content: bytes) -> "Run":
    from torchcaps.export.programs import run_onnx, run_program

    return run_onnx(content) if path.suffix == ".onnx" else run_program(content)
