"""Networks that leave Python: graphs that take pixels, as ONNX and as PyTorch programs.

``torchcaps.export`` is the function; its room holds the modules that it exports.
"""

from torchcaps.export.write import Exported as Exported, export as export
