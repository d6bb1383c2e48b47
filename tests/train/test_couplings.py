"""Weight decay on vote weights makes couplings uniform; the routed recipe spares them."""

from functools import partial

import torch

import torchcaps as tc
from torchcaps.data import Batches, load
from torchcaps.models.tsai2020 import AttentionCapsNet, Conv, simple_backbone
from torchcaps.recipes import Recipe, get
from torchcaps.train.evaluation.diagnostics import diagnose_routing
from torchcaps.train.optimizers import make_optimizers
from torchcaps.train.process import Process
from torchcaps.train.step import make_step

CPU = torch.device("cpu")
STEPS = 120


def trained(recipe: Recipe) -> tuple[AttentionCapsNet, float]:
    """Train a small network of the family; return it and its accuracy on other digits.

    Weight decay is a hundred times the recipe's, as the run is short.
    """
    torch.manual_seed(0)
    modules = tc.build(recipe.network).modules()
    (scale,) = {m.scale for m in modules if isinstance(m, tc.InvertedAttentionRouting)}
    network = AttentionCapsNet(
        (1, 28, 28),
        10,
        backbone=partial(simple_backbone, out_channels=16),
        n_types=8,
        convs=(Conv(3, 2), Conv(3, 2)),
        iterations=3,
        routing=partial(tc.InvertedAttentionRouting, scale=scale),
    )
    short = recipe.override(lr=0.02, weight_decay=0.05, batch_size=32, average=0.0, compile=False)
    step = make_step(short, network, Process(CPU), steps=STEPS)
    network.train()
    for _, batch in zip(range(STEPS), Batches(load("strokes"), 32, seed=0).epoch(0), strict=False):
        step(batch)
    network.eval()
    batch = Batches(load("strokes", "test"), 200).batch(torch.arange(200))
    with torch.no_grad():
        right = tc.predict(network(batch.images)) == batch.labels
    return network, float(right.float().mean())


def shares(network: AttentionCapsNet) -> list[float]:
    images = Batches(load("strokes", "test"), 32).batch(torch.arange(32)).images
    point = diagnose_routing(network, images, epoch=1, measure="top1")
    assert point is not None
    return [share for layer in point.layers if (share := layer.entropy_share) is not None]


def test_couplings_of_the_routed_recipe_leave_uniform_and_those_of_the_headline_do_not() -> None:
    routed, accuracy = trained(get("tsai2020/cifar10-resnet-routed"))
    usual, usual_accuracy = trained(get("tsai2020/cifar10-resnet-modern"))
    assert min(accuracy, usual_accuracy) > 0.3
    # updates of the first layer would reach the classes with a fourth iteration only
    assert max(shares(routed)[1:]) < 0.9
    assert min(shares(usual)) > 0.99


def test_vote_weights_are_spared_from_weight_decay_when_asked() -> None:
    network = tc.build("tsai2020/cifar10-simple")
    votes = {id(layer.weight) for layer in network.modules() if isinstance(layer, tc.ConvCapsules)}
    assert len(votes) == 2
    recipe = get("tsai2020/cifar10-simple")
    for chosen, spared in ((recipe, False), (recipe.override(decay_votes=False), True)):
        groups = make_optimizers(chosen, network, CPU)[0].param_groups
        decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
        assert (not votes & decayed) is spared
        assert id(network.get_parameter("classifier.bias")) in decayed
