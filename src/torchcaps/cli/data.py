"""``torchcaps data``: list, describe and show data sets."""

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli.shared import DataDir, SkipBad
from torchcaps.errors import InputError

if TYPE_CHECKING:
    from torchcaps.data import ImageSet, Source

MAX_SIZES = 20

data_app = typer.Typer(help="List, describe and show data sets.")


def _name_or_folder(name: str) -> str | Path:
    """Return a data set's name, or the path of a folder; a set comes first, ./NAME is a folder."""
    from torchcaps.data import find
    from torchcaps.data.load import is_path

    if is_path(name):
        return Path(name)
    try:
        return find(name).name
    except InputError:
        return Path(name) if Path(name).exists() else name


@data_app.command("list")
def data_list(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List every data set that loads by name."""
    from torchcaps.data import SETS

    if as_json:
        typer.echo(json.dumps([one.facts() for one in SETS.values()], indent=2))
        return
    for one in SETS.values():
        shape = "x".join(map(str, one.shape))
        counts = f"{one.counts['train']:,} + {one.counts['test']:,}"
        typer.echo(f"{one.name:20} {shape:8} {counts:20} {one.about} ({one.source})")


@data_app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="A data set that `list` shows, or your own images.")],
    root: DataDir = None,
    skip_bad: SkipBad = False,
) -> None:
    """Describe one data set and report missing files."""
    from torchcaps.data import data_folder, find, load_own, missing_files

    if isinstance(_name_or_folder(name), Path):
        _describe_folder(name, load_own(name, skip_bad=skip_bad))
        return
    entry = find(name)
    missing = missing_files(entry.name, root)
    typer.echo(f"{entry.name}: {entry.about} ({entry.source})")
    typer.echo(f"image   {'x'.join(map(str, entry.shape))}")
    for split, count in entry.counts.items():
        typer.echo(f"{split:12}{count:>10,}")
    if entry.mean:
        typer.echo(f"mean    {' '.join(f'{value:.4f}' for value in entry.mean)}")
        typer.echo(f"std     {' '.join(f'{value:.4f}' for value in entry.std)}")
    if entry.homepage:
        typer.echo(f"from    {entry.homepage}")
    if entry.files:
        state = f"{len(missing)} files missing, first {missing[0]}" if missing else "complete"
        typer.echo(f"files   {state} in {data_folder(root)}")


def _describe_folder(name: str, images: "ImageSet") -> None:
    """Print the classes and counts of a folder, and the sizes of its files."""
    typer.echo(f"{name}: images of your own, {len(images.classes)} classes")
    typer.echo(f"image   {'x'.join(map(str, images.images.shape[1:]))}")
    typer.echo(f"{'train':12}{len(images):>10,}")
    typer.echo(f"classes {' '.join(images.classes)}")
    counts = images.labels.bincount(minlength=len(images.classes)).tolist()
    typer.echo(f"counts  {' '.join(map(str, counts))}")
    if images.reading is not None:
        sizes = images.reading.sizes
        for (height, width), count in islice(sizes.items(), MAX_SIZES):
            typer.echo(f"size    {f'{height}x{width}':12} {count:,} images")
        if len(sizes) > MAX_SIZES:
            typer.echo(f"        and {len(sizes) - MAX_SIZES:,} other sizes")
        for file in images.reading.skipped:
            typer.echo(f"skipped {file}")


@data_app.command("show")
def data_show(
    name: Annotated[str, typer.Argument(help="A data set that `list` shows, or your own images.")],
    split: Annotated[str, typer.Option(help="Split.")] = "train",
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many images.")] = 200,
    out: Annotated[Path | None, typer.Option(help="PNG file; default NAME-SPLIT.png.")] = None,
    root: DataDir = None,
    skip_bad: SkipBad = False,
) -> None:
    """Write a contact sheet, ordered by class, as a PNG."""
    from torchcaps.data import contact_sheet, first_samples, load, load_own, save_png

    out = out or Path(f"{Path(name).name}-{split}.png")
    if out.suffix.lower() != ".png":
        raise InputError(f"{out} must end in .png: name it {out.with_suffix('.png').name}")
    source = _name_or_folder(name)
    if isinstance(source, Path):
        loaded: Source = load_own(source, split, skip_bad=skip_bad)
    else:
        loaded = load(source, split, root=root)
    images = first_samples(loaded, count)
    save_png(contact_sheet(images), out, zoom=2)
    typer.echo(f"{out}: {len(images)} of {len(loaded)} images")
