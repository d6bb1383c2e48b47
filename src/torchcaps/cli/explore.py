"""``torchcaps explore``: draw a digit in the browser and watch a capsule network parse it."""

import errno
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli.shared import OwnRecipe, load_own
from torchcaps.errors import UsageError

if TYPE_CHECKING:
    from torchcaps.explorer.gallery import Gallery

PORT = 8765


def explore(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME_OR_RUN",
            help="A run folder, a weight file or a recipe's name; default sabour2017/mnist-modern.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")
    ] = PORT,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html | FOLDER",
            help="Write the page to one file, or to a folder to host, and start no server.",
        ),
    ] = None,
    runtime: Annotated[
        Path | None,
        typer.Option(help="With --save: folder dist of onnxruntime-web; default: npm fetches it."),
    ] = None,
    recipe: OwnRecipe = None,
) -> None:
    """Draw a digit in the browser and watch a capsule network parse it."""
    from torchcaps.explorer.gallery import Gallery

    load_own(recipe)
    gallery = Gallery(name)
    if save is not None:
        _save(gallery, save, runtime)
    else:
        _serve(gallery, port, browser)


def _serve(gallery: "Gallery", port: int, browser: bool) -> None:
    from torchcaps.explorer.server import Server

    try:
        server = Server(gallery, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise UsageError(
            f"port {port} cannot be used ({error.strerror}): name another with --port, or "
            "--port 0 for a free one"
        ) from None
    with server:
        try:
            typer.echo(f"The explorer of {gallery.first} is at {server.url} (Ctrl-C ends it)")
            if browser:
                webbrowser.open(server.url)
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("The explorer has ended.")


def _save(gallery: "Gallery", path: Path, runtime: Path | None) -> None:
    from torchcaps.explorer.saved.write import save_page

    def tell(name: str) -> None:
        typer.echo(f"Exporting {name}", err=True)

    size = save_page(gallery, path, runtime=runtime, tell=tell)
    where = "open it in a browser" if path.suffix else "host it, or python -m http.server in it"
    typer.echo(f"The explorer is in {path} ({size / 1e6:.1f} MB): {where}")
