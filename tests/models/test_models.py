"""The networks: published sizes to the unit, both precisions, any batch, saving, Procedure 2."""

from typing import Any, cast

import pytest
import torch
from torch import nn

import torchcaps as tc
from helpers.networks.published import COUNTS, example
from helpers.repetitions import mark_slow_except
from torchcaps.models import ZOO
from torchcaps.models.demo import N_CAPSULES

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


def check_backward(network: tc.Network, output: tc.Output, *, finite: bool = True) -> None:
    assert output.scores.shape[1] == network.n_classes
    assert not finite or output.scores.isfinite().all()
    loss = output.scores.float().square().sum()
    if output.reconstruction is not None:
        loss = loss + output.reconstruction.float().square().mean()
    loss.backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part"
        assert not finite or parameter.grad.isfinite().all(), name
        parameter.grad = None


@pytest.mark.parametrize("name", ZOO)
def test_every_parameter_of_every_network_takes_part(name: str) -> None:
    """Shapes and gradients without numbers, so that the whole zoo is quick."""
    with torch.device("meta"):
        network, images, targets = example(name, 2)
        check_backward(network, network(images, targets), finite=False)
        output = network.eval()(images, couplings=True)
    assert output.scores.shape == (2, network.n_classes)
    assert (output.capsules is None) == (output.couplings == ())
    if output.capsules is not None:
        n_capsules = N_CAPSULES if network.predicts == "numbers" else network.n_classes
        assert output.capsules.poses.shape[:2] == (2, n_capsules)
    if output.reconstruction is not None:
        assert output.reconstruction.shape[-3:] == network.image_shape


@pytest.mark.parametrize("name", mark_slow_except(ZOO, *FAMILIES))
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


@pytest.mark.parametrize(
    "name", mark_slow_except(ZOO, "sabour2017/svhn", "tsai2020/cifar10-simple")
)
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
