"""The explorer without a server: its page, exported graphs and onnxruntime-web, in files."""
