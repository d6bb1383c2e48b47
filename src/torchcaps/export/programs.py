"""A module of tensors as the bytes of a file, and such bytes run again: ONNX and PyTorch."""

import importlib.util
import io
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError

KEY = "torchcaps"
"""Entry of an ONNX file's metadata with what is known of the network, as JSON."""

EXTRA = "torchcaps.json"
"""The same inside a .pt2 file."""

QUANTIZED = ("Conv", "Gemm")
"""Operators that compute in int8; routing has none of them."""

Inputs = dict[str, Tensor]
Run = Callable[[Inputs], list[Tensor]]


def check_packages(*names: str, remedy: str) -> None:
    """Refuse work whose packages are not installed."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise TorchcapsError(f"this needs {' and '.join(missing)}: pip install {remedy}")


def to_onnx(
    graph: nn.Module, inputs: Inputs, outputs: Sequence[str], facts: Mapping[str, Any]
) -> bytes:
    """Return an ONNX model with a free batch size.

    Args:
        graph: the module.
        inputs: an example of each input, with two images or more.
        outputs: names of the outputs.
        facts: what the file says about itself, as `json` can store it.
    """
    check_packages("onnx", "onnxscript", remedy='"torchcaps[export]"')
    from onnx.helper import set_model_props

    with torch.no_grad(), _quietly():
        program = torch.onnx.export(
            graph,
            tuple(inputs.values()),
            dynamo=True,
            verbose=False,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=_free_batch(inputs),
            custom_translation_table={torch.ops.aten.sigmoid.default: _exact_sigmoid},
        )
    assert program is not None
    model = program.model_proto
    _strip(model)
    set_model_props(model, {KEY: json.dumps(facts)})
    return bytes(model.SerializeToString())


def _exact_sigmoid(x: Any) -> Any:
    """Return the sigmoid by its definition.

    The operator of onnxruntime is off by up to 1e-7, which is all of a nearly absent capsule.
    """
    from onnxscript import opset20 as op

    return op.Reciprocal(op.Add(op.Exp(op.Neg(x)), op.Constant(value_float=1.0)))


def to_program(graph: nn.Module, inputs: Inputs, facts: Mapping[str, Any]) -> bytes:
    """Return a file of `torch.export.save` with a free batch size; see :func:`to_onnx`."""
    with torch.no_grad(), _quietly():
        program = torch.export.export(
            graph, tuple(inputs.values()), dynamic_shapes=_free_batch(inputs)
        )
        buffer = io.BytesIO()
        torch.export.save(program, buffer, extra_files={EXTRA: json.dumps(facts)})
    return buffer.getvalue()


def to_int8(model: bytes, batches: Sequence[Inputs]) -> bytes:
    """Return an ONNX model whose convolutions and linear layers compute in int8.

    Args:
        model: the model in float32.
        batches: inputs on which the ranges of activations are measured.
    """
    check_packages("onnxruntime", remedy="onnxruntime")
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    from onnxruntime.quantization import QuantFormat, quantize_static

    with tempfile.TemporaryDirectory() as folder, _quietly():
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        source.write_bytes(_with_plain_weights(model))
        quantize_static(
            source,
            target,
            Calibration(batches),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(QUANTIZED),
            per_channel=True,
        )
        return target.read_bytes()


class Calibration:
    """Batches for onnxruntime, one after another."""

    def __init__(self, batches: Sequence[Inputs]) -> None:
        self.rest = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        """Return the next batch as arrays, or None after the last."""
        batch = next(self.rest, None)
        return None if batch is None else {name: t.numpy() for name, t in batch.items()}


def _with_plain_weights(content: bytes) -> bytes:
    """Return a model whose convolutions and linear layers take their weights as they are.

    The primary capsules of Sabour 2017 scale theirs, and such a product is not quantized.
    """
    import onnx
    from onnxscript import ir, optimizer

    model = ir.from_proto(onnx.load_from_string(content))

    def is_weight(node: Any) -> bool | None:
        uses = [use for output in node.outputs for use in output.consumers()]
        return True if any(use.op_type in QUANTIZED for use in uses) else None

    optimizer.fold_constants(model, should_fold=is_weight)
    return bytes(ir.to_proto(model).SerializeToString())


def run_onnx(model: bytes) -> Run:
    """Return a function that runs an ONNX model: by onnxruntime, or else by onnx itself."""
    if importlib.util.find_spec("onnxruntime") is None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        session: Any = ReferenceEvaluator(onnx.load_from_string(model))
    else:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def run(inputs: Inputs) -> list[Tensor]:
        arrays = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        return [torch.from_numpy(array) for array in arrays]

    return run


def run_program(content: bytes) -> Run:
    """Return a function that runs the bytes of a .pt2 file."""
    with _quietly():
        module = torch.export.load(io.BytesIO(content)).module()

    def run(inputs: Inputs) -> list[Tensor]:
        with torch.no_grad():
            outputs = module(*inputs.values())
        return list(outputs.values()) if isinstance(outputs, dict) else [outputs]

    return run


def _free_batch(inputs: Inputs) -> dict[str, dict[int, Any]]:
    return {name: {0: torch.export.Dim("b")} for name in inputs}


def _strip(model: Any) -> None:
    """Remove stack traces, which would carry the paths of this machine."""
    for node in model.graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        value.ClearField("metadata_props")
    for weight in model.graph.initializer:
        weight.ClearField("metadata_props")
    model.graph.ClearField("metadata_props")


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide the exporters' warnings, which are about their own code."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
