"""The networks of the papers and their baselines, from the layers."""

from torchcaps.models.choi2019 import ARCapsNet
from torchcaps.models.files import load, load_weights, save
from torchcaps.models.hinton2018 import EMCapsNet
from torchcaps.models.network import Classifier, Ensemble, Network, predict
from torchcaps.models.sabour2017 import CapsNet
from torchcaps.models.tsai2020 import AttentionCapsNet
from torchcaps.models.zhao2020 import ResCapsNet
from torchcaps.models.zoo import ZOO, build, list_models

__all__ = [
    "ZOO",
    "ARCapsNet",
    "AttentionCapsNet",
    "CapsNet",
    "Classifier",
    "EMCapsNet",
    "Ensemble",
    "Network",
    "ResCapsNet",
    "build",
    "list_models",
    "load",
    "load_weights",
    "predict",
    "save",
]
