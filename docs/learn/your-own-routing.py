# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Write your own routing
#
# A routing is a function from votes to parents. We write one in three steps: a plain function, a small class, and a check. The
# idea is simple: a child gives itself to the parents for which its vote is close to the mean vote of all children.
#
# ## 1. The function
#
# Votes are `[b i j e]`: batch, child, parent, pose. The mask `[b i]` says which children are present. A sequence of tokens has
# padding, and the layers pass votes of zero for it. The function returns poses `[b j e]`, activations `[b j]` and couplings
# `[b i j]`.

# %%
import torch
from torch import Tensor

import torchcaps as tc


def mean_agreement(votes: Tensor, mask: Tensor, *, sharpness: float = 4.0) -> tc.Routed:
    """Couple each child to the parents whose mean vote is close to its own."""
    present = mask[..., None].to(votes.dtype)  # [b i 1]
    mean = votes.sum(dim=1, keepdim=True) / present.sum(dim=1)[..., None, None]  # [b 1 j e]
    distance = (votes - mean).square().mean(dim=-1)  # [b i j]
    couplings = present * (-sharpness * distance).softmax(dim=-1)
    poses = tc.squash(torch.einsum("bij,bije->bje", couplings, votes))
    return tc.Routed(poses, tc.lengths(poses), couplings)


votes = torch.randn(2, 6, 3, 4)  # 2 images, 6 children, 3 parents, poses of 4 numbers
routed = mean_agreement(votes, torch.ones(2, 6, dtype=torch.bool))
print("couplings of the first child:", [round(n, 2) for n in routed.couplings[0, 0].tolist()])

# %% [markdown]
# ## 2. The class
#
# The class holds what is learned, here nothing. Its attributes tell the rest of the library what it needs to know, such as the
# axis over which the couplings sum to one. `self.cast(votes)` returns the dense tensor.
#
# `route_present` is called when some children are absent. A routing whose result does not change with additional votes of zero
# can leave it out. Ours divides by the number of children, so it needs the mask.

# %%
from typing import ClassVar


class MeanAgreementRouting(tc.Routing):
    """Routing by agreement with the mean vote."""

    competes_over: ClassVar = "parents"
    weight_std: ClassVar = 0.1  # initial standard deviation of a head's vote weights
    adds_coordinates: ClassVar = False  # votes are summed, so added positions would saturate them

    def __init__(self, sizes: tc.Sizes, *, sharpness: float = 4.0) -> None:
        super().__init__(sizes)
        self.sharpness = sharpness

    def forward(self, children, votes, parents=None):
        everyone = torch.ones(votes.shape[:2], dtype=torch.bool, device=children.poses.device)
        return self.route_present(children, votes, everyone, parents)

    def route_present(self, children, votes, mask, parents=None):
        self.refuse_parents(parents)  # it starts from the votes alone
        return mean_agreement(self.cast(votes), mask, sharpness=self.sharpness)


# %% [markdown]
# ## 3. The check
#
# `check_routing` runs the contract: shapes, couplings that sum to one, gradients against finite differences, finite numbers at
# zero votes, the order of children, masks, and more. It raises an `AssertionError` that names the broken rule.

# %%
from torchcaps.testing import check_routing

check_routing(MeanAgreementRouting)
print("the contract holds")

# %% [markdown]
# ## Use it
#
# Every layer and network that takes `routing=` takes yours.

# %%
from functools import partial

from torchcaps.data import Batches, load

torch.manual_seed(0)
backbone = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 5, 2), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 5, 2), torch.nn.ReLU()
)
head = tc.CapsuleHead(
    32, n_classes=10, n_types=8, matrix=False, routing=partial(MeanAgreementRouting, sharpness=2.0)
)
model = torch.nn.Sequential(backbone, head)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step, batch in zip(range(200), Batches(load("strokes"), 64, seed=0).epoch(0)):
    loss = tc.margin_loss(model(batch.images).scores, batch.labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}: loss {loss.item():.3f}")

# %%
test = next(iter(Batches(load("strokes", "test"), 1000).epoch(0)))
with torch.no_grad():
    right = tc.predict(model(test.images).scores) == test.labels
print(f"{100 * right.float().mean():.1f} % of 1,000 test digits")

# %% [markdown]
# To train it with the command line, put the class, a network and a recipe into a file and name it: `torchcaps train
# ./my_recipe.py:recipe`. [The networks page](../networks.md) has such a file.
#
# `torchcaps compare --routing ./mine.py:MeanAgreementRouting` trains it on the backbone of
# [the comparison](../understand/which-routing.md), and prints it beside every other routing.
