"""``torchcaps train``, ``evaluate`` and ``env``."""

import json
import os
import shlex
import statistics
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli.shared import DataDir, Device, Json, SkipBad, counting, load_own, memory_advice

if TYPE_CHECKING:
    from torchcaps.recipes import Recipe
    from torchcaps.results import AccuracyRow
    from torchcaps.train import TrainOptions

RecipeName = Annotated[
    str, typer.Argument(help="A name that `torchcaps list` shows, or your FILE.py:NAME.")
]
Data = Annotated[
    Path | None,
    typer.Option(help="Your own images: a folder per class, or arrays (.npz, .npy)."),
]
TestDraws = Annotated[
    int | None,
    typer.Option(min=1, help="Draws of a generated set such as MultiMNIST; default the recipe's."),
]
StartFrom = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="NAME_OR_RUN",
        help="Fine-tune: start from pretrained weights, a run folder or a weight file.",
    ),
]
Out = Annotated[Path | None, typer.Option(help="The run folder; default runs/RECIPE/seedN.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of runs, seeds counting up.")]
Resume = Annotated[
    bool | None,
    typer.Option(
        "--resume/--fresh",
        help="Resume from a checkpoint, or set an earlier run aside; default: resume if possible.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, such as epochs=5; may be repeated."),
]
Record = Annotated[
    Path, typer.Option("--results", help="CSV file for the row; its curve goes beside it.")
]
SaveEvery = Annotated[
    float, typer.Option(min=0, help="Minutes between checkpoints within an epoch.")
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="On a GPU: the same bits every time, slower.")
]
SyncBatchNorm = Annotated[bool, typer.Option("--sync-batch-norm", help="BatchNorm over all GPUs.")]
TensorBoard = Annotated[bool, typer.Option(help="Write TensorBoard events.")]
WatchTest = Annotated[
    bool, typer.Option("--watch-test", help="Put the test score of every epoch in the curve.")
]


def train(
    recipe: RecipeName,
    data_dir: DataDir = None,
    data: Data = None,
    skip_bad: SkipBad = False,
    start_from: StartFrom = None,
    out: Out = None,
    device: Device = "auto",
    seed: Seed = 0,
    seeds: Seeds = 1,
    resume: Resume = None,
    settings: Settings = None,
    record: Record = Path("results/accuracy.csv"),
    save_every: SaveEvery = 5.0,
    deterministic: Deterministic = False,
    sync_batch_norm: SyncBatchNorm = False,
    tensorboard: TensorBoard = True,
    watch_test: WatchTest = False,
    as_json: Json = False,
) -> None:
    """Train a recipe: progress bar, checkpoints, resume, a row of results."""
    from torchcaps.recipes.tools.loading import find_recipe, is_recipe_file
    from torchcaps.train import TrainOptions
    from torchcaps.train.options import check_seed

    chosen = find_recipe(recipe).parse(settings or [])
    check_seed(seed + seeds - 1)  # before any of them is trained
    leads = int(os.environ.get("RANK", "0")) == 0
    options = TrainOptions(
        device=device,
        data_dir=data_dir,
        own_data=data,
        skip_bad=skip_bad,
        start_from=start_from,
        resume=resume,
        save_every=60 * save_every,
        deterministic=deterministic,
        sync_batch_norm=sync_batch_norm,
        tensorboard=tensorboard,
        watch_test=watch_test,
        record=record,
        command=shlex.join(["torchcaps", *sys.argv[1:]]),
    )
    folders = _folders(chosen.name, range(seed, seed + seeds), out)
    rows = _run_seeds(chosen, options, folders, quiet=as_json or not leads)
    if leads:
        _print_rows(rows, as_json, "% R²" if chosen.targets else "%")
    if leads and not as_json and chosen.ensemble > 1 and seeds > 1:
        own_recipe = chosen if is_recipe_file(recipe) else None
        _print_ensemble([*folders.values()], own_recipe, data_dir, data, device)


def _run_seeds(
    recipe: "Recipe", options: "TrainOptions", folders: dict[int, Path], *, quiet: bool
) -> "list[AccuracyRow]":
    """Train once per seed and return the rows."""
    from torchcaps.train import train as train_recipe
    from torchcaps.train.outputs.report import reporter_for

    rows = []
    for seed, folder in folders.items():
        reporter = reporter_for(sys.stdout, quiet=quiet)
        with memory_advice(
            f"set a batch_size below {recipe.batch_size}, such as --set batch_size="
            f"{max(1, recipe.batch_size // 2)}, or make images of your own smaller "
            "(--set resize=64)"
        ):
            run = replace(options, seed=seed, out=folder, reporter=reporter)
            rows.append(train_recipe(recipe, run))
    return rows


def _folders(recipe: str, seeds: range, out: Path | None) -> dict[int, Path]:
    """Return the run folder of each seed."""
    from torchcaps.train.outputs.folder import default_folder

    if out is None:
        return {seed: default_folder(recipe, seed) for seed in seeds}
    return {seed: out / f"seed{seed}" if len(seeds) > 1 else out for seed in seeds}


def _print_rows(rows: "list[AccuracyRow]", as_json: bool, unit: str) -> None:
    """Print a line for each run and the mean of several, or JSON."""
    if as_json:
        data = [row.to_dict() for row in rows]
        typer.echo(json.dumps(data if len(data) > 1 else data[0], indent=2))
        return
    for row in rows:
        typer.echo(_line(row, unit))
    scores = [row.test for row in rows if row.test is not None]
    if len(scores) > 1:
        std = statistics.stdev(scores)
        typer.echo(f"mean {statistics.mean(scores):.2f} {unit} +- {std:.2f}, {len(scores)} seeds")


def _print_ensemble(
    folders: list[Path],
    recipe: "Recipe | None",
    data_dir: Path | None,
    data: Path | None,
    device: str,
) -> None:
    """Print the score of the summed scores of several runs."""
    from torchcaps.train.evaluation.files import evaluate_files

    scores = evaluate_files(folders, recipe=recipe, data_dir=data_dir, own_data=data, device=device)
    typer.echo(f"ensemble of {len(folders)}: {scores['ensemble']['percent']:.2f} %")


def _line(row: "AccuracyRow", unit: str) -> str:
    validation = "" if row.validation is None else f", validation {row.validation:.2f} {unit}"
    paper = "" if row.paper is None else f" (paper {row.paper:.2f} %)"
    modified = f", modified: {row.modified}" if row.modified else ""
    test = "no test images" if row.test is None else f"test {row.test:.2f} {unit}"
    return (
        f"{row.recipe} seed {row.seed}: {test}{paper}{validation}, "
        f"{row.parameters:,} parameters, {row.seconds:.0f} s{modified}"
    )


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, weight files or recipes; several are an ensemble."),
    ],
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe of data and transforms, or your FILE.py:NAME; default the run's."
        ),
    ] = None,
    data_dir: DataDir = None,
    data: Data = None,
    skip_bad: SkipBad = False,
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    draws: TestDraws = None,
    device: Device = "auto",
    figure: Annotated[
        Path | None, typer.Option(help="Draw confusion and calibration: a .png or .svg file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score trained networks on real images; several together are an ensemble."""
    from torchcaps.cli.metrics import check_figure, describe_scores
    from torchcaps.train.evaluation.files import evaluate_files

    check_figure(figure)
    with counting() as progress:
        scores = evaluate_files(
            runs,
            recipe=load_own(recipe),
            data_dir=data_dir,
            own_data=data,
            split=split,
            draws=draws,
            device=device,
            skip_bad=skip_bad,
            progress=progress,
            notify=partial(typer.echo, err=True),
        )
    if figure is not None:
        from torchcaps.figures.metrics import draw_metrics

        draw_metrics(scores, figure)
    typer.echo(json.dumps(scores, indent=2) if as_json else describe_scores(scores, data))


def environment(as_json: Json = False) -> None:
    """Print the facts for a bug report: versions, processor, GPUs, folders."""
    from torchcaps import __version__, provenance
    from torchcaps.data import data_folder

    values = {
        "torchcaps": __version__,
        **provenance.environment(),
        "data folder": str(data_folder(None)),
    }
    if as_json:
        typer.echo(json.dumps(values, indent=2))
        return
    for key, value in values.items():
        typer.echo(f"{key:12} {value}")
