"""``torchcaps explore``: draw a digit in the browser and watch a capsule network parse it."""

import errno
import webbrowser
from typing import Annotated

import typer

from torchcaps.errors import UsageError

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
) -> None:
    """Draw a digit in the browser and watch a capsule network parse it."""
    from torchcaps.explorer.gallery import Gallery
    from torchcaps.explorer.server import Server

    gallery = Gallery(name)
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
        typer.echo(f"The explorer of {gallery.first} is at {server.url} (Ctrl-C ends it)")
        if browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("The explorer has ended.")
