"""Copies of parents in the orders of the kernels."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("interpreter")


@pytest.mark.parametrize("windows", [1, 16, 19, 130])
@pytest.mark.parametrize(("rows", "columns"), [(1, 8), (4, 4), (3, 5)])
def test_one_kernel_copies_what_pytorch_copies(windows: int, rows: int, columns: int) -> None:
    from torchcaps.kernels.common.layout import Layout
    from torchcaps.kernels.common.pack import pack_both

    poses = torch.rand(windows, 1, 1, 5, rows * 4)
    window = ((1, 1), (1, 1), (0, 0))
    layout = Layout(poses, torch.rand(5, 3, 4, columns), None, *window)
    first = torch.rand(windows, 3, rows * columns)
    second = torch.rand(windows, rows * columns, 3, dtype=torch.float64).transpose(1, 2)
    for parents, packed in zip((first, second), pack_both(layout, first, second), strict=True):
        assert torch.equal(packed.by_window, layout.pack(parents))
        assert torch.equal(packed.by_tile, layout.by_tile(layout.pack(parents)))


def test_a_gradient_may_be_one_number_for_all() -> None:
    from torchcaps.kernels.common.layout import Layout
    from torchcaps.kernels.common.pack import pack_both

    layout = Layout(torch.rand(5, 1, 1, 5, 4), torch.rand(5, 3, 4, 8), None, (1, 1), (1, 1), (0, 0))
    one = torch.ones(()).expand(5, 3, 8)
    for packed in pack_both(layout, one, one):
        assert packed.by_window.eq(1).all()
        assert packed.by_tile.sum() == 5 * 3 * 8
