"""The figures of the papers, drawn from the recorded runs: ``torchcaps results --write``."""

from torchcaps.figures.papers.drawings import DRAWINGS as DRAWINGS
from torchcaps.figures.papers.panels import Counts as Counts, Curves as Curves, Drawing as Drawing
from torchcaps.figures.papers.write import write_pictures as write_pictures
