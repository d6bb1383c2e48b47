# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Deploy without PyTorch
#
# An exported network is one file. It takes pixels, preprocesses them itself and needs neither PyTorch nor torchcaps to run. This
# page exports a trained network as ONNX and runs it with onnxruntime. Writing ONNX needs `pip install 'torchcaps[export]'`.
#
# ## Export

# %%
import tempfile
from pathlib import Path

import torch

import torchcaps as tc

path = Path(tempfile.mkdtemp()) / "digits.onnx"
exported = tc.export("demo/mnist-dynamic", path)
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
print(
    f"largest difference to PyTorch: {exported.difference:.0e}, equal predictions: {exported.equal}"
)

# %% [markdown]
# Before the file is written, its outputs are compared with PyTorch's. The command does the same:
#
# ```
# torchcaps export demo/mnist-dynamic --to onnx --out digits.onnx
# ```
#
# ## Run
#
# From here on the code needs numpy and onnxruntime alone. Images are float32 in 0 to 1, any number of them.

# %%
import json

import onnxruntime

session = onnxruntime.InferenceSession(path)
images = tc.data.first_samples(tc.data.load("strokes", "test"), 8).numpy().astype("float32") / 255
(scores,) = session.run(["scores"], {"images": images})
print(scores.argmax(axis=1))

# %% [markdown]
# The file says what it is: class names, recipe, commit, accuracy and the hash of the weights.

# %%
facts = json.loads(session.get_modelmeta().custom_metadata_map["torchcaps"])
for key, value in facts.items():
    print(f"{key}: {str(value)[:70]}")

# %% [markdown]
# ## The same scores as PyTorch

# %%
net = tc.build("demo/mnist-dynamic", pretrained=True).eval()
with torch.no_grad():
    expected = net(net.preprocess(torch.from_numpy(images))).scores
print(f"largest difference: {abs(scores - expected.numpy()).max():.1e}")

# %% [markdown]
# [Export](../export.md) also runs the file in a browser, and writes int8 files and traces of the routing.
