"""The networks of the papers and their baselines, built from the layers."""

from torchcaps.models.choi2019 import ARCapsNet as ARCapsNet
from torchcaps.models.hinton2018 import EMCapsNet as EMCapsNet
from torchcaps.models.mazzia2021 import EfficientCapsNet as EfficientCapsNet
from torchcaps.models.network import (
    Classifier as Classifier,
    Ensemble as Ensemble,
    Network as Network,
    predict as predict,
)
from torchcaps.models.ribeiro2020 import VariationalCapsNet as VariationalCapsNet
from torchcaps.models.sabour2017 import CapsNet as CapsNet
from torchcaps.models.tsai2020 import AttentionCapsNet as AttentionCapsNet
from torchcaps.models.weights.files import load as load, load_weights as load_weights, save as save
from torchcaps.models.zhao2020 import ResCapsNet as ResCapsNet
from torchcaps.models.zoo import (
    ZOO as ZOO,
    build as build,
    list_models as list_models,
    register_network as register_network,
)
