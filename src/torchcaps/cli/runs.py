"""``torchcaps train``, ``evaluate`` and ``env``."""

import json
import os
import shlex
import statistics
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli.shared import DataDir, Device, Json, counting, memory_advice

__all__ = ["environment", "evaluate", "train"]


def train(
    recipe: Annotated[
        str, typer.Argument(help="A name that `torchcaps list` shows, or your FILE.py:NAME.")
    ],
    data_dir: DataDir = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own images, a folder per class, instead.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; default runs/RECIPE/seedN.")
    ] = None,
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="One number that fixes everything drawn.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs, seeds counting up.")] = 1,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--fresh",
            help="Go on from a checkpoint, or set an earlier run aside; default: go on if it can.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value, such as epochs=5; may be given several times."),
    ] = None,
    record: Annotated[
        Path,
        typer.Option("--results", help="The CSV a run adds its row to; its curve goes beside it."),
    ] = Path("results/accuracy.csv"),
    save_every: Annotated[
        float, typer.Option(min=0, help="Minutes between checkpoints within an epoch.")
    ] = 5.0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="On a GPU: the same bits every time, slower.")
    ] = False,
    sync_batch_norm: Annotated[
        bool, typer.Option("--sync-batch-norm", help="BatchNorm over all GPUs.")
    ] = False,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard events.")] = True,
    watch_test: Annotated[
        bool,
        typer.Option("--watch-test", help="Put the test score of every epoch in the curve."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a recipe: progress bar, checkpoints, resume, a row of results at the end."""
    from torchcaps.recipes.loading import find_recipe, is_recipe_file
    from torchcaps.train import train as run
    from torchcaps.train.loop import check_seed
    from torchcaps.train.outputs.folder import default_folder
    from torchcaps.train.outputs.report import reporter_for

    chosen = find_recipe(recipe).parse(settings or [])
    check_seed(seed + seeds - 1)  # before any of them is trained
    relief = (
        f"set a batch_size below {chosen.batch_size}, such as --set batch_size="
        f"{max(1, chosen.batch_size // 2)}, or make images of your own smaller (--set resize=64)"
    )
    leads = int(os.environ.get("RANK", "0")) == 0
    rows, folders = [], []
    for number in range(seed, seed + seeds):
        folder = out / f"seed{number}" if out is not None and seeds > 1 else out
        with memory_advice(relief):
            row = run(
                chosen,
                seed=number,
                out=folder,
                device=device,
                data_dir=data_dir,
                own_data=data,
                resume=resume,
                reporter=reporter_for(sys.stdout, quiet=as_json or not leads),
                save_every=60 * save_every,
                deterministic=deterministic,
                sync_batch_norm=sync_batch_norm,
                tensorboard=tensorboard,
                watch_test=watch_test,
                record=record,
                command=_command(),
            )
        rows.append(row)
        folders.append(folder or default_folder(chosen.name, number))
    if not leads:
        return
    if as_json:
        typer.echo(json.dumps(rows if seeds > 1 else rows[0], indent=2))
        return
    for row in rows:
        typer.echo(_line(row))
    scores = [row["test"] for row in rows if row["test"] is not None]
    if len(scores) > 1:
        spread = statistics.stdev(scores)
        typer.echo(f"mean {statistics.mean(scores):.2f} % +- {spread:.2f}, {len(scores)} seeds")
    if chosen.ensemble > 1 and seeds > 1:
        from torchcaps.train.evaluation.files import evaluate_files

        summed = evaluate_files(
            folders,
            recipe=chosen if is_recipe_file(recipe) else None,
            data_dir=data_dir,
            own_data=data,
            device=device,
        )
        typer.echo(f"ensemble of {seeds}: {summed['ensemble']['percent']:.2f} %")


def _command() -> str:
    return shlex.join(["torchcaps", *sys.argv[1:]])


def _line(row: dict[str, Any]) -> str:
    held_out = "" if row["validation"] is None else f", validation {row['validation']:.2f} %"
    paper = "" if row["paper"] is None else f" (paper {row['paper']:.2f} %)"
    modified = f", modified: {row['modified']}" if row["modified"] else ""
    scored = "no test images" if row["test"] is None else f"test {row['test']:.2f} %"
    return (
        f"{row['recipe']} seed {row['seed']}: {scored}{paper}{held_out}, "
        f"{row['parameters']:,} parameters, {row['seconds']:.0f} s{modified}"
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
    data: Annotated[
        Path | None, typer.Option(help="Your own images, a folder per class, instead.")
    ] = None,
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How often to draw a set made of digits, as MultiMNIST's; default the recipe's.",
        ),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score trained networks on real images; several together are an ensemble."""
    from torchcaps.recipes import RECIPES
    from torchcaps.recipes.loading import is_recipe_file, load_recipe
    from torchcaps.train.evaluation.files import evaluate_files

    user_recipe = load_recipe(recipe) if recipe and is_recipe_file(recipe) else None
    with counting() as progress:
        scores = evaluate_files(
            runs,
            recipe=user_recipe or recipe,
            data_dir=data_dir,
            own_data=data,
            split=split,
            draws=draws,
            device=device,
            progress=progress,
        )
    if as_json:
        typer.echo(json.dumps(scores, indent=2))
        return
    for name, value in scores.items():
        weights = value.get("weights", name)
        whose = f" (weights of {weights})" if name in RECIPES and weights != name else ""
        typer.echo(f"{name}{whose}: {value['percent']:.2f} % of {value['images']:,} images")


def environment(as_json: Json = False) -> None:
    """Print what a bug report needs: versions, processor, GPUs, folders."""
    from torchcaps.train.facts import environment as facts

    found = facts()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for key, value in found.items():
        typer.echo(f"{key:12} {value}")
