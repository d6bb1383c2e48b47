"""Agreement with parents: couplings by softmax over parents, in one fused step."""
