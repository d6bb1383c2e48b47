"""torchcaps: capsule networks for PyTorch, correct to the papers."""

__version__ = "0.1.0.dev0"
