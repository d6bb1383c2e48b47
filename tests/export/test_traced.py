"""What capsule layers did, as named tensors: the network's own numbers, also as one program."""

import json
from typing import cast

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.repetitions import mark_slow_except
from torchcaps.data import Normalize
from torchcaps.errors import InputError, UsageError
from torchcaps.export.traced import Drawing, Graph, Traced

DEMOS = [name for name in tc.list_models() if name.startswith("demo/")]
QUICK = ("demo/strokes-dynamic", "demo/strokes-attention", "demo/strokes-em")


def small(name: str) -> tc.Network:
    torch.manual_seed(0)
    network = tc.build(name).eval()
    size = network.image_shape[1], network.image_shape[2]
    network.preprocessing = tc.Preprocessing(1, size, (Normalize([0.2], [0.4]),))
    return network


def run(program: torch.nn.Module, *inputs: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        return cast(dict[str, Tensor], program(*inputs))


@pytest.mark.parametrize("name", mark_slow_except(DEMOS, *QUICK))
def test_traced_outputs_are_the_networks_own(name: str) -> None:
    network = small(name)
    pixels = torch.randint(0, 256, (3, *network.image_shape), dtype=torch.uint8)
    with torch.no_grad():
        output = network(network.preprocess(pixels), couplings=True)
    graph = Traced(network)
    outputs = run(graph, pixels / 255)
    assert next(iter(outputs)) == "scores"
    torch.testing.assert_close(outputs["scores"], output.scores)
    torch.testing.assert_close(outputs["poses"], output.capsules.poses)
    torch.testing.assert_close(outputs["lengths"], output.capsules.poses.norm(dim=-1))
    assert ("drawing" in outputs) == (output.reconstruction is not None)
    if output.reconstruction is not None:
        torch.testing.assert_close(outputs["drawing"], output.reconstruction)
    couplings = outputs["classes.couplings"]
    last = output.couplings[0].reshape(couplings[:, -1].shape)
    torch.testing.assert_close(couplings[:, -1], last)
    torch.testing.assert_close(outputs["classes.poses"][:, -1, 0], output.capsules.poses)
    routing = network.get_submodule("classes.routing")
    assert isinstance(routing, tc.Routing)
    assert couplings.shape[1] == (routing.iterations or 1)


@pytest.mark.parametrize("name", mark_slow_except(DEMOS, *QUICK))
def test_traced_exports_whole_with_a_free_batch_size(name: str) -> None:
    graph = Traced(small(name))
    with torch.no_grad():
        program = torch.export.export(
            graph, (graph.example(2),), dynamic_shapes={"images": {0: torch.export.Dim("b")}}
        ).module()
    images = torch.rand(5, *graph.input_shape)
    torch.testing.assert_close(run(program, images), run(graph, images))


def test_iterations_show_how_couplings_and_parents_move() -> None:
    network = small("demo/strokes-dynamic")
    images = torch.rand(2, 1, 28, 28)
    three, two = run(Traced(network), images), run(Traced(network, iterations=2), images)
    for name in ("classes.couplings", "classes.poses", "classes.activations"):
        assert three[name].shape[1] == 3
        torch.testing.assert_close(two[name], three[name][:, :2])
    network.set_iterations(2)
    torch.testing.assert_close(
        run(Graph(network), images)["poses"], three["classes.poses"][:, 1, 0]
    )


def test_the_description_is_json_that_names_every_output_and_layer() -> None:
    graph = Traced(small("demo/strokes-attention"))
    described = json.loads(json.dumps(graph.describe()))
    outputs = run(graph, graph.example(2))
    assert described["input"] == [1, 28, 28]
    assert described["outputs"] == {name: list(t.shape[1:]) for name, t in outputs.items()}
    (layer,) = described["layers"]
    rows, columns, types = layer["below"]
    assert sorted(child for slots in layer["child"] for child in slots) == list(
        range(rows * columns * types)
    )
    assert (layer["name"], layer["competes_over"]) == ("classes", "children")


def test_a_drawing_is_the_decoders_for_the_class_asked_for() -> None:
    network = small("demo/strokes-dynamic")
    graph, poses, classes = Drawing(network), torch.randn(3, 10, 16), torch.tensor([3, 0, 9])
    shapes = {name: {0: torch.export.Dim("b")} for name in ("poses", "classes")}
    with torch.no_grad():
        program = torch.export.export(graph, graph.example(2), dynamic_shapes=shapes).module()
        drawn = program(poses, classes)
        alone = poses.clone()
        alone[torch.arange(10) != classes[:, None]] = 7.0
        assert drawn.shape == (3, 1, 28, 28)
        torch.testing.assert_close(drawn, graph(alone, classes))


def test_networks_without_preprocessing_capsules_or_decoder_are_refused_in_a_sentence() -> None:
    with pytest.raises(UsageError, match="unknown how images"):
        Traced(tc.build("demo/strokes-dynamic"))
    baseline = tc.build("sabour2017/mnist-baseline")
    baseline.preprocessing = tc.Preprocessing(1, (28, 28))
    with pytest.raises(InputError, match="has no capsule layers"):
        Traced(baseline).describe()
    with pytest.raises(InputError, match="has no decoder"):
        Drawing(baseline)
