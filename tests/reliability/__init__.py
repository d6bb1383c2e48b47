"""The scorecard: what is promised, tried over and over, and what was seen.

    python -m reliability                          every row, from where it stopped
    python -m reliability --only kill-save         one row
    python -m reliability --minutes 15             as much as fits
    python -m reliability --list

It writes ``results/reliability.csv`` as it goes and renders ``RELIABILITY.md`` from it.
"""
