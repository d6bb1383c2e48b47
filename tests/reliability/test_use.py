"""The scorecard's rows on what users run and load, as often as every change is tried."""

from reliability.rows import ROWS
from reliability.scorecard import check_rows
from torchcaps.models.weights.pretrained import shipped


def test_no_request_harms_the_explorers_server() -> None:
    check_rows("explorer")


def test_an_export_is_right_or_leaves_no_file() -> None:
    check_rows("exports")


def test_no_file_runs_code_but_a_recipe_that_was_named() -> None:
    check_rows("recipe-files")


def test_pretrained_weights_bring_their_preprocessing_and_accuracy() -> None:
    check_rows("weights")


def test_a_release_tries_every_shipped_network() -> None:
    from reliability.trials import exports, weights

    assert ROWS["exports"].release == len(shipped()) * len(exports.KINDS)
    assert ROWS["weights"].release == len(weights.cases())
