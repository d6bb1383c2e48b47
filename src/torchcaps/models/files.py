"""Networks as safetensors files that say which network they are."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import InputError, MissingFileError
from torchcaps.models.network import Network
from torchcaps.models.packed import Tensors, fold, pack, unpack
from torchcaps.models.zoo import NAME, ZOO, build
from torchcaps.storage import write_bytes

__all__ = ["architecture", "describe", "load", "load_weights", "save", "save_packed"]

KEY = "torchcaps"
HASH = "data_sha256"
"""Of all that follows the header; files of earlier versions have none."""
LIMITS = {"n_classes": 100_000, "iterations": 100}
MAX_SIDE = 4096


def save(network: nn.Module, path: str | Path, *, classes: Sequence[str] = ()) -> None:
    """Write the weights, and the name and overrides :func:`build` made the network from.

    Of a compiled or distributed network it is the network inside that is written.

    The file appears whole or not at all: it is written beside its place, flushed and renamed.

    Args:
        network: made by :func:`build`.
        path: of the file.
        classes: their names by label, for whoever scores the file on other images.
    """
    bare = _bare(network)
    tensors = {name: tensor.contiguous() for name, tensor in bare.state_dict().items()}
    named = {"classes": list(classes)} if classes else {}
    _write(Path(path), tensors, architecture(bare) | named)


def save_packed(
    network: Network, path: str | Path, *, store: str, trained: Mapping[str, str | int | float]
) -> None:
    """Write the weights in fewer bytes, and how they came about; :func:`load` gives float32.

    Args:
        network: made by :func:`build`.
        path: of the file.
        store: "int8" or "float16"; see `torchcaps.models.packed`.
        trained: recipe, seed, test accuracy and whatever else a reader wants to know.
    """
    described = {**architecture(network), "trained": {**trained, "store": store}}
    _write(Path(path), pack(network, store), described)


def _bare(network: nn.Module) -> Any:
    """The network inside what torch.compile or DistributedDataParallel made of it."""
    while not isinstance(network, Network):
        inner = getattr(network, "_orig_mod", None) or getattr(network, "module", None)
        if not isinstance(inner, nn.Module):
            break
        network = inner
    return network


def _write(path: Path, tensors: dict[str, Tensor], described: dict[str, Any]) -> None:
    from safetensors.torch import save as to_bytes

    if path.is_dir() or not path.parent.is_dir():
        raise MissingFileError(f"{path} cannot be written: it must be a file in a folder that is")
    data = hashlib.sha256(_data(to_bytes(tensors))).hexdigest()
    # one entry only: the format stores several in an order that differs from run to run
    write_bytes(path, to_bytes(tensors, {KEY: json.dumps({**described, HASH: data})}))


def _data(content: bytes) -> memoryview:
    """What follows the header of a safetensors file, which begins with its length."""
    return memoryview(content)[8 + int.from_bytes(content[:8], "little") :]


def describe(path: str | Path) -> dict[str, Any]:
    """What a file says it is: ``network``, ``overrides``, names of ``classes``, ``trained``.

    Files of earlier versions have no names, and only shipped weights say how they were trained.
    """
    return _header(path)[0]


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Network:
    """Build the network a file was saved from, with its weights and their type, ready to use.

    Shipped weights, which are stored in fewer bytes, come as float32.

    It is in evaluation mode; call ``train()`` to go on training it. Nothing is allocated before
    the file has been checked against the network it names.
    """
    described, stored = _header(path)
    overrides = dict(described["overrides"])
    if "image_shape" in overrides:
        overrides["image_shape"] = tuple(overrides["image_shape"])
    try:
        with torch.device("meta"):
            network = build(described["network"], **overrides)
    except ValueError as error:
        raise InputError(f"{path} holds {_say(described)}, which cannot be: {error}") from None
    _check_tensors(network, path, stored)
    # copies: the file's own pages are not aligned, and may change under the network
    weights = {name: tensor.clone() for name, tensor in _tensors(path).items()}
    if described["trained"]:
        weights = {n: t.float() if t.is_floating_point() else t for n, t in weights.items()}
    network.load_state_dict(weights, assign=True)
    return network.to(device).eval()


def load_weights(network: Network, path: str | Path) -> None:
    """Read the weights of a file into a network; refuses a file of another architecture."""
    described, stored = _header(path)
    own = {key: described[key] for key in ("network", "overrides")}
    if network.name is not None and own != architecture(network):
        raise InputError(
            f"{path} holds {_say(described)}, and this network is {_say(architecture(network))}"
        )
    _check_tensors(network, path, stored)
    network.load_state_dict(_tensors(path))


def architecture(network: Network) -> dict[str, Any]:
    """What rebuilds a network: its name and what was changed."""
    if getattr(network, "name", None) is None:
        raise ValueError(
            f"this {type(network).__name__} was built by hand: save its state_dict(), or build "
            "it by name with torchcaps.build"
        )
    return {"network": network.name, "overrides": json.loads(json.dumps(network.overrides))}


def _header(path: str | Path) -> tuple[dict[str, Any], Tensors]:
    """What a file says it is, and its tensors' shapes and types; no tensor is read."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise MissingFileError(f"there is no file {path}")
    Path(path).open("rb").close()  # safe_open says of a file it may not read that there is none
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            slices = {name: file.get_slice(name) for name in names}
            stored = {n: (tuple(s.get_shape()), str(s.get_dtype())) for n, s in slices.items()}
    except SafetensorError as error:
        raise InputError(f"{path} is not a whole safetensors file ({error})") from error
    try:
        described = json.loads(metadata[KEY])
    except (KeyError, ValueError, RecursionError):
        raise InputError(f"{path} does not say which torchcaps network it holds") from None
    if not _is_architecture(described):
        raise InputError(f"{path} names a network that this version does not know")
    if (name := described["network"]) not in ZOO:
        raise InputError(
            f"{path} holds the network {name!r}, which this version does not know: if it is your "
            f"own, call torchcaps.register_network({name!r}, ...) first"
        )
    described.pop(HASH, None)
    return {"trained": {}, "classes": [], **described}, fold(stored)


def _tensors(path: str | Path) -> dict[str, Tensor]:
    """What a file holds, bit for bit what was saved."""
    from safetensors.torch import load

    content = Path(path).read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    wanted = json.loads(json.loads(content[8:size])["__metadata__"][KEY]).get(HASH)
    try:
        if wanted not in (None, hashlib.sha256(_data(content)).hexdigest()):
            raise ValueError("its data are not those that were saved")
        return unpack(load(content))
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}; fetch or save it again") from None


def _is_architecture(described: object) -> bool:
    """Return whether metadata hold a network's name and overrides of valid types and sizes."""
    if not isinstance(described, dict):
        return False
    if set(described) - {"trained", "classes", HASH} != {"network", "overrides"}:
        return False
    classes = described.get("classes", [])
    if type(classes) is not list or not all(type(name) is str for name in classes):
        return False
    trained = described.get("trained", {})
    if type(trained) is not dict or not all(type(v) in (str, int, float) for v in trained.values()):
        return False
    name, overrides = described["network"], described["overrides"]
    if type(name) is not str or not NAME.fullmatch(name) or type(overrides) is not dict:
        return False
    for key, value in overrides.items():
        if key == "image_shape":
            sides = value if type(value) is list and len(value) == 3 else [0]
            if not all(type(n) is int and 1 <= n <= MAX_SIDE for n in sides):
                return False
        elif key not in LIMITS or type(value) is not int or not 1 <= value <= LIMITS[key]:
            return False
    return True


def _check_tensors(network: Network, path: str | Path, stored: Tensors) -> None:
    """Refuse tensors of other names, shapes or kinds than the network's."""
    own = network.state_dict()
    shapes = {name: shape for name, (shape, _) in stored.items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in own.items()}:
        different = sorted(
            name
            for name in own.keys() | shapes.keys()
            if name not in own or shapes.get(name) != tuple(own[name].shape)
        )
        raise InputError(
            f"{path} holds the weights of another network: {len(different)} tensors differ, "
            f"{different[0]!r} among them"
        )
    for name, tensor in own.items():
        kind = stored[name][1]
        if tensor.is_floating_point() != kind.startswith(("F16", "F32", "F64", "BF16")):
            raise InputError(f"{path} holds {name!r} as {kind}, which is not a type it can have")


def _say(described: dict[str, Any]) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in dict(described["overrides"]).items())
    return f"{described['network']}" + (f" with {changes}" if changes else "")
