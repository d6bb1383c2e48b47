"""The scorecard's row on wrong tensors: see `trials.tensors`."""

import pytest

from reliability.rows import ROWS
from reliability.trials import tensors


@pytest.mark.parametrize("place", tensors.PLACES)
@pytest.mark.parametrize("name", tensors.NAMES)
def test_odd_tensors_give_a_result_or_a_sentence(place: str, name: str) -> None:
    for kind in tensors.ODDITIES:
        try:
            tensors.PLACES[place](name, kind)
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}") from error


def test_every_routing_meets_every_oddity_in_every_place() -> None:
    cases = len(tensors.PLACES) * len(tensors.NAMES) * len(tensors.ODDITIES)
    assert cases == ROWS["tensors"].release == ROWS["tensors"].pr
