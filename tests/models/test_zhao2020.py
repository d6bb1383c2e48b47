"""The ResNet-v2 backbone of Zhao 2020 layer by layer, and the definition of its first weights."""

from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.data import Standardize
from torchcaps.models.weights.files import describe
from torchcaps.models.zhao2020 import ResNetV2Backbone
from torchcaps.models.zoo import count_parameters
from torchcaps.recipes import get

UNIT = ["norm", "relu", "conv", "norm", "relu", "conv"]
WIDER = ["norm", "relu", "shortcut", "conv", "norm", "relu", "conv"]


def sequence(backbone: nn.Module) -> list[str]:
    """Return the layers in the order in which they run on an image."""
    names = list[str]()

    def name_of(module: nn.Module) -> str:
        if isinstance(module, nn.Conv2d):
            return "shortcut" if module.kernel_size == (1, 1) else "conv"
        return {"BatchNorm2d": "norm", "ReLU": "relu"}[type(module).__name__]

    def record(module: nn.Module, _: tuple[Tensor, ...]) -> None:
        names.append(name_of(module))

    for module in backbone.modules():
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.ReLU):
            module.register_forward_pre_hook(record)
    backbone.eval()(torch.rand(1, 3, 8, 8))
    return names


@pytest.mark.parametrize("blocks", [(1, 1, 1), (2, 1, 3)])
def test_layers_run_in_the_order_of_he_2016(blocks: tuple[int, int, int]) -> None:
    """One norm and ReLU precede the first block, and one follows the last sum."""
    expected = ["conv", "norm", "relu", *UNIT[2:], *UNIT * (blocks[0] - 1)]
    for count in blocks[1:]:
        expected += [*WIDER, *UNIT * (count - 1)]
    found = sequence(ResNetV2Backbone(3, blocks))
    plain = [name for name in found if name != "shortcut"]
    assert plain == [*(name for name in expected if name != "shortcut"), "norm", "relu"]
    assert found.count("shortcut") == 2
    earlier = sequence(ResNetV2Backbone(3, blocks, corrected=False))
    assert earlier[1:5] == ["norm", "relu", "norm", "relu"]
    assert earlier[-1] != "relu"


def test_features_are_rectified() -> None:
    torch.manual_seed(0)
    backbone = ResNetV2Backbone(3, (1, 1, 1))
    images = torch.randn(4, 3, 16, 16)
    assert backbone(images).min() == 0
    assert ResNetV2Backbone(3, (1, 1, 1), corrected=False)(images).min() < 0


@pytest.mark.parametrize("blocks", [(1, 1, 1), (8, 8, 8)])
def test_the_authors_count_and_ours_differ_by_the_norm_of_the_primary_capsules(
    blocks: tuple[int, int, int],
) -> None:
    """The text normalizes 64 channels before they are grouped, the code the 16 entries of poses."""
    with torch.device("meta"):
        network = tc.ResCapsNet((3, 32, 32), 10, blocks=blocks, hidden=())
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    channels = sum(norm.num_features for norm in norms)
    of_blocks = {(1, 1, 1): 160, (8, 8, 8): 1728}[blocks]
    stem, last_sum, primary = 16, 64, 64
    assert channels == stem + of_blocks + last_sum + primary


def test_convolutions_start_by_the_rule_of_he() -> None:
    torch.manual_seed(0)
    network = cast(tc.ResCapsNet, tc.build("zhao2020/cifar10"))
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 2000:
            fan_in = module.weight[0].numel()
            assert module.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.1), name


@pytest.mark.parametrize("name", ["zhao2020/cifar10", "zhao2020/fashion-mnist"])
def test_shipped_weights_keep_the_definition_they_were_trained_with(name: str) -> None:
    network = tc.build(name, pretrained=True)
    assert network.overrides == {"definition": 1}
    assert sequence_of(network) != sequence_of(tc.build(name))
    assert sequence_of(network) == sequence_of(tc.build(name, definition=1))
    with pytest.raises(ValueError, match="are for definition=1, not 2"):
        tc.build(name, pretrained=True, definition=2)


def sequence_of(network: tc.Network) -> list[str]:
    return [name for name, _ in network.named_parameters()]


def test_a_file_records_the_definition_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    for definition in (1, 2):
        network = tc.build("zhao2020/smallnorb", definition=definition)
        tc.save(network, path := tmp_path / "network.safetensors")
        assert describe(path)["overrides"] == {"definition": definition}
        loaded = tc.load(path)
        assert loaded.overrides == {"definition": definition}
        images = torch.rand(2, 1, 32, 32)
        torch.testing.assert_close(loaded(images).scores, network.eval()(images).scores)
    with pytest.raises(ValueError, match="between 1 and 2, not 3"):
        tc.build("zhao2020/smallnorb", definition=3)
    with pytest.raises(ValueError, match="between 1 and 1, not 2"):
        tc.build("sabour2017/mnist", definition=2)


@pytest.mark.parametrize(("name", "std"), [("cifar10", 0.00482), ("fashion-mnist", 0.00643)])
@pytest.mark.parametrize("routing", ["", "-dynamic"])
def test_the_light_networks_start_and_train_as_in_the_code(
    name: str, std: float, routing: str
) -> None:
    """Vote weights by Keras' rule, standardized images, and no held-out tenth."""
    torch.manual_seed(0)
    network = cast(tc.CapsNet, tc.build(f"zhao2020/{name}-light{routing}"))
    assert network.classes.weight.std().item() == pytest.approx(std, rel=0.02)
    assert network.classes.weight.shape[0] == {"cifar10": 512, "fashion-mnist": 288}[name]
    for suffix in ("", "-augmented"):
        recipe = get(f"zhao2020/{name}-light{routing}{suffix}")
        assert isinstance(recipe.train_transforms[0], Standardize)
        assert recipe.test_transforms == (Standardize(),)
        assert not recipe.hold_out


def test_multimnist_has_the_size_that_the_paper_prints() -> None:
    assert count_parameters("zhao2020/multimnist") == pytest.approx(457_000, rel=0.005)
    assert count_parameters("zhao2020/multimnist", definition=1) == 552_849


def test_children_of_em_routing_are_as_active_as_their_poses_are_long() -> None:
    network = tc.build("zhao2020/affnist-em")
    assert not any("activation_conv" in name for name, _ in network.named_parameters())
    assert network.n_parameters == tc.build("zhao2020/affnist-dynamic").n_parameters + 20
    seen: list[Tensor] = []
    network.get_submodule("classes").register_forward_pre_hook(
        lambda _, given: seen.extend((given[0].activations, given[0].poses))
    )
    network(torch.rand(2, 1, 40, 40))
    torch.testing.assert_close(seen[0], seen[1].norm(dim=-1))
    assert 0 < float(seen[0].detach().mean()) < 1
    earlier = tc.build("zhao2020/affnist-em", definition=1)
    assert any("activation_conv" in name for name, _ in earlier.named_parameters())
