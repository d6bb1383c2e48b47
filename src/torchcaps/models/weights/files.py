"""Networks as safetensors files that name their architecture."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import InputError, MissingFileError, UsageError
from torchcaps.models.network import MAX_CLASSES, Network
from torchcaps.models.weights.facts import record_training
from torchcaps.models.weights.packed import Tensors, fold, pack, unpack
from torchcaps.models.zoo import NAME, ZOO, build
from torchcaps.preprocessing import Preprocessing
from torchcaps.storage import write_bytes

KEY = "torchcaps"
HASH = "data_sha256"
"""Metadata key for the hash of the data after the header; files of earlier versions have none."""
MAX_OVERRIDES = {"n_classes": MAX_CLASSES, "iterations": 100, "definition": 100}
MAX_IMAGE_SIDE = 4096


def save(network: nn.Module, path: str | Path, *, classes: Sequence[str] = ()) -> None:
    """Write the weights of a network, with the name and overrides given to :func:`build`.

    The file also records the network's preprocessing and its class names.

    A compiled or distributed network is written as the network inside it. The file appears
    complete or not at all: it is written under another name, flushed and renamed.

    Args:
        network: a network built by name.
        path: path of the file.
        classes: names of the classes by label; by default the network's ``class_names``.
    """
    if not isinstance(network, nn.Module):
        raise UsageError(f"save takes a network, not {type(network).__name__}")
    inner = _unwrap(network)
    tensors = {name: tensor.contiguous() for name, tensor in inner.state_dict().items()}
    described = architecture(inner)
    described |= _record(inner, tuple(classes) or inner.class_names)
    _write(Path(path), tensors, described)


def save_packed(
    network: Network, path: str | Path, *, store: str, trained: Mapping[str, str | int | float]
) -> None:
    """Write the weights in fewer bytes, with facts about their training.

    :func:`load` converts them to float32.

    Args:
        network: a network built by name.
        path: path of the file.
        store: "int8" or "float16"; see `torchcaps.models.weights.packed`.
        trained: facts such as recipe, seed and test accuracy.
    """
    record = _record(network, network.class_names)
    described = {**architecture(network), **record, "trained": {**trained, "store": store}}
    _write(Path(path), pack(network, store), described)


def _record(network: Network, class_names: Sequence[str] | None) -> dict[str, Any]:
    """Return the entries of a file's metadata for preprocessing and class names."""
    record: dict[str, Any] = {}
    if class_names:
        _check_class_names(network, class_names)
        record["classes"] = list(class_names)
    if network.preprocessing is not None:
        _check_preprocessing(network, network.preprocessing)
        record["preprocessing"] = network.preprocessing.to_json()
    return record


def _check_class_names(network: Network, class_names: Sequence[str]) -> None:
    if len(class_names) != network.n_classes:
        raise InputError(f"{len(class_names)} class names do not fit {network.n_classes} classes")


def _check_preprocessing(network: Network, preprocessing: Preprocessing) -> None:
    if preprocessing.output_shape() != network.image_shape:
        raise InputError(
            f"the preprocessing gives images {preprocessing.output_shape()}, and the network takes "
            f"{network.image_shape}"
        )


def _unwrap(network: nn.Module) -> Any:
    """Return the network inside a torch.compile or DistributedDataParallel wrapper."""
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
    # one entry only: the order of several would differ from run to run
    write_bytes(path, to_bytes(tensors, {KEY: json.dumps({**described, HASH: data})}))


def _data(content: bytes) -> memoryview:
    """Return what follows the header of a safetensors file; the file begins with its length."""
    return memoryview(content)[8 + int.from_bytes(content[:8], "little") :]


def describe(path: str | Path) -> dict[str, Any]:
    """Return the metadata of a file.

    They are ``network``, ``overrides``, ``classes``, ``preprocessing`` and ``trained``. Files of
    earlier versions have no class names and no preprocessing. Only shipped weights have facts of
    training.
    """
    return _header(path)[0]


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Network:
    """Build the network of a file, with its weights in the type they were saved in.

    Shipped weights, which are stored in fewer bytes, are converted to float32. The network is in
    evaluation mode; call ``train()`` to train it further. A network of your own must be registered
    first, see :func:`register_network`. Nothing is allocated before the file is checked against
    the network that it names.
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
    # copies: the pages of the file are not aligned, and may change later
    weights = {name: tensor.clone() for name, tensor in _tensors(path).items()}
    if described["trained"]:
        weights = {n: t.float() if t.is_floating_point() else t for n, t in weights.items()}
    network.load_state_dict(weights, assign=True)
    _adopt_record(network, path, described)
    if described["trained"]:
        record_training(network, described["trained"])
    return network.to(device).eval()


def load_weights(network: Network, path: str | Path) -> None:
    """Load the weights of a file into a network; refuse a file of another architecture."""
    described, stored = _header(path)
    saved = {key: described[key] for key in ("network", "overrides")}
    if network.name is not None and saved != architecture(network):
        raise InputError(
            f"{path} holds {_say(described)}, and this network is {_say(architecture(network))}"
        )
    _check_tensors(network, path, stored)
    tensors = _tensors(path)
    _adopt_record(network, path, described)
    network.load_state_dict(tensors)


def _adopt_record(network: Network, path: str | Path, described: dict[str, Any]) -> None:
    """Take over the preprocessing and the class names that a file records."""
    try:
        if class_names := described["classes"]:
            _check_class_names(network, class_names)
            network.class_names = tuple(class_names)
        if described["preprocessing"] is not None:
            preprocessing = Preprocessing.from_json(described["preprocessing"])
            _check_preprocessing(network, preprocessing)
            network.preprocessing = preprocessing
    except ValueError as error:
        raise InputError(f"{path} cannot be used: {error}") from None


def architecture(network: Network) -> dict[str, Any]:
    """Return the name and the overrides that :func:`build` needs to rebuild a network."""
    if getattr(network, "name", None) is None:
        raise ValueError(
            f"this {type(network).__name__} was built by hand: save its state_dict(), or build "
            "it by name with torchcaps.build"
        )
    return {"network": network.name, "overrides": json.loads(json.dumps(network.overrides))}


def _header(path: str | Path) -> tuple[dict[str, Any], Tensors]:
    """Return the metadata of a file, and shapes and types of its tensors; read no tensor."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise MissingFileError(f"there is no file {path}")
    Path(path).open("rb").close()  # safe_open would report an unreadable file as missing
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
            f"own, call torchcaps.register_network({name!r}, ...) first, or give the file that "
            "does with --recipe FILE.py:NAME"
        )
    described.pop(HASH, None)
    if ZOO[name].earlier:  # files from before the first correction do not name their definition
        described["overrides"] = {"definition": 1, **described["overrides"]}
    return {"trained": {}, "classes": [], "preprocessing": None, **described}, fold(stored)


def _tensors(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a file, exactly as they were saved."""
    from safetensors.torch import load

    content = Path(path).read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    expected = json.loads(json.loads(content[8:size])["__metadata__"][KEY]).get(HASH)
    try:
        if expected not in (None, hashlib.sha256(_data(content)).hexdigest()):
            raise ValueError("its data are not those that were saved")
        return unpack(load(content))
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}; fetch or save it again") from None


def _is_architecture(described: object) -> bool:
    """Return whether metadata hold a network's name and overrides of valid types and sizes."""
    if not isinstance(described, dict):
        return False
    optional = {"trained", "classes", "preprocessing", HASH}
    if set(described) - optional != {"network", "overrides"}:
        return False
    record = described.get("preprocessing")
    if record is not None and not _is_preprocessing(record):
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
            if not all(type(n) is int and 1 <= n <= MAX_IMAGE_SIDE for n in sides):
                return False
        elif type(value) is not int or not 1 <= value <= MAX_OVERRIDES.get(key, 0):
            return False
    return True


def _is_preprocessing(record: object) -> bool:
    try:
        Preprocessing.from_json(record)
    except ValueError:
        return False
    return True


def _check_tensors(network: Network, path: str | Path, stored: Tensors) -> None:
    """Refuse tensors whose names, shapes or kinds differ from the network's."""
    state = network.state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in state.items()}
    shapes = {name: shape for name, (shape, _) in stored.items()}
    if shapes != expected:
        names = expected.keys() | shapes.keys()
        different = sorted(name for name in names if shapes.get(name) != expected.get(name))
        raise InputError(
            f"{path} holds the weights of another network: {len(different)} tensors differ, "
            f"{different[0]!r} among them"
        )
    for name, tensor in state.items():
        kind = stored[name][1]
        if tensor.is_floating_point() != kind.startswith(("F16", "F32", "F64", "BF16")):
            raise InputError(f"{path} holds {name!r} as {kind}, which is not a type it can have")


def _say(described: dict[str, Any]) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in dict(described["overrides"]).items())
    return f"{described['network']}" + (f" with {changes}" if changes else "")
