# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Routing in five cells
#
# Dynamic routing (Sabour 2017) fits in a dozen lines. We route the votes of six children for two parents and watch the
# couplings.
#
# ## 1. Votes
#
# Children 0 to 3 agree on parent 0. The votes for parent 1 disagree and cancel. Votes are `[b i j e]`: batch, child, parent,
# pose.

# %%
import matplotlib.pyplot as plt
import torch

import torchcaps as tc

torch.manual_seed(0)
votes = torch.randn(1, 6, 2, 4)
votes[:, :, 1] -= votes[:, :, 1].mean(dim=1, keepdim=True)
votes[0, :4, 0] = torch.tensor([1.0, 0.0, 1.0, 0.0]) + 0.1 * torch.randn(4, 4)

# %% [markdown]
# ## 2. Couplings
#
# Every child starts undecided: a softmax over logits of zero gives each parent one half.

# %%
logits = torch.zeros(1, 6, 2)
couplings = logits.softmax(dim=-1)
print(couplings[0, 0].tolist())

# %% [markdown]
# ## 3. Parents
#
# A parent is the weighted sum of its votes, *squashed* so that its length lies between 0 and 1.

# %%
poses = tc.squash(torch.einsum("bij,bije->bje", couplings, votes))
print("lengths:", tc.lengths(poses)[0].tolist())

# %% [markdown]
# ## 4. Agreement
#
# A child turns to the parent whose pose agrees with its vote. Agreement is a scalar product, added to the logits.

# %%
history = []
for _ in range(3):
    couplings = logits.softmax(dim=-1)
    poses = tc.squash(torch.einsum("bij,bije->bje", couplings, votes))
    history.append(couplings[0, :, 0])
    logits = logits + torch.einsum("bije,bje->bij", votes, poses)

figure, axis = plt.subplots(figsize=(6, 2.6))
picture = axis.imshow(torch.stack(history).numpy(), cmap="coolwarm", vmin=0, vmax=1)
axis.set_xlabel("child")
axis.set_yticks(range(3), [f"iteration {step + 1}" for step in range(3)])
figure.colorbar(picture, label="coupling to parent 0", shrink=0.8)
plt.show()
print("lengths:", tc.lengths(poses)[0].tolist())

# %% [markdown]
# The four children that agree move to parent 0. Its length grows, because their votes point the same way.
#
# ## 5. The library
#
# The function of the library does the same:

# %%
routed = tc.dynamic_routing(votes, iterations=3)
torch.testing.assert_close(routed.poses, poses)
print("lengths:", routed.activations[0].tolist())

# %% [markdown]
# Other routings answer the same question in other ways. EM routing fits a Gaussian to the votes of each parent, and pairwise
# agreement sums the scalar products of all pairs of votes:

# %%
em = tc.em_routing(votes, torch.ones(1, 6), beta_a=0.0, beta_u=0.0, inverse_temperature=1.0)
pairwise = tc.pairwise_agreement(votes)
print("EM, couplings to parent 0:", [round(n, 2) for n in em.couplings[0, :, 0].tolist()])
print(
    "pairwise, agreement of each parent:", [round(n, 2) for n in pairwise.activations[0].tolist()]
)

# %% [markdown]
# [Which routing](../understand/which-routing.md) compares all of them.
