"""From a finished run to weights that come with the package, and back to its number."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

import torchcaps as tc
from torchcaps.analysis import open_subject
from torchcaps.cli import app
from torchcaps.models import pretrained
from torchcaps.models.files import describe, save_packed
from torchcaps.models.packed import SCALE
from torchcaps.models.pretrained import file_name, find_shipped, shipped
from torchcaps.recipes import RECIPES
from torchcaps.results import read_rows
from torchcaps.train import recording
from torchcaps.train.recording import TOLERANCE
from torchcaps.train.scoring import find_place

ROOT = Path(__file__).parents[1]
MOST_TOGETHER = 50_000_000
SHIPPED = shipped()
TRAIN = ["--set", "limit=4096", "--device", "cpu", "--no-tensorboard"]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments: str | Path) -> str:
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a small network was trained with two seeds."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["train", "demo/strokes-dynamic", *TRAIN, "--seeds", "2"]
    record = folder / "results" / "accuracy.csv"
    result = invoke(*words, "--out", folder / "run", "--results", record)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the package's own; the current folder is empty too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrained, "weights_folder", lambda: tmp_path / "weights")
    monkeypatch.setattr(recording, "weights_folder", lambda: tmp_path / "weights")
    return tmp_path / "weights"


@pytest.mark.parametrize("store", ["int8", "float16"])
def test_a_run_becomes_a_row_a_curve_and_weights_that_give_its_number(
    store: str, trained: Path, weights: Path
) -> None:
    words = ["--store", store, "--device", "cpu", "--json"]
    result = invoke("ship", trained / "run", *words)
    assert result.exit_code == 0, result.output
    rows = read_rows("results/accuracy.csv")
    assert [row.seed for row in rows] == [0, 1]
    assert len(list(Path("results/curves").glob("demo-strokes-dynamic-seed*-limit-4096.csv"))) == 2
    best = max(rows, key=lambda row: row.validation or 0)

    path = weights / "demo-strokes-dynamic.safetensors"
    facts = json.loads(result.stdout)[str(path)]
    assert (facts["recipe"], facts["seed"]) == ("demo/strokes-dynamic", best.seed)
    assert facts["weights_sha256"] == best.weights_sha256
    assert abs(facts["test"] - best.test) <= TOLERANCE
    assert describe(path)["trained"] == {**facts, "store": store}

    network = tc.build("demo/strokes-dynamic", pretrained=True)
    assert network.training
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    original = tc.load(trained / "run" / f"seed{best.seed}" / "weights.safetensors")
    for (name, ours), theirs in zip(network.named_parameters(), original.parameters(), strict=True):
        error = (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12)
        assert error <= (1 / 254 + 1e-4 if store == "int8" else 1e-3), name
    size = path.stat().st_size
    assert size < (1.2 if store == "int8" else 2.05) * network.n_parameters + 20_000

    for place in ("demo/strokes-dynamic", str(path)):
        scored = json.loads(invoke("evaluate", place, "--device", "cpu", "--json").stdout)
        assert scored[place]["percent"] == facts["test"]
    assert open_subject("demo/strokes-dynamic").name == "demo-strokes-dynamic"


def test_training_itself_keeps_rows_and_curves(trained: Path, weights: Path) -> None:
    record = trained / "results" / "accuracy.csv"
    curves = sorted(path.name for path in (record.parent / "curves").iterdir())
    assert curves == [f"demo-strokes-dynamic-seed{n}-limit-4096.csv" for n in (0, 1)]
    before = record.read_bytes()
    assert invoke("results", "--results", record, "--add", trained / "run").exit_code == 0
    assert record.read_bytes() == before
    assert invoke("results", "--add", record).exit_code == 0
    assert read_rows("results/accuracy.csv") == read_rows(record)
    assert len(list(Path("results/curves").iterdir())) == 2


def test_a_record_says_how_many_epochs_the_recipe_asks_for(weights: Path) -> None:
    words = ["--set", "epochs=2", "--set", "limit=64", "--set", "test_limit=50", "--device", "cpu"]
    result = invoke("train", "demo/strokes-pairwise", *words, "--no-tensorboard")
    assert result.exit_code == 0, result.output
    (row,) = read_rows("results/accuracy.csv")
    assert (row.epochs, row.modified) == (2, "epochs=2 of 1 limit=64 test_limit=50")
    (curve,) = Path("results/curves").iterdir()
    assert curve.name == "demo-strokes-pairwise-seed0-epochs-2-of-1-limit-64-test_limit-50.csv"
    lines = [line.split(",") for line in curve.read_text().splitlines()]
    assert [line[0] for line in lines] == ["epoch", "1", "2"]
    assert all(lines[2])


def test_shipping_writes_the_tables_when_asked(trained: Path, weights: Path) -> None:
    marks = "<!-- results -->\n<!-- /results -->\n"
    Path("docs").mkdir()
    for name in ("README.md", "docs/results.md"):
        Path(name).write_text(marks)
    result = invoke("ship", trained / "run" / "seed0", "--device", "cpu", "--write")
    assert result.exit_code == 0, result.output
    assert "seed 0" in result.stdout
    assert "No finished run is recorded" in Path("README.md").read_text()
    page = Path("docs/results.md").read_text()
    assert "### Shipped weights" in page
    assert "### Every run" in page
    assert page.count("| demo/strokes-dynamic |") == 2


def test_a_recipe_s_name_is_its_folder_in_runs(trained: Path, weights: Path) -> None:
    shutil.copytree(trained / "run", "runs/demo/strokes-dynamic")
    result = invoke("results", "--add", "demo/strokes-dynamic")
    assert result.exit_code == 0, result.output
    assert [row.seed for row in read_rows("results/accuracy.csv") if row.command] == [0, 1]
    result = invoke("ship", "demo/strokes-dynamic", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert (weights / "demo-strokes-dynamic.safetensors").is_file()


def test_a_worse_run_does_not_replace_a_better_one_s_weights(trained: Path, weights: Path) -> None:
    path = weights / "demo-strokes-dynamic.safetensors"
    scores = [json.loads((trained / f"run/seed{n}/result.json").read_text()) for n in (0, 1)]
    worse, better = sorted((0, 1), key=lambda n: float(scores[n]["validation"]))
    assert scores[worse]["validation"] < scores[better]["validation"]
    first = invoke("ship", trained / f"run/seed{better}", "--device", "cpu")
    assert first.exit_code == 0, first.output
    before = path.read_bytes()
    for record in ("results/accuracy.csv", "another.csv"):
        words = ["ship", f"{trained}/run/seed{worse}", "--device", "cpu", "--results", record]
        result = invoke(*words)
        assert result.exit_code == 0, result.output
        (said,) = result.stdout.splitlines()
        assert said == (
            f"{path} stays: seed {better} has {scores[better]['validation']:.2f} % of the "
            f"validation images right, and seed {worse}, the best run given, "
            f"{scores[worse]['validation']:.2f} %; --replace takes it"
        )
        assert path.read_bytes() == before
    kept = json.loads(invoke(*words, "--json").stdout)[str(path)]
    assert (kept["seed"], "--replace" in kept["stayed"]) == (better, True)
    again = invoke("ship", trained / f"run/seed{better}", "--store", "float16", "--device", "cpu")
    assert again.exit_code == 0, again.output
    assert describe(path)["trained"]["store"] == "float16"
    assert invoke(*words, "--replace").exit_code == 0
    assert describe(path)["trained"]["seed"] == worse
    assert invoke("ship", trained / "run", "--device", "cpu").exit_code == 0
    assert describe(path)["trained"]["seed"] == better
    path.write_bytes(b"junk")
    assert invoke(*words).exit_code == 0
    assert describe(path)["trained"]["seed"] == worse


def test_a_run_of_the_recipe_as_it_is_replaces_one_of_changed_settings(
    trained: Path, weights: Path
) -> None:
    """The record knows of a file what became known later: the recipe was changed after its run."""
    path = weights / "demo-strokes-dynamic.safetensors"
    shutil.copytree(trained / "run", "runs/demo/strokes-dynamic")
    scores = [json.loads((trained / f"run/seed{n}/result.json").read_text()) for n in (0, 1)]
    worse, better = sorted((0, 1), key=lambda n: float(scores[n]["validation"]))
    place = Path(f"runs/demo/strokes-dynamic/seed{worse}")
    (place / "result.json").write_text(json.dumps({**scores[worse], "modified": ""}))
    for seed in (better, worse):
        folder = f"runs/demo/strokes-dynamic/seed{seed}"
        assert invoke("ship", folder, "--device", "cpu").exit_code == 0
        assert describe(path)["trained"]["seed"] == seed


def test_what_cannot_be_shipped_gets_one_sentence(
    trained: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained / "run" / "seed0"
    assert refused("ship", "nowhere") == "there is no folder nowhere, and no recipe of that name"
    name = "demo/strokes-dynamic"
    assert f"{Path('runs', name)} holds no finished run" in refused("ship", name)
    assert "stored as int8 or float16, not 'int4'" in refused("ship", run, "--store", "int4")
    with monkeypatch.context() as patch:
        patch.setattr(recording, "MOST_BYTES", 1000)
        assert "bytes as int8 and may have 1,000" in refused("ship", run)
    result = json.loads((run / "result.json").read_text())
    changed = Path("changed")
    changed.mkdir()
    assert "changed holds no finished run" in refused("ship", "changed")
    for name in ("run.json", "weights.safetensors"):
        (changed / name).write_bytes((run / name).read_bytes())
    for change, sentence in (
        ({"test": result["test"] - 0.2, "modified": ""}, "store it as float16"),
        ({"test": result["test"] - 0.2, "modified": "test_limit=50"}, "without test_limit"),
        ({"test": None}, "only recipes are shipped"),
        ({"weights_sha256": "0" * 64}, "is not the file its run wrote"),
    ):
        (changed / "result.json").write_text(json.dumps({**result, **change}))
        words = ["--into", "weights", "--device", "cpu", "--results", "r.csv"]
        assert sentence in refused("ship", changed, *words)
    assert not Path("weights").exists()


def test_names_without_weights_are_told_which_have_them(weights: Path) -> None:
    with pytest.raises(ValueError, match="'sabour2017/mnist' has no shipped weights; none are in"):
        tc.build("sabour2017/mnist", pretrained=True)
    weights.mkdir()
    made(weights, "sabour2017/svhn")
    for name in ("sabour2017/mnist", "nonsense", "sabour2017/sv"):
        with pytest.raises(ValueError, match="has no shipped weights; these have: sabour2017/svhn"):
            tc.build(name, pretrained=True)
    assert "these have: sabour2017/svhn; it was not trained here" in refused(
        "evaluate", "sabour2017/mnist"
    )


def made(folder: Path, recipe: str, test: float = 90.0, **build: Any) -> Path:
    network = tc.build(RECIPES[recipe].network, iterations=RECIPES[recipe].iterations, **build)
    path = folder / file_name(recipe)
    save_packed(network, path, store="int8", trained={"recipe": recipe, "seed": 0, "test": test})
    return path


def test_a_network_gets_the_best_of_its_own_and_a_recipe_the_one_it_names(weights: Path) -> None:
    weights.mkdir()
    first = made(weights, "tsai2020/cifar10-simple-1", 80.0)
    third = made(weights, "tsai2020/cifar10-simple-3", 85.0)
    other = made(weights, "tsai2020/cifar10-simple-em-3", 99.0)
    assert find_shipped("tsai2020/cifar10-simple") == third
    assert find_shipped("tsai2020/cifar10-simple-em") == other
    assert find_shipped("tsai2020/cifar10-simple-1") == first
    assert tc.build("tsai2020/cifar10-simple", pretrained=True).overrides == {"iterations": 3}
    once = tc.build("tsai2020/cifar10-simple-1", pretrained=True, iterations=2)
    assert once.overrides == {"iterations": 2}
    made(weights, "zhao2020/fashion-mnist", 95.0)
    modern = made(weights, "zhao2020/fashion-mnist-modern", 94.0)
    assert find_shipped("zhao2020/fashion-mnist") == modern


def test_another_shape_than_the_weights_is_refused(weights: Path) -> None:
    weights.mkdir()
    made(weights, "zhao2020/smallnorb")
    same = tc.build("zhao2020/smallnorb", pretrained=True, n_classes=5, image_shape=(1, 32, 32))
    assert same.n_classes == 5
    with pytest.raises(ValueError, match="are for n_classes=5, not 7: leave n_classes out"):
        tc.build("zhao2020/smallnorb", pretrained=True, n_classes=7)
    with pytest.raises(ValueError, match=r"are for image_shape=\(1, 32, 32\), not \(3, 32, 32\)"):
        tc.build("zhao2020/smallnorb", pretrained=True, image_shape=(3, 32, 32))


def test_statistics_and_counters_are_exact_and_bytes_repeat(tmp_path: Path) -> None:
    network = tc.build("zhao2020/smallnorb").train()
    with torch.no_grad():
        network(torch.rand(2, 1, 32, 32))
    for name in ("a", "b"):
        save_packed(network, tmp_path / name, store="int8", trained={"recipe": "x", "test": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = dict(tc.load(tmp_path / "a").named_buffers())
    assert again
    for name, buffer in network.named_buffers():
        assert torch.equal(buffer, again[name]), name
    single = tc.build("zhao2020/smallnorb")
    tc.load_weights(single, tmp_path / "a")
    loaded = tc.load(tmp_path / "a").state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in single.state_dict().items())


def test_damaged_and_foreign_files_get_one_sentence(weights: Path) -> None:
    weights.mkdir()
    path = made(weights, "sabour2017/svhn")
    good, tensors = path.read_bytes(), load_file(path)
    scale = next(name for name in tensors if name.endswith(SCALE))
    weight = scale.removesuffix(SCALE)
    described = {"torchcaps": json.dumps(describe(path))}
    without = {name: tensor for name, tensor in tensors.items() if name != scale}
    broken: list[tuple[dict[str, torch.Tensor], str]] = [
        (without, f"holds '{weight}' as I8"),
        ({**tensors, scale: tensors[scale].half()}, "tensors differ"),
        ({**tensors, scale: tensors[scale].flatten()[:1].clone()}, "tensors differ"),
        ({**tensors, weight: tensors[weight].float()}, "tensors differ"),
        ({**tensors, f"nothing{SCALE}": torch.ones(1)}, "tensors differ"),
    ]
    for content, sentence in broken:
        save_file(content, path, described)
        with pytest.raises(ValueError, match=sentence) as caught:
            tc.build("sabour2017/svhn", pretrained=True)
        assert "\n" not in str(caught.value)
    for junk in (good[:-1000], b"", b"junk" * 100):
        path.write_bytes(junk)
        with pytest.raises(ValueError, match="not a whole safetensors file"):
            tc.build("sabour2017/svhn", pretrained=True)
    hostile: list[Any] = [None, [], {"test": [1]}, {"test": {}}]
    for trained in hostile:
        named = {"network": "sabour2017/svhn", "overrides": {}, "trained": trained}
        save_file(tensors, path, {"torchcaps": json.dumps(named)})
        with pytest.raises(ValueError, match="this version does not know"):
            tc.build("sabour2017/svhn", pretrained=True)


def test_scales_that_are_no_scales_are_refused(weights: Path) -> None:
    weights.mkdir()
    path = made(weights, "sabour2017/svhn")
    tensors, described = load_file(path), {"torchcaps": json.dumps(describe(path))}
    scale = next(name for name in tensors if name.endswith(SCALE))
    for wrong in (-1.0, 0.0, 1e38, float("nan"), float("inf")):
        changed = tensors[scale].clone()
        changed.view(-1)[-1] = wrong
        tensors_now = {**tensors, scale: changed, scale.removesuffix(SCALE): _full(tensors, scale)}
        save_file(tensors_now, path, described)
        with pytest.raises(ValueError, match="is damaged: the scales of"):
            tc.build("sabour2017/svhn", pretrained=True)
        with pytest.raises(ValueError, match="is damaged: the scales of"):
            tc.load_weights(tc.build("sabour2017/svhn", iterations=3), path)


def _full(tensors: dict[str, torch.Tensor], scale: str) -> torch.Tensor:
    return torch.full_like(tensors[scale.removesuffix(SCALE)], 127)


def test_a_file_under_another_name_is_not_taken_for_it(weights: Path) -> None:
    weights.mkdir()
    path = made(weights, "sabour2017/svhn")
    for recipe in ("sabour2017/mnist", "sabour2017/mnist-modern"):
        place = weights / file_name(recipe)
        place.write_bytes(path.read_bytes())
        for name in ("sabour2017/mnist", recipe):
            with pytest.raises(ValueError, match=f"holds weights of '{recipe}'"):
                tc.build(name, pretrained=True)
        assert f"holds weights of '{recipe}'" in refused("evaluate", recipe)
        place.unlink()
    plain = weights / file_name("sabour2017/mnist-modern")
    tc.save(tc.build("sabour2017/mnist"), plain)
    with pytest.raises(ValueError, match="does not say that it holds weights of"):
        pretrained.facts()
    tests: tuple[str | int, ...] = ("good", -1, 101)
    for test in tests:
        kept: dict[str, str | int] = {"recipe": "sabour2017/svhn", "seed": 0, "test": test}
        save_packed(tc.build("sabour2017/svhn"), path, store="int8", trained=kept)
        with pytest.raises(ValueError, match="does not say that it holds weights of"):
            tc.build("sabour2017/svhn", pretrained=True)


def test_a_recipe_is_scored_with_its_own_weights_and_a_stand_in_is_named(weights: Path) -> None:
    weights.mkdir()
    recipe, modern = "zhao2020/fashion-mnist", "zhao2020/fashion-mnist-modern"
    other = made(weights, modern)
    assert find_place(Path(recipe)) == other
    own = made(weights, recipe)
    assert find_place(Path(recipe)) == own
    assert find_place(Path(modern)) == other
    assert find_shipped(recipe) == other
    one = made(weights, "demo/strokes-dynamic")
    one.rename("elsewhere.safetensors")
    words = ["--device", "cpu", "--json"]
    scored = json.loads(invoke("evaluate", "elsewhere.safetensors", *words).stdout)
    assert scored["elsewhere.safetensors"]["weights"] == "demo/strokes-dynamic"


@pytest.mark.parametrize("content", ["{}", "[]", "x", '{"recipe": 3}'])
def test_a_damaged_result_gets_one_sentence(content: str, trained: Path, weights: Path) -> None:
    shutil.copytree(trained / "run" / "seed0", "run")
    Path("run/result.json").write_text(content)
    for command in (("ship", "run"), ("results", "--add", "run")):
        assert "result.json" in refused(*command)
    assert not Path("results/accuracy.csv").exists()
    Path("table").write_text("")
    assert "neither a run folder nor a CSV" in refused("results", "--add", "table")


def test_a_damaged_line_of_metrics_is_left_out_of_the_curve(trained: Path, weights: Path) -> None:
    shutil.copytree(trained / "run" / "seed0", "run")
    with Path("run/metrics.jsonl").open("a") as log:
        log.write('{"kind": "epoch", "epoch": 1e999, "step": 1}\nnull\n')
        log.write('{"kind": "epoch", "epoch": 9, "step": 9, "loss": "x", "validation": []}\n')
    assert invoke("results", "--add", "run").exit_code == 0
    (curve,) = Path("results/curves").iterdir()
    assert curve.read_text().splitlines()[-1] == "9,9,,,,,"
