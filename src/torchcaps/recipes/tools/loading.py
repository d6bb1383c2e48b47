"""Recipes of users, from a Python file that the user names; no other file can name one."""

import functools
import hashlib
import sys
import traceback
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NoReturn, cast

from torch import nn

from torchcaps.errors import UsageError, suggest
from torchcaps.models.zoo import NAME
from torchcaps.recipes import RECIPES, Recipe, get, study
from torchcaps.routing import RoutingFactory, Sizes
from torchcaps.routing.base import build_routing


def is_recipe_file(text: str) -> bool:
    """Return whether a user means a recipe that is no entry of ``RECIPES``.

    It is one in a file, such as ``my_recipe.py:recipe``, or one of a study, such as
    ``compare/quick/fashion_mnist/em``.
    """
    return ".py:" in text or text.endswith(".py") or text.startswith(study.PREFIX)


def find_recipe(text: str) -> Recipe:
    """Return the recipe that a user means: of the package, of a study, or one in a file."""
    if text.startswith(study.PREFIX):
        return find_study_recipe(text)
    return load_recipe(text) if is_recipe_file(text) else get(text)


def find_study_recipe(text: str) -> Recipe:
    """Return a recipe of a study from a text such as ``compare/quick/fashion_mnist/em``.

    The head may also be a routing in a file: ``compare/quick/fashion_mnist/./my.py:MyRouting``.
    """
    _, name, dataset, head_text = [*text.split("/", 3), "", "", ""][:4]
    chosen = find_study(name)
    if dataset not in chosen.datasets:
        known = ", ".join(chosen.datasets)
        raise UsageError(f"the study {name} has no data set {dataset!r}: take one of {known}")
    return study.study_recipe(chosen, dataset, *find_head(head_text))


def find_study(name: str) -> study.Study:
    """Return the study of a name."""
    if name not in study.STUDIES:
        raise UsageError(f"there is no study {name!r}: {suggest(name, study.STUDIES)}")
    return study.STUDIES[name]


def find_head(text: str) -> tuple[str, study.Head]:
    """Return the name and the head of a text: one of a study, or ``my_routing.py:MyRouting``."""
    if ".py:" in text:
        routing = _load(text)
        build_routing(routing, Sizes(4, 4, 4, 4))  # says what a routing should be
        return text.rpartition(":")[2], cast(RoutingFactory, routing)
    if text not in study.HEADS:
        raise UsageError(f"there is no head {text!r}: {suggest(text, study.HEADS)}")
    return text, study.HEADS[text]


def load_recipe(path_and_name: str) -> Recipe:
    """Execute a Python file and return its recipe.

        recipe = load_recipe("./my_recipe.py:recipe")

    The file may define routings and networks, and call :func:`torchcaps.register_network`. While it
    runs, it can import modules from its own folder. It runs once per process unless it changes.
    Pass only what the user typed: text from a weight file or a run folder is no reference to code.

    Args:
        path_and_name: path of the file, a colon, and the name of a :class:`Recipe` in it or of a
            function without arguments that returns one.
    """
    recipe = _load(path_and_name)
    path = Path(path_and_name.rpartition(":")[0])
    if callable(recipe):
        try:
            recipe = recipe()
        except (Exception, SystemExit) as error:
            _refuse(path.resolve(), error, recipe)
    if not isinstance(recipe, Recipe):
        raise UsageError(
            f"{path_and_name} is a {type(recipe).__name__}: it must be a torchcaps.recipes.Recipe, "
            "or a function without arguments that returns one"
        )
    _check_name(path_and_name, recipe)
    return recipe


def load_network(path_and_name: str) -> nn.Module:
    """Execute a Python file and return the network that a function in it builds.

    Args:
        path_and_name: path of the file, a colon, and the name of a function or class that builds a
            network without arguments. Pass only what the user typed.
    """
    make = _load(path_and_name)
    if callable(make) and not isinstance(make, nn.Module):
        try:
            make = make()
        except (Exception, SystemExit) as error:
            _refuse(Path(path_and_name.rpartition(":")[0]).resolve(), error, make)
    if not isinstance(make, nn.Module):
        raise UsageError(
            f"{path_and_name} is a {type(make).__name__}: it must be a function without arguments "
            "that returns a torch.nn.Module"
        )
    return make


def _load(path_and_name: str) -> object:
    """Execute a Python file and return what is named in it."""
    path_text, _, name = path_and_name.rpartition(":")
    if not path_text.endswith(".py"):
        raise UsageError(f"{path_and_name} must name a recipe in a file: my_recipe.py:recipe")
    path = Path(path_text)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the recipe file {path} cannot be read: {error.strerror}") from None
    module = _execute(path.expanduser().resolve(), source)
    if not hasattr(module, name):
        public = [one for one in vars(module) if not one.startswith("_")]
        hint = suggest(name, public, otherwise="name a Recipe, or a function that returns one")
        raise UsageError(f"{path} has no {name!r}: {hint}")
    loaded: object = getattr(module, name)
    return loaded


@functools.cache
def _execute(path: Path, source: bytes) -> ModuleType:
    """Return the module of a file; the same one as long as its content is the same."""
    digest = hashlib.sha256(bytes(path) + source).hexdigest()[:16]
    module = ModuleType(f"torchcaps_recipe_{digest}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look for it there
    search_path = list(sys.path)
    sys.path.append(str(path.parent))
    try:
        exec(compile(source, path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        _refuse(path, error)
    finally:
        sys.path[:] = search_path
    return module


def _refuse(path: Path, error: BaseException, function: object = None) -> NoReturn:
    """Raise one sentence with the line of the file that raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    if not lines and isinstance(function, FunctionType):
        lines.append(function.__code__.co_firstlineno)
    line = f", line {lines[-1]}" if lines else ""
    reason = " ".join(str(error).split())
    raise UsageError(f"{path}{line}: {type(error).__name__}: {reason}") from error


def _check_name(path_and_name: str, recipe: Recipe) -> None:
    """Refuse a name that is no folder's, or that belongs to another recipe of the package."""
    name = recipe.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"{path_and_name} is named {name!r}: a name is words of letters, digits, '_', '-' or "
            "'.' with '/' between them, such as 'me/mnist'"
        )
    if name in RECIPES and recipe != RECIPES[name].override(**recipe.changed):
        raise UsageError(
            f"{path_and_name} is named {name!r} as a recipe of the package is, and differs from "
            "it: give it another name"
        )
