"""Facts of the training run behind a network's weights."""

import hashlib
from collections.abc import Mapping

import torch

from torchcaps.models.network import Network

FACTS = ("recipe", "seed", "epochs", "modified", "validation", "commit", "weights_sha256")
"""Facts of its run in a shipped file, beside the file's own accuracy."""
WEIGHTS = "loaded_sha256"
"""Key of ``Network.trained`` for the hash of the weights as they were loaded."""


def record_training(network: Network, facts: Mapping[str, str | int | float]) -> None:
    """Keep the facts of the training run behind a network's weights, and a hash of the weights."""
    network.trained = {**facts, WEIGHTS: digest_weights(network)}


def has_recorded_weights(network: Network) -> bool:
    """Return whether the weights are still those that the facts of training are about."""
    return bool(network.trained) and network.trained.get(WEIGHTS) == digest_weights(network)


def digest_weights(network: Network) -> str:
    """Return the SHA-256 of all parameters and buffers, in hexadecimal."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
