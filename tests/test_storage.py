"""Files that appear whole or not at all, and logs that go on after a torn line."""

from pathlib import Path

import pytest

from torchcaps.storage import WriteError, append_line, read_lines, write_bytes, write_text


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_text(tmp_path / "run.json", "one")
    write_bytes(tmp_path / "run.json", "zwölf".encode())
    assert (tmp_path / "run.json").read_text(encoding="utf-8") == "zwölf"
    for place in (tmp_path / "no" / "file", tmp_path / "run.json" / "file", tmp_path):
        with pytest.raises(WriteError, match="cannot be written") as caught:
            write_text(place, "x")
        assert str(place) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_log_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    assert read_lines(log) == []
    append_line(log, '{"step": 1}')
    append_line(log, "")
    with log.open("ab") as file:
        file.write(b'{"step": 2, "note": "' + b"x" * 100_000)
    assert read_lines(log) == ['{"step": 1}', ""]
    append_line(log, '{"step": 2}')
    assert log.read_bytes() == b'{"step": 1}\n\n{"step": 2}\n'
    log.write_bytes(b"torn from the start")
    append_line(log, "first")
    assert read_lines(log) == ["first"]
    with pytest.raises(ValueError, match="no line break"):
        append_line(log, "a\nb")
