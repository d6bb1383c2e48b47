"""A training step or a forward pass as one CUDA graph, for any training loop.

Capsule networks launch hundreds of small kernels per step, and in eager mode the GPU waits for
Python most of the time. A CUDA graph records the launches once and replays them in one call. Before
that, the kernels of a step compile all at once.
"""

from torchcaps.captured.network import CapturedNetwork as CapturedNetwork
from torchcaps.captured.precompilation import precompile as precompile
from torchcaps.captured.step import CapturedStep as CapturedStep
