"""The networks: published sizes to the unit, both precisions, any batch, saving, Procedure 2."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.models import ZOO

# Learned parameters, and all numbers including the running statistics of batch normalization where
# a paper's framework counts those. The third column is the paper's own figure.
COUNTS = [
    ("sabour2017/mnist", 8_215_728, None, "8.2M"),
    ("sabour2017/mnist-plain", 6_804_384, None, "6.8M"),
    ("sabour2017/multimnist", 11_361_968, None, "11.36M"),
    ("sabour2017/affnist", 13_475_808, None, "13.40M in Zhao 2020"),
    ("sabour2017/cifar10", 22_476_448, None, None),
    ("sabour2017/mnist-baseline", 35_445_522, None, "35.4M"),
    ("sabour2017/multimnist-baseline", 24_563_978, None, "24.56M"),
    ("tsai2020/cifar10-simple", 561_297, None, "0.56M"),
    ("tsai2020/cifar100-simple", 1_462_989, None, "1.46M"),
    ("tsai2020/cifar10-resnet", 1_828_817, None, "1.83M"),
    ("tsai2020/cifar100-resnet", 2_799_629, None, "2.80M"),
    ("tsai2020/cifar10-simple-dynamic", 7_992_576, None, "7.99M"),
    ("tsai2020/cifar100-simple-dynamic", 31_585_536, None, "31.59M"),
    ("tsai2020/cifar10-resnet-dynamic", 12_451_136, None, "12.45M"),
    ("tsai2020/cifar100-resnet-dynamic", 36_044_096, None, "36.04M"),
    ("tsai2020/cifar10-simple-em", 452_788, None, "0.45M"),
    ("tsai2020/cifar100-simple-em", 499_048, None, "0.50M"),
    ("tsai2020/cifar10-resnet-em", 1_710_580, None, "1.71M"),
    ("tsai2020/cifar100-resnet-em", 1_756_840, None, "1.76M"),
    ("tsai2020/cifar10-baseline", 18_919_434, None, "18.92M"),
    ("tsai2020/cifar100-baseline", 19_011_684, None, "19.01M"),
    ("tsai2020/cifar10-resnet18", 11_173_962, None, "11.17M"),
    ("tsai2020/cifar100-resnet18", 11_220_132, None, "11.22M"),
    ("tsai2020/diversemultimnist-matrix", 9_982_401, None, None),
    ("tsai2020/diversemultimnist-vector", 42_496_449, None, None),
    ("tsai2020/diversemultimnist-baseline-learned", 42_490_762, None, "42.49M"),
    ("choi2019/mnist", 5_312_528, 5_312_784, "5.31M"),
    ("choi2019/affnist", 3_500_832, 3_501_088, None),
    ("choi2019/cifar10-0-16", 7_293_152, 7_293_408, "7.3M"),
    ("choi2019/cifar10-1-16", 3_519_840, 3_520_096, "3.5M"),
    ("choi2019/cifar10-2-16", 3_678_688, 3_678_944, "3.7M"),
    ("choi2019/cifar10-3-16", 3_837_536, 3_837_792, "3.8M"),
    ("choi2019/cifar10-4-16", 3_996_384, 3_996_640, "4.0M"),
    ("choi2019/cifar10-0-32", 12_637_312, 12_637_568, "12.6M"),
    ("choi2019/cifar10-1-32", 7_716_224, 7_716_480, "7.7M"),
    ("choi2019/cifar10-2-32", 8_332_928, 8_333_184, "8.4M in the paper, 8.3M by count"),
    ("choi2019/cifar10-3-32", 8_949_632, 8_949_888, "8.9M"),
    ("choi2019/cifar10-4-32", 9_566_336, 9_566_592, "9.6M"),
    ("choi2019/cifar10", 9_566_336, 9_566_592, "9.6M"),
    ("choi2019/mnist-dynamic", 8_215_568, None, "8.21M"),
    ("choi2019/cifar10-dynamic", 11_749_120, None, "11.74M"),
    ("zhao2020/cifar10-light", 1_002_816, None, None),
    ("zhao2020/cifar10", 903_760, 907_504, "less than 1M"),
    ("zhao2020/fashion-mnist", 903_472, 907_216, "less than 1M"),
    ("zhao2020/affnist", 195_376 + 186_145, 195_920 + 199_041, "196K + 199K"),
    ("zhao2020/multimnist", 552_849, 564_753, "457K in the paper, 565K as its authors coded it"),
    ("hinton2018/smallnorb", 317_194, None, "310K in the paper, rounded or by another count"),
    ("hinton2018/smallnorb-small", 68_754, None, "68K"),
    ("yang2021/mnist-l2", 8_215_568 + 11_520, None, None),
    ("yang2021/mnist-l1-plain", 6_804_224 + 11_520, None, None),
]


def on_meta(name: str) -> tc.Network:
    with torch.device("meta"):
        return tc.build(name)


@pytest.mark.parametrize(
    ("name", "learned", "everything", "paper"), COUNTS, ids=[c[0] for c in COUNTS]
)
def test_sizes_are_those_of_the_papers(
    name: str, learned: int, everything: int | None, paper: str | None
) -> None:
    network = on_meta(name)
    assert network.n_parameters == learned
    if everything is not None:
        numbers = (x for x in network.state_dict().values() if x.is_floating_point())
        assert sum(x.numel() for x in numbers) == everything
    if paper is not None and ZOO[name].paper[:1].isdigit():
        assert ZOO[name].paper.split()[0] in paper or name == "sabour2017/affnist"


def test_parts_have_the_published_sizes() -> None:
    decoder = cast(nn.Module, on_meta("sabour2017/mnist").decoder)
    assert sum(p.numel() for p in decoder.parameters()) == 1_411_344
    network = on_meta("sabour2017/multimnist")
    decoder = cast(nn.Module, network.decoder)
    assert network.n_parameters - sum(p.numel() for p in decoder.parameters()) == 9_425_824


def example(name: str, batch: int) -> tuple[tc.Network, Tensor, Tensor]:
    torch.manual_seed(0)
    network = tc.build(name)
    images = torch.rand(batch, *network.image_shape)
    targets = torch.arange(batch) % network.n_classes
    if getattr(network, "n_objects", 1) == 2:
        targets = torch.stack([targets, (targets + 1) % network.n_classes], dim=1)
    return network, images, targets


def check_backward(network: tc.Network, output: tc.Output) -> None:
    assert output.scores.shape[1] == network.n_classes
    assert output.scores.isfinite().all()
    loss = output.scores.float().square().sum()
    if output.reconstruction is not None:
        loss = loss + output.reconstruction.float().square().mean()
    loss.backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part"
        assert parameter.grad.isfinite().all(), name
        parameter.grad = None


@pytest.mark.parametrize("name", ZOO)
def test_every_network_runs_both_ways_in_both_precisions(name: str) -> None:
    network, images, targets = example(name, 2)
    for batch in (1, 2):
        check_backward(network, network(images[:batch], targets[:batch]))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = network(images[:batch], targets[:batch])
        check_backward(network, output)
    # A sample in evaluation does not depend on its batch mates.
    network.eval()
    with torch.no_grad():
        together, alone = network(images, couplings=True), network(images[:1])
    torch.testing.assert_close(alone.scores[0], together.scores[0], rtol=1e-3, atol=1e-4)
    assert together.scores.shape == (2, network.n_classes)
    assert alone.couplings == ()
    if together.capsules is not None:
        assert together.capsules.poses.shape[:2] == (2, network.n_classes)
        assert len(together.couplings) >= 1
    if together.reconstruction is not None:
        assert together.reconstruction.shape[-3:] == network.image_shape
        assert together.reconstruction.shape[0] == 2


FAMILIES = [
    "sabour2017/svhn",
    "hinton2018/smallnorb-small",
    "tsai2020/cifar10-simple",
    "tsai2020/cifar10-simple-c",
    "tsai2020/cifar10-resnet18",
    "choi2019/cifar10-2-16",
    "zhao2020/affnist",
    "zhao2020/smallnorb-em",
    "yang2021/mnist-l1-plain",
]


@pytest.mark.parametrize("name", ZOO)
def test_every_network_compiles(name: str) -> None:
    network, images, targets = example(name, 2)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    network.eval()
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(images).scores, network(images).scores, rtol=1e-4, atol=1e-5
        )
    if name in FAMILIES:
        check_backward(network.train(), compiled(images, targets))


def test_unknown_names_and_wrong_images_get_one_sentence() -> None:
    with pytest.raises(ValueError, match="did you mean 'sabour2017/mnist'"):
        tc.build("sabour2017/mnits")
    with pytest.raises(ValueError, match=r"zhao2020/affnist takes images \[b 1 40 40\], not"):
        tc.build("zhao2020/affnist")(torch.zeros(2, 1, 28, 28))
    with pytest.raises(ValueError, match="too small"):
        tc.build("sabour2017/mnist", image_shape=(1, 12, 12))
    with pytest.raises(ValueError, match="too small"):
        tc.build("tsai2020/cifar10-simple", image_shape=(3, 6, 6))
    with pytest.raises(ValueError, match="too small"):
        tc.build("hinton2018/smallnorb", image_shape=(2, 8, 8))
    with pytest.raises(ValueError, match="zhao2020/cifar10 does not iterate"):
        tc.build("zhao2020/cifar10", iterations=2)
    with pytest.raises(ValueError, match="iterations must be"):
        tc.build("sabour2017/mnist", iterations=0)
    for wrong in (0, "5", 5.0):
        with pytest.raises(ValueError, match="n_classes must be a whole number of at least 1"):
            tc.build("sabour2017/mnist", n_classes=cast(Any, wrong))
    for shape in ((28, 28), 32, (1, 28, 0), (1, 28.0, 28)):
        with pytest.raises(ValueError, match="image_shape must be"):
            tc.build("sabour2017/mnist", image_shape=cast(Any, shape))
    for name in (None, 3):
        with pytest.raises(ValueError, match="name is a string"):
            tc.build(cast(Any, name))
    network = tc.build("zhao2020/multimnist")
    for images in (torch.zeros(2, 1, 36, 36, dtype=torch.uint8), [0.0]):
        with pytest.raises(ValueError, match="floats between 0 and 1"):
            network(cast(Any, images))
    with pytest.raises(ValueError, match=r"float64 and the weights are not: use images.float\(\)"):
        network(torch.zeros(2, 1, 36, 36, dtype=torch.float64))
    assert network.double()(torch.rand(2, 1, 36, 36, dtype=torch.float64)).scores.shape == (2, 10)
    network.float()
    for targets in (torch.zeros(2, dtype=torch.long), torch.zeros(2, 10, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"must be class numbers \[2, 2\]"):
            network(torch.rand(2, 1, 36, 36), targets)
    with pytest.raises(ValueError, match="cannot show 2 of 1 classes"):
        tc.build("zhao2020/multimnist", n_classes=1)
    with pytest.raises(ValueError, match="the same classes"):
        tc.Ensemble([tc.build("zhao2020/smallnorb"), tc.build("zhao2020/svhn-light")])
    assert tc.build("tsai2020/cifar10-baseline", image_shape=(3, 64, 48))(
        torch.rand(2, 3, 64, 48)
    ).scores.shape == (2, 10)


EM_NETWORKS = [name for name in ZOO if name.startswith("hinton") or name.endswith("-em")]


@pytest.mark.parametrize("name", EM_NETWORKS)
def test_em_networks_tell_images_apart_from_the_start(name: str) -> None:
    network, images, _ = example(name, 2)
    images[1] = images[1].flip(-1) ** 4
    scores = network(images).scores
    assert (scores[0] - scores[1]).abs().max() > 1e-4
    assert ((scores > 0) & (scores < 1)).all()


@pytest.mark.parametrize(
    "name",
    [
        "sabour2017/svhn",
        "hinton2018/smallnorb-small",
        "tsai2020/cifar10-simple",
        "tsai2020/cifar10-simple-dynamic",
        "zhao2020/smallnorb-em",
        "demo/strokes-inverted-attention",
    ],
)
def test_iterations_change_scores_and_nothing_learned(name: str) -> None:
    torch.manual_seed(0)
    one = tc.build(name, iterations=1).eval()
    four = tc.build(name, iterations=4).eval()
    four.load_state_dict(one.state_dict())
    images = torch.rand(2, *one.image_shape)
    assert not torch.allclose(one(images).scores, four(images).scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["zhao2020/affnist-dynamic", "zhao2020/affnist-em"])
def test_votes_start_as_short_as_in_the_code_of_zhao(name: str) -> None:
    torch.manual_seed(0)
    network = cast(tc.ResCapsNet, tc.build(name))
    n_children, n_parents = network.classes.weight.shape[:2]
    keras = (2 / (n_children * n_parents * (4 + 4))) ** 0.5
    assert network.classes.weight.detach().std().item() == pytest.approx(keras, rel=0.03)
    # at lengths of 0.996, of all classes alike, the margin loss has next to no gradient
    scores = network(torch.rand(8, *network.image_shape)).scores
    assert 0.1 < scores.mean().item() < 0.9


def test_capsules_of_dynamic_routing_start_neither_absent_nor_certain() -> None:
    torch.manual_seed(0)
    network = tc.build("tsai2020/diversemultimnist-vector-dynamic")
    lengths = network(torch.rand(2, *network.image_shape).round()).capsules.poses.norm(dim=-1)
    assert 0.3 < lengths.mean().item() < 0.95


def test_routings_that_yang_compares_have_the_same_primary_capsules() -> None:
    for data in ("mnist", "fashion-mnist", "cifar10", "multimnist"):
        with torch.device("meta"):
            networks = [tc.build(f"yang2021/{data}-{way}") for way in ("dynamic", "l1", "l2")]
        kinds = {type(cast(tc.CapsNet, network).primary.pose_conv) for network in networks}
        assert len(kinds) == 1, data


def test_predictions_for_one_and_several_classes() -> None:
    scores = torch.tensor([[0.1, 3.0, -2.0, 0.5], [2.0, -1.0, 1.0, -3.0]])
    assert tc.predict(scores).tolist() == [1, 0]
    assert tc.predict(scores, top=2).tolist() == [[0, 1, 0, 1], [1, 0, 1, 0]]
    assert tc.predict(scores, threshold=0.5).tolist() == [[1, 1, 0, 1], [1, 0, 1, 0]]
    assert tc.predict(scores, threshold=0.9).tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]
    for wrong in ({"top": 5}, {"top": 0}, {"threshold": 1.5}, {"top": 1, "threshold": 0.5}):
        with pytest.raises(ValueError, match=r"top|threshold"):
            tc.predict(scores, **cast(Any, wrong))


def test_an_ensemble_sums_scores() -> None:
    networks = [tc.build("zhao2020/smallnorb").eval() for _ in range(3)]
    images = torch.rand(2, 1, 32, 32)
    total = sum(network(images).scores for network in networks)
    torch.testing.assert_close(tc.Ensemble(networks).eval()(images).scores, total)
    with pytest.raises(ValueError, match="at least one"):
        tc.Ensemble([])


def test_multimnist_decodes_two_digits() -> None:
    network, images, targets = example("zhao2020/multimnist", 2)
    output = network(images, targets)
    assert output.reconstruction is not None
    assert output.reconstruction.shape == (2, 2, 1, 36, 36)
    assert network(images).reconstruction is None
    network.eval()
    output = network(images, targets)
    assert output.reconstruction is not None
    assert output.capsules is not None
    best = output.scores.topk(2).indices
    decoder = cast(tc.Decoder, network.decoder)
    for k in range(2):
        torch.testing.assert_close(
            output.reconstruction[:, k], decoder.decode(output.capsules.poses, best[:, k])
        )


@pytest.mark.parametrize("name", ["sabour2017/mnist-plain", "yang2021/cifar10-dynamic"])
def test_one_step_of_adam_does_not_saturate_capsnet(name: str) -> None:
    torch.manual_seed(0)
    net = cast(tc.CapsNet, tc.build(name))
    images, classes = torch.rand(8, *net.image_shape).round(), torch.arange(8)

    def mean_length() -> float:
        poses = net.primary(net.backbone(images)).poses
        return float(poses.norm(dim=-1).mean().detach())

    before = mean_length()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    tc.margin_loss(net(images).scores, classes).backward()
    optimizer.step()
    assert 0.05 < before < 0.5
    assert mean_length() < 0.5


def test_first_steps_of_adam_leave_the_classes_of_chois_capsulenet_short() -> None:
    torch.manual_seed(0)
    net = cast(tc.CapsNet, tc.build("choi2019/cifar10-dynamic", iterations=3))
    images, classes = torch.rand(4, 3, 32, 32), torch.arange(4)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        tc.margin_loss(net(images).scores, classes).backward()
        optimizer.step()
    # at 0.97, of all classes and images alike, they stayed
    assert net(images).scores.mean().item() < 0.9
