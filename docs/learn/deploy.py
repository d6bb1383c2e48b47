# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Deploy without PyTorch
#
# PyTorch with CUDA takes several gigabytes of disk. A server, a phone or a browser can do without: an exported network is one
# small file that takes pixels and preprocesses them itself. This page exports a trained network as ONNX and runs it in a
# Python process without PyTorch. Writing ONNX needs `pip install 'torchcaps[export]'`.
#
# ## Export

# %%
import tempfile
from pathlib import Path

import torch

import torchcaps as tc

folder = Path(tempfile.mkdtemp())
exported = tc.export("demo/mnist-dynamic", folder / "digits.onnx")
print(f"{exported.path.name}: {exported.n_bytes / 1e6:.1f} MB")
print(f"predictions equal to PyTorch's: {exported.equal} of {exported.images}")
print(f"largest difference of a score: {exported.difference:.0e}")

# %% [markdown]
# `export` compares the outputs with PyTorch's before it writes the file, and refuses to write a wrong one. The command does the
# same:
#
# ```
# torchcaps export demo/mnist-dynamic --to onnx --out digits.onnx
# ```
#
# ## Run it in another process
#
# We save five generated digits as PNG files, and write a program that reads them with Pillow, numpy and onnxruntime. Its last
# line checks that PyTorch was never imported.

# %%
import subprocess
import sys

from PIL import Image

names = "abcde"
digits = tc.data.first_samples(tc.data.load("strokes", "test"), 5)
for number, digit in enumerate(digits):
    Image.fromarray(digit[0].numpy()).save(folder / f"{names[number]}.png")

program = folder / "classify.py"
program.write_text("""\
import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession("digits.onnx")
classes = json.loads(session.get_modelmeta().custom_metadata_map["torchcaps"])["classes"]
files = sys.argv[1:]
images = np.stack([np.asarray(Image.open(file), dtype=np.float32)[None] / 255 for file in files])
(scores,) = session.run(["scores"], {"images": images})  # [b 1 28 28] of 0 to 1 in, [b 10] out
for file, row in zip(files, scores):
    print(f"{file}: {classes[row.argmax()]} ({row.max():.2f})")
print("PyTorch imported:", "torch" in sys.modules)
""")
command = [sys.executable, program.name, *sorted(path.name for path in folder.glob("*.png"))]
print(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, len(digits), figsize=(7, 1.7))
for number, (axis, digit) in enumerate(zip(axes, digits, strict=True)):
    axis.imshow(digit[0].numpy(), cmap="gray")
    axis.set_title(f"{names[number]}.png")
    axis.set_axis_off()
plt.show()

# %% [markdown]
# The input may have any number of images. Pixels are float32 between 0 and 1, with white ink on black as in MNIST. The output
# `poses` holds the class capsules.
#
# ## The same scores as PyTorch

# %%
import onnxruntime

images = digits.float() / 255
session = onnxruntime.InferenceSession(exported.path)
(scores,) = session.run(["scores"], {"images": images.numpy()})
net = tc.build("demo/mnist-dynamic", pretrained=True).eval()
with torch.no_grad():
    expected = net(net.preprocess(images)).scores
print(f"largest difference: {abs(scores - expected.numpy()).max():.1e}")

# %% [markdown]
# ## What the file says about itself
#
# The metadata name the network, the training run, its test accuracy and the hash of the weights. A file found years later can
# still be traced to its run.

# %%
for key in ("network", "classes", "trained", "sha256", "inputs", "outputs"):
    print(f"{key}: {str(exported.facts[key])[:80]}")

# %% [markdown]
# ## Two other formats
#
# With `int8=True` convolutions and linear layers compute with 8-bit integers. Scores change slightly, so look at the
# comparison. A `.pt2` file is a program of `torch.export`. It needs PyTorch, but not torchcaps.

# %%
for name, options in (("int8.onnx", {"int8": True}), ("digits.pt2", {})):
    other = tc.export("demo/mnist-dynamic", folder / name, **options)
    print(
        f"{name}: {other.n_bytes / 1e6:.1f} MB, {other.equal} of {other.images} predictions equal, "
        f"scores differ by at most {other.difference:.0e}"
    )

# %% [markdown]
# [Export](../export.md) lists all options, and shows how to run the file in a browser.
