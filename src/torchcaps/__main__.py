"""``python -m torchcaps`` is the same program as ``torchcaps``."""

from torchcaps.cli import app

if __name__ == "__main__":
    app(prog_name="torchcaps")
