"""The split of the children over programs."""

MAX_CONCURRENT_PROGRAMS = 264
"""Programs that a large GPU runs at the same time, limited by registers."""


def ceil_div(n: int, size: int) -> int:
    """Return n over size, rounded up."""
    return -(-n // size)


def split_children(tiles: int, n_children: int, multiple: int) -> tuple[int, int]:
    """Return children per program and programs per tile, so that the last round is nearly full.

    Every further program of a tile costs a sum over programs, so the fewest that fill rounds well
    are taken.
    """
    at_most = max(1, n_children // max(32, multiple))
    slots = MAX_CONCURRENT_PROGRAMS
    if tiles * at_most <= slots:
        parts = max(1, min(slots // max(tiles, 1), ceil_div(n_children, max(8, multiple))))
    else:
        filled = {
            parts: tiles * parts / (ceil_div(tiles * parts, slots) * slots)
            for parts in range(1, min(at_most, max(8, slots // tiles)) + 1)
        }
        best = max(filled.values())
        parts = min(parts for parts, share in filled.items() if share > best - 0.05)
    n_part = max(1, ceil_div(ceil_div(n_children, parts), multiple)) * multiple
    return n_part, ceil_div(n_children, n_part)
