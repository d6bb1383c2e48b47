"""The end of a run: its chosen epoch is scored on the test images and becomes a row of results."""

import hashlib
import json

import torch

from torchcaps.models import Network, save
from torchcaps.provenance import commit, date, hardware, peak_mib
from torchcaps.recipes import RECIPES, Recipe
from torchcaps.recipes.base import Setting
from torchcaps.results import AccuracyRow, describe_routing
from torchcaps.train.checkpoint.files import CheckpointError, load_checkpoint
from torchcaps.train.checkpoint.state import restore_weights, share_checkpoint
from torchcaps.train.images import describe_preprocessing
from torchcaps.train.outputs.folder import SPEED_SETTINGS
from torchcaps.train.process import Process
from torchcaps.train.run import Run


def finish(run: Run) -> AccuracyRow:
    """Score the chosen epoch on the test images once, in float32; save its weights and its row.

    Every process returns the row.
    """
    if run.saver is not None:
        run.saver.wait()
    network, lost = _chosen_network(run)
    sources, test = run.sources, None
    validation = run.validate(sources.validation) if lost else run.progress.best
    if sources.test is not None:
        test = run.accuracy(network, sources.test, "float32", sources.test_draws)
    row = None
    if run.process.leads:
        network.class_names = sources.classes
        network.preprocessing = describe_preprocessing(sources)
        save(network, run.folder.weights)
        run.board.images(network, sources, run.progress.step)
        row = _row(run, network, test=test, validation=validation, lost=lost)
        run.folder.write("result.json", row.to_dict())
        for sentence in describe_routing(run.folder.routing_curve()):
            run.reporter.say(sentence)
    return share_row(row, run.process)


def share_row(row: AccuracyRow | None, process: Process) -> AccuracyRow:
    """Return the leading process's row in every process."""
    if row is not None and process.world == 1:
        return row
    data = b"" if row is None else json.dumps(row.to_dict()).encode()
    return AccuracyRow.from_dict(json.loads(process.broadcast(data)))


def _chosen_network(run: Run) -> tuple[Network, bool]:
    """Return the network of the best epoch, or of the last one, and whether the best is lost."""
    step, lost = run.progress.best_step, False
    if step is not None and step != run.progress.step:
        saved = None
        if run.process.leads:
            try:
                path = run.folder.checkpoints / f"step-{step:08d}"
                saved = load_checkpoint(path, model=run.network.state_dict())
            except CheckpointError as error:
                run.reporter.say(
                    f"warning: the last epoch is scored and not the best, number "
                    f"{run.progress.best_epoch}: {error}"
                )
        saved = share_checkpoint(saved, run.process)
        lost = saved is None
        if saved is not None:
            restore_weights(run.network, run.evaluator.average, saved)
    return run.evaluator.network().eval(), lost


def _row(
    run: Run, network: Network, *, test: float | None, validation: float | None, lost: bool
) -> AccuracyRow:
    """Return the row of a run whose weights are saved."""
    recipe, process, own_folder = run.recipe, run.process, run.options.own_folder
    recipe_epochs, changes = _changes(recipe)
    if own_folder is not None:
        changes["data"] = str(own_folder)
    if run.options.start_from is not None:
        changes["from"] = str(run.options.start_from)
    if lost:
        changes["chosen"] = "last-epoch"
    name, dirty = commit()
    return AccuracyRow(
        recipe=recipe.name,
        seed=run.options.seed,
        test=test,
        validation=validation,
        paper=_published(run),
        parameters=network.n_parameters,
        epochs=recipe.epochs,
        recipe_epochs=recipe_epochs,
        changes=changes,
        seconds=round(run.progress.seconds, 1),
        images_per_s=round(run.throughput.per_second, 1),
        peak_mib=peak_mib(process.device),
        dirty=dirty,
        commit=name,
        gpu=f"{process.world} x " * (process.world > 1) + hardware(process.device),
        torch=torch.__version__,
        date=date(),
        weights_sha256=hashlib.sha256(run.folder.weights.read_bytes()).hexdigest(),
        command=run.options.command,
    )


def _published(run: Run) -> float | None:
    """Return the paper's number; None where other images or weights make it another experiment."""
    options, recipe = run.options, run.recipe
    if options.own_data is not None or options.start_from is not None or recipe.ensemble > 1:
        return None
    return recipe.published.value


def _changes(recipe: Recipe) -> tuple[int, dict[str, Setting]]:
    """Return the epochs that the unchanged recipe asks for, and the other changed settings.

    Where the unchanged recipe is not known, its epochs count as one of the changes.
    """
    changes = {key: value for key, value in recipe.changed.items() if key not in SPEED_SETTINGS}
    known = RECIPES.get(recipe.name)
    if "epochs" not in changes or known is None:
        return recipe.epochs, changes
    del changes["epochs"]
    return known.epochs, changes
