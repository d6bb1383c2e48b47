"""The explorer as files: a folder to host, or one HTML file that opens from disk."""

import base64
import gzip
import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from torchcaps.data.strokes.glyphs import GLYPHS
from torchcaps.errors import MissingFileError, UsageError
from torchcaps.explorer.gallery import Gallery
from torchcaps.explorer.saved.graphs import draw_graph, look_graph
from torchcaps.explorer.saved.runtime import find_runtime
from torchcaps.storage import write_bytes

SCRIPT = '<script type="module" src="main.js"></script>'
STYLE = '<link rel="stylesheet" href="style.css">'
ICON = 'href="icon.svg"'
UNPACK = """globalThis.torchcapsFile = async (name) => {
  const text = document.getElementById(`file:${name}`).textContent;
  const packed = await fetch(`data:application/octet-stream;base64,${text}`);
  return new Response(packed.body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
};"""
"""Reads a file that is inside the page."""


def save_page(
    gallery: Gallery,
    path: Path,
    *,
    runtime: Path | None = None,
    tell: Callable[[str], None] = lambda name: None,
) -> int:
    """Write the explorer with its networks; return its size in bytes.

    Args:
        gallery: the networks.
        path: an ``.html`` file, or a folder, which is made.
        runtime: folder with the files of onnxruntime-web; None lets npm fetch them.
        tell: called with the name of each network before it is exported.
    """
    if path.suffix not in (".html", ""):
        raise UsageError(f"{path} must end in .html, or be a folder to write to")
    if not path.parent.is_dir():
        raise MissingFileError(f"{path} cannot be written: {path.parent} is no folder")
    data = find_runtime(runtime)
    page = {one.name: one.read_bytes() for one in _folder("page").iterdir() if one.is_file()}
    page["static.js"] = (_folder("saved") / "static.js").read_bytes()
    data |= _exported(gallery, tell)
    if path.suffix == ".html":
        content = _one_file(page, data).encode()
        write_bytes(path, content)
        return len(content)
    page["index.html"] = _replaced(page["index.html"].decode(), SCRIPT, _scripts("./")).encode()
    path.mkdir(exist_ok=True)
    for name, content in {**page, **data}.items():
        write_bytes(path / name, content)
    return sum(map(len, (*page.values(), *data.values())))


def _folder(name: str) -> Any:
    return files("torchcaps.explorer") / name


def _exported(gallery: Gallery, tell: Callable[[str], None]) -> dict[str, bytes]:
    """Return graphs and a catalog with everything that does not depend on the drawing."""
    entries = gallery.entries()
    catalog: dict[str, Any] = {
        "first": gallery.first,
        "networks": entries,
        "digits": [{"digit": name, "strokes": strokes} for name, strokes in GLYPHS],
        "described": {},
        "effects": {},
        "files": {},
    }
    data: dict[str, bytes] = {}
    for number, name in enumerate(entry["name"] for entry in entries):
        tell(name)
        explored = gallery.open(name)
        described = explored.describe()
        names = {"look": f"look{number}.onnx"}
        data[names["look"]] = look_graph(explored)
        if described["can_draw"]:
            names["draw"] = f"draw{number}.onnx"
            data[names["draw"]] = draw_graph(explored)
        kinds = range(explored.network.n_classes)
        catalog["described"][name] = described
        catalog["effects"][name] = [list(explored.effects(kind)) for kind in kinds]
        catalog["files"][name] = names
    return {"catalog.json": json.dumps(catalog).encode(), **data}


def _one_file(page: dict[str, bytes], data: dict[str, bytes]) -> str:
    """Return the page with its modules, style, graphs and runtime inside."""
    modules = {name: code for name, code in page.items() if name.endswith(".js")}
    addresses = {f"page/{name}": _address(_renamed(code)) for name, code in modules.items()}
    head = (
        f'<script type="importmap">{json.dumps({"imports": addresses})}</script>\n'
        f"<script>{UNPACK}</script>\n{_scripts('page/')}"
    )
    html = page["index.html"].decode()
    html = _replaced(html, STYLE, f"<style>\n{page['style.css'].decode()}</style>")
    icon = base64.b64encode(page["icon.svg"]).decode()
    html = _replaced(html, ICON, f'href="data:image/svg+xml;base64,{icon}"')
    html = _replaced(html, SCRIPT, head)
    blocks = [
        f'<script type="text/plain" id="file:{name}">'
        f"{base64.b64encode(gzip.compress(content, mtime=0)).decode()}</script>\n"
        for name, content in data.items()
    ]
    return _replaced(html, "</body>", "".join(blocks) + "</body>")


def _renamed(code: bytes) -> bytes:
    """Return a module whose imports are names of the import map, not of files."""
    return re.sub(rb'(from|import) "\./', rb'\1 "page/', code)


def _address(code: bytes) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(code).decode()}"


def _scripts(folder: str) -> str:
    return f'<script type="module">import "{folder}static.js"; import "{folder}main.js";</script>'


def _replaced(text: str, part: str, other: str) -> str:
    """Return a text with one part replaced, which must be there once."""
    before, found, after = text.partition(part)
    assert found, f"the page has no {part}"
    return f"{before}{other}{after}"
