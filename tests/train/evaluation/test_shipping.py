"""From a finished run to weights that come with the package, and back to its number."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import torchcaps as tc
from helpers.commands import invoke, refused
from helpers.repetitions import mark_slow_except
from torchcaps.analysis import open_subject
from torchcaps.models.weights.files import describe
from torchcaps.papers import PAPERS
from torchcaps.results import read_rows
from torchcaps.train.evaluation import files as scoring, publish as recording
from torchcaps.train.evaluation.publish import TOLERANCE
from torchcaps.train.outputs.folder import RunFolder

TRAIN = ["--set", "limit=4096", "--device", "cpu", "--no-tensorboard"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a small network was trained with two seeds."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["train", "demo/strokes-attention", *TRAIN, "--seeds", "2"]
    record = folder / "results" / "accuracy.csv"
    result = invoke(*words, "--out", folder / "run", "--results", record)
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.parametrize("store", mark_slow_except(["int8", "float16"], "int8"))
def test_a_run_becomes_a_row_a_curve_and_weights_that_give_its_number(
    store: str, trained: Path, weights: Path
) -> None:
    words = ["--store", store, "--device", "cpu", "--json"]
    result = invoke("ship", trained / "run", *words)
    assert result.exit_code == 0, result.output
    rows = read_rows("results/accuracy.csv")
    assert [row.seed for row in rows] == [0, 1]
    assert (
        len(list(Path("results/curves").glob("demo-strokes-attention-seed*-limit-4096.csv"))) == 2
    )
    best = max(rows, key=lambda row: row.validation or 0)

    path = weights / "demo-strokes-attention.safetensors"
    facts = json.loads(result.stdout)[str(path)]
    assert (facts["recipe"], facts["seed"]) == ("demo/strokes-attention", best.seed)
    assert facts["weights_sha256"] == best.weights_sha256
    assert abs(facts["test"] - best.test) <= TOLERANCE
    assert describe(path)["trained"] == {**facts, "store": store}

    network = tc.build("demo/strokes-attention", pretrained=True)
    assert network.training
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    original = tc.load(trained / "run" / f"seed{best.seed}" / "weights.safetensors")
    for (name, ours), theirs in zip(network.named_parameters(), original.parameters(), strict=True):
        error = (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12)
        assert error <= (1 / 254 + 1e-4 if store == "int8" else 1e-3), name
    size = path.stat().st_size
    assert size < (1.2 if store == "int8" else 2.05) * network.n_parameters + 20_000

    for place in ("demo/strokes-attention", str(path)):
        scored = json.loads(invoke("evaluate", place, "--device", "cpu", "--json").stdout)
        assert scored[place]["percent"] == facts["test"]
    assert open_subject("demo/strokes-attention").name == "demo-strokes-attention"


def test_training_itself_keeps_rows_and_curves(trained: Path, weights: Path) -> None:
    record = trained / "results" / "accuracy.csv"
    curves = sorted(path.name for path in (record.parent / "curves").iterdir())
    assert curves == [f"demo-strokes-attention-seed{n}-limit-4096.csv" for n in (0, 1)]
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
    names = ("claims", "coverage", "figures", "networks", "plan", "results")
    marks = "".join(f"<!-- {mark} -->\n<!-- /{mark} -->\n" for mark in names)
    Path("docs/papers").mkdir(parents=True)
    Path("benchmarks").mkdir()
    Path("benchmarks/campaign.txt").write_text("# Small\ndemo/strokes-attention\n")
    papers = [f"docs/papers/{key}.md" for key in PAPERS]
    docs = [f"docs/{name}.md" for name in ("networks", "results", "runs")]
    for name in ("README.md", "benchmarks/README.md", *docs, *papers):
        Path(name).write_text(marks)
    result = invoke("ship", trained / "run" / "seed0", "--device", "cpu", "--write")
    assert result.exit_code == 0, result.output
    assert "seed 0" in result.stdout
    assert "No finished run is recorded" in Path("README.md").read_text()
    for name, title in (("results", "Shipped weights"), ("runs", "Every run")):
        page = Path(f"docs/{name}.md").read_text()
        assert f"### {title}" in page
        assert page.count("| demo/strokes-attention |") == 1
    assert "| mnist | 99.75 ± 0.005 | not measured |" in Path(papers[0]).read_text()


def test_a_recipe_s_name_is_its_folder_in_runs(trained: Path, weights: Path) -> None:
    shutil.copytree(trained / "run", "runs/demo/strokes-attention")
    result = invoke("results", "--add", "demo/strokes-attention")
    assert result.exit_code == 0, result.output
    assert [row.seed for row in read_rows("results/accuracy.csv") if row.command] == [0, 1]
    result = invoke("ship", "demo/strokes-attention", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert (weights / "demo-strokes-attention.safetensors").is_file()


def test_a_worse_run_does_not_replace_a_better_one_s_weights(trained: Path, weights: Path) -> None:
    path = weights / "demo-strokes-attention.safetensors"
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


def test_a_better_run_shipped_meanwhile_stays(
    trained: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes ship the seeds of a recipe at once, and the better one is done first."""

    def validation(run: RunFolder) -> float:
        row = run.row()
        assert row is not None
        return row.validation or 0

    runs = [RunFolder(trained / f"run/seed{seed}") for seed in (0, 1)]
    worse, better = sorted(runs, key=validation)
    score = scoring.evaluate_files

    def slowly(*arguments: Any, **settings: Any) -> Any:
        monkeypatch.setattr(recording, "evaluate_files", score)
        recording.ship([better], device="cpu")
        return score(*arguments, **settings)

    monkeypatch.setattr(recording, "evaluate_files", slowly)
    (facts,) = recording.ship([worse], device="cpu").values()
    seed = int(better.path.name.removeprefix("seed"))
    assert (facts["seed"], "--replace" in facts["stayed"]) == (seed, True)
    assert describe(weights / "demo-strokes-attention.safetensors")["trained"]["seed"] == seed


def test_a_run_of_the_recipe_as_it_is_replaces_one_of_changed_settings(
    trained: Path, weights: Path
) -> None:
    """The record knows of a file what became known later: the recipe was changed after its run."""
    path = weights / "demo-strokes-attention.safetensors"
    shutil.copytree(trained / "run", "runs/demo/strokes-attention")
    scores = [json.loads((trained / f"run/seed{n}/result.json").read_text()) for n in (0, 1)]
    worse, better = sorted((0, 1), key=lambda n: float(scores[n]["validation"]))
    place = Path(f"runs/demo/strokes-attention/seed{worse}")
    (place / "result.json").write_text(json.dumps({**scores[worse], "changes": {}}))
    for seed in (better, worse):
        folder = f"runs/demo/strokes-attention/seed{seed}"
        assert invoke("ship", folder, "--device", "cpu").exit_code == 0
        assert describe(path)["trained"]["seed"] == seed


def test_what_cannot_be_shipped_gets_one_sentence(
    trained: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained / "run" / "seed0"
    assert refused("ship", "nowhere") == "there is no folder nowhere, and no recipe of that name"
    name = "demo/strokes-attention"
    assert f"{Path('runs', name)} holds no finished run" in refused("ship", name)
    assert "stored as int8 or float16, not 'int4'" in refused("ship", run, "--store", "int4")
    with monkeypatch.context() as patch:
        patch.setattr(recording, "MAX_WEIGHT_BYTES", 1000)
        assert "bytes as int8 and may have 1,000" in refused("ship", run)
    result = json.loads((run / "result.json").read_text())
    changed = Path("changed")
    changed.mkdir()
    assert "changed holds no finished run" in refused("ship", "changed")
    for name in ("run.json", "weights.safetensors"):
        (changed / name).write_bytes((run / name).read_bytes())
    for change, sentence in (
        ({"test": result["test"] - 0.2, "changes": {}}, "store it as float16"),
        ({"test": result["test"] - 0.2, "changes": {"test_limit": 50}}, "without test_limit"),
        ({"test": None}, "only recipes are shipped"),
        ({"weights_sha256": "0" * 64}, "is not the file its run wrote"),
    ):
        (changed / "result.json").write_text(json.dumps({**result, **change}))
        words = ["--into", "weights", "--device", "cpu", "--results", "r.csv"]
        assert sentence in refused("ship", changed, *words)
    assert not Path("weights").exists()


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


def test_a_run_without_test_images_is_said_to_have_no_row(trained: Path, weights: Path) -> None:
    shutil.copytree(trained / "run" / "seed0", "run")
    row = json.loads(Path("run/result.json").read_text())
    Path("run/result.json").write_text(json.dumps({**row, "test": None}))
    added = invoke("results", "--add", trained / "run" / "seed1", "--add", "run")
    assert (added.exit_code, added.stderr) == (0, "run scored no test images and has no row\n")
    assert [row.seed for row in read_rows("results/accuracy.csv")] == [1]


def test_an_installed_package_is_not_written_into(
    trained: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "is_source_tree", lambda: False)
    assert "choose a folder with --into" in refused("ship", trained / "run", "--device", "cpu")
    assert not weights.exists()
    result = invoke("ship", trained / "run", "--device", "cpu", "--into", "elsewhere")
    assert result.exit_code == 0, result.output
    assert Path("elsewhere/demo-strokes-attention.safetensors").is_file()
