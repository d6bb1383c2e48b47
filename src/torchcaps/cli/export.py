"""``torchcaps export``: write a trained network as a file that runs without torchcaps."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli.shared import OwnRecipe, load_own
from torchcaps.errors import UsageError

if TYPE_CHECKING:
    from torchcaps.export import Exported


class Format(StrEnum):
    """A kind of file."""

    ONNX = "onnx"
    PT2 = "pt2"


def export(
    name: Annotated[
        Path,
        typer.Argument(
            metavar="NAME_OR_RUN", help="A recipe's name, a run folder or a weight file."
        ),
    ],
    to: Annotated[
        Format | None, typer.Option(help="The format; default: as --out ends, else onnx.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file; default: the name with hyphens, here.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Compute convolutions in int8 (onnx alone).")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Also return poses and couplings of every layer.")
    ] = False,
    decoder: Annotated[
        bool, typer.Option("--decoder", help="Write the decoder instead of the network.")
    ] = False,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="With --trace: routing iterations to show.")
    ] = None,
    recipe: OwnRecipe = None,
) -> None:
    """Write a trained network as ONNX or as a PyTorch program, and check it against PyTorch."""
    from torchcaps.export import export as write

    load_own(recipe)
    path = _file(name, to, out)
    exported = write(name, path, trace=trace, decoder=decoder, int8=int8, iterations=iterations)
    _report(exported)


def _file(name: Path, to: Format | None, out: Path | None) -> Path:
    """Return the file to write."""
    if out is None:
        stem = name.name if name.exists() else name.as_posix().replace("/", "-")
        return Path(f"{stem.removesuffix('.safetensors')}.{to or Format.ONNX}")
    if to is not None and out.suffix != f".{to}":
        raise UsageError(f"{out} does not end in .{to}: leave out --to, or name another file")
    return out


def _report(exported: "Exported") -> None:
    """Print the file, its first input and output, and how it compares with PyTorch."""

    def shapes(part: dict[str, list[int]]) -> str:
        shown = [f"{name} [{' '.join(map(str, ('b', *shape)))}]" for name, shape in part.items()]
        more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
        return ", ".join(shown[:4]) + more

    facts = exported.facts
    typer.echo(f"{exported.path}: {exported.n_bytes / 1e6:.1f} MB")
    pixels = ", pixels in 0 to 1" if "images" in facts["inputs"] else ""
    typer.echo(f"  takes   {shapes(facts['inputs'])}{pixels}")
    typer.echo(f"  returns {shapes(facts['outputs'])}")
    first = next(iter(facts["outputs"]))
    typer.echo(
        f"  on {exported.images} {exported.source}: {first} differ from PyTorch's by at most "
        f"{exported.difference:.1g}, {exported.equal} of {exported.images} predictions are equal"
    )
