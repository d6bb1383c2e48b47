"""Networks as safetensors files that say which network they are."""

import json
import os
from pathlib import Path
from typing import Any

import torch

from torchcaps.models.network import Network
from torchcaps.models.zoo import ZOO, build

__all__ = ["load", "load_weights", "save"]

KEY = "torchcaps"


def save(network: Network, path: str | Path) -> None:
    """Write the weights, and the name and overrides :func:`build` made the network from.

    The file appears whole or not at all: it is written beside its place, flushed and renamed.
    """
    from safetensors.torch import save as to_bytes

    path = Path(path)
    metadata = {KEY: json.dumps(architecture(network)), "format": "pt"}
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(to_bytes(tensors, metadata))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Network:
    """Build the network a file was saved from and read its weights."""
    described, _ = _header(path)
    network = _described(path, described)
    load_weights(network, path)
    return network.to(device)


def load_weights(network: Network, path: str | Path) -> None:
    """Read the weights of a file into a network; refuses a file of another architecture."""
    from safetensors.torch import load_file

    described, shapes = _header(path)
    if network.name is not None and described != architecture(network):
        raise ValueError(
            f"{path} holds {_say(described)}, and this network is {_say(architecture(network))}"
        )
    own = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    if shapes != own:
        different = sorted(
            name for name in own.keys() | shapes.keys() if own.get(name) != shapes.get(name)
        )
        raise ValueError(
            f"{path} holds the weights of another network: {len(different)} tensors differ, "
            f"{different[0]} among them"
        )
    network.load_state_dict(load_file(path))


def architecture(network: Network) -> dict[str, Any]:
    """What rebuilds a network: its name and what was changed."""
    if network.name is None:
        raise ValueError(
            f"this {type(network).__name__} was built by hand: save its state_dict(), or build "
            "it by name with torchcaps.build"
        )
    return {"network": network.name, "overrides": json.loads(json.dumps(network.overrides))}


def _header(path: str | Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """What a file says it is, and the shapes of its tensors; no tensor is read."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error})") from error
    try:
        described = json.loads(metadata[KEY])
    except (KeyError, ValueError):
        raise ValueError(f"{path} does not say which torchcaps network it holds") from None
    if not isinstance(described, dict) or set(described) != {"network", "overrides"}:
        raise ValueError(f"{path} does not say which torchcaps network it holds")
    return described, shapes


def _described(path: str | Path, described: dict[str, Any]) -> Network:
    name, overrides = described["network"], described["overrides"]
    allowed = {"image_shape", "n_classes", "iterations"}
    if name not in ZOO or not isinstance(overrides, dict) or set(overrides) - allowed:
        raise ValueError(f"{path} holds {_say(described)}, which this version does not know")
    if "image_shape" in overrides:
        overrides = {**overrides, "image_shape": tuple(overrides["image_shape"])}
    return build(name, **overrides)


def _say(described: dict[str, Any]) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in dict(described["overrides"]).items())
    return f"{described['network']}" + (f" with {changes}" if changes else "")
