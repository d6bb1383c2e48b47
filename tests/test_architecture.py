"""The shape of the code: small folders, short functions, tests and routings behind their doors."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torchcaps as tc

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/torchcaps"
MOST_FILES = 15
MOST_LINES = 50
BUILDERS = ("routing", "models", "recipes")
"""Rooms that may name a routing class: its own, and those that build networks with it."""


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def modules(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert found, f"no modules in {folder}"
    return found


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, int]]:
    """Yield the qualified names and lengths of all functions, nested ones too."""
    for node in ast.iter_child_nodes(tree):
        inner = above
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{above}.{node.name}".lstrip(".")
            if not isinstance(node, ast.ClassDef):
                assert node.end_lineno is not None
                yield inner, node.end_lineno - node.lineno + 1
        yield from functions(node, inner)


def imported(path: Path) -> Iterator[str]:
    """Yield the names of the modules that a file imports, also those in its functions."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_folder_holds_more_files_than_one_can_overlook() -> None:
    counts = Counter(name(path.parent) for path in [*modules(PACKAGE), *modules(ROOT / "tests")])
    assert {folder: n for folder, n in counts.items() if n > MOST_FILES} == {}


def test_no_function_outside_the_kernels_is_long() -> None:
    long = {
        f"{name(path)}:{function}": length
        for path in modules(PACKAGE)
        if path.relative_to(PACKAGE).parts[0] != "kernels"
        for function, length in functions(parse(path))
        if length > MOST_LINES
    }
    assert long == {}


def test_no_test_imports_another_test() -> None:
    tests = modules(ROOT / "tests")
    names = {path.stem for path in tests if path.stem.startswith("test_")}
    assert len(names) > 50
    sharing = [
        f"{name(path)} imports {module}"
        for path in tests
        for module in imported(path)
        if names.intersection(module.split("."))
    ]
    assert sharing == []


def test_every_test_lies_in_a_room_of_the_package() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.name != "__init__.py"}
    astray = [
        name(path)
        for path in modules(ROOT / "tests")
        if path.stem.startswith("test_")
        and path.parent != ROOT / "tests"
        and path.relative_to(ROOT / "tests").parts[0] not in {*rooms, "docs", "reliability"}
    ]
    assert astray == []


def test_tests_that_need_a_gpu_lie_in_folders_of_their_own() -> None:
    def is_marked(path: Path) -> bool:
        words = (ast.unparse(node) for node in ast.walk(parse(path)) if isinstance(node, ast.expr))
        return "pytest.mark.gpu" in words

    tests = [path for path in modules(ROOT / "tests") if path.stem.startswith("test_")]
    assert any(map(is_marked, tests))
    assert [name(path) for path in tests if is_marked(path) != (path.parent.name == "gpu")] == []


def test_only_builders_of_networks_name_a_routing_class() -> None:
    classes = {
        cls.__name__
        for cls in vars(tc).values()
        if isinstance(cls, type) and issubclass(cls, tc.Routing) and cls is not tc.Routing
    }
    assert len(classes) >= 6
    asking = {
        f"{name(path)} names {word}"
        for path in modules(PACKAGE)
        if path.relative_to(PACKAGE).parts[0] not in (*BUILDERS, "__init__.py")
        for node in ast.walk(parse(path))
        for word in (getattr(node, "id", None), getattr(node, "attr", None))
        if word in classes
    }
    assert sorted(asking) == []
