"""Networks that leave Python: graphs that take pixels, as ONNX and as PyTorch programs."""
