"""Count the words of sentences in documents and docstrings, and print the longest.

    PYTHONPATH=tests python -m helpers.prose

Tables, code, headings and quotations do not count.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BUILT = {"_build", "_runtime", "_vendor", "generated"}
WRITTEN_BY_SCRIPTS = {"RELIABILITY.md"}

END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(\[*`\w])")
BLOCK = re.compile(r"\s*(?:[-*] |\d+\. |>|#|\||:|!\[)")
CODE = re.compile(r"`[^`]*`|\$[^$]*\$|https?://\S+")
SECTION = re.compile(r"(?:Args|Attributes|Returns|Raises|Yields):$")
ENTRY = re.compile(r"\s*[`\w\", *]+: ")


class Sentence(NamedTuple):
    """A sentence, its number of words, and the file it is in."""

    words: int
    text: str
    where: str


def sentences_of(text: str, where: str) -> Iterator[Sentence]:
    """Yield the sentences of a paragraph."""
    for sentence in END.split(" ".join(text.split())):
        words = [word for word in CODE.sub("x", sentence).split() if re.search(r"\w", word)]
        if words:
            yield Sentence(len(words), sentence, where)


def markdown_paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs and list items, without code, tables, headings and quotations."""
    paragraph: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        fence = line.lstrip().startswith(("```", "::::", ":::"))
        if fence and line.lstrip().startswith("```"):
            fenced = not fenced
        block = BLOCK.match(line)
        if fence or fenced or not line.strip() or block or line.startswith("<!--"):
            if paragraph:
                yield " ".join(paragraph)
            paragraph = []
            if not fence and not fenced and block and not re.match(r"\s*[>#|!]", line):
                paragraph = [line[block.end() :]]
        else:
            paragraph.append(line)


def docstring_paragraphs(doc: str) -> Iterator[str]:
    """Yield the paragraphs and the descriptions of arguments, without code."""
    for block in inspect.cleandoc(doc).split("\n\n"):
        lines = block.splitlines()
        if lines and SECTION.match(lines[0]):
            entry: list[str] = []
            for line in lines[1:]:
                if match := ENTRY.match(line):
                    yield " ".join(entry)
                    entry = [line[match.end() :]]
                else:
                    entry.append(line)
            yield " ".join(entry)
        elif not block.startswith((" ", ">>>", "Example:")) and "  " not in block.replace(
            "\n  ", "\n"
        ):
            yield from markdown_paragraphs(block)


def documents() -> list[Path]:
    """Return the documents and tutorials that people write."""
    docs = ROOT / "docs"
    found = [*ROOT.glob("*.md"), *docs.rglob("*.md"), *(docs / "learn").glob("*.py")]
    found += [ROOT / "benchmarks" / "README.md", ROOT / "results" / "README.md"]
    return sorted(
        path
        for path in found
        if not BUILT.intersection(path.parts) and path.name not in WRITTEN_BY_SCRIPTS
    )


def document_sentences() -> Iterator[Sentence]:
    """Yield every sentence of the documents."""
    for path in documents():
        text = path.read_text()
        if path.suffix == ".py":
            cells = re.findall(r"# %% \[markdown\]\n((?:#.*\n)*)", text)
            text = "\n\n".join(re.sub(r"^# ?", "", cell, flags=re.MULTILINE) for cell in cells)
        for paragraph in markdown_paragraphs(text):
            yield from sentences_of(paragraph, path.relative_to(ROOT).as_posix())


def docstring_sentences() -> Iterator[Sentence]:
    """Yield every sentence of the package's docstrings."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for paragraph in docstring_paragraphs(ast.get_docstring(node) or ""):
                    yield from sentences_of(paragraph, where)


def main() -> None:
    """Print the mean length and the longest sentences of documents and docstrings."""
    for name, found in (("documents", document_sentences()), ("docstrings", docstring_sentences())):
        sentences = sorted(found, reverse=True)
        mean = sum(one.words for one in sentences) / len(sentences)
        sys.stdout.write(f"{name}: {len(sentences)} sentences of {mean:.1f} words on average\n")
        for one in sentences[:40]:
            sys.stdout.write(f"{one.words:4} {one.where}: {one.text}\n")


if __name__ == "__main__":
    main()
