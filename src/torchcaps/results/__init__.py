"""Results as typed rows: accuracy, speed and training curves, with their files and tables.

Every finished run is a row of ``results/accuracy.csv`` and a curve in ``results/curves/``. Every
measurement of speed is a row of ``results/speed.csv``. Percentages are percent correct.

    append_row(ACCURACY, AccuracyRow(recipe="sabour2017/mnist", seed=0, test=99.7, ...))
    print(text(read_rows(ACCURACY)))
    write_readme("README.md", read_rows(ACCURACY))
"""

from torchcaps.results.accuracy import (
    ACCURACY as ACCURACY,
    AccuracyRow as AccuracyRow,
    add_row as add_row,
    append_row as append_row,
    check_record as check_record,
    read_rows as read_rows,
)
from torchcaps.results.comparison.page import (
    comparison_text as comparison_text,
    write_comparison as write_comparison,
)
from torchcaps.results.comparison.rows import (
    ComparisonRow as ComparisonRow,
    append_comparison as append_comparison,
    check_comparison as check_comparison,
    datasets_of as datasets_of,
    differs as differs,
    read_comparison as read_comparison,
    table_of as table_of,
)
from torchcaps.results.curves import (
    CurvePoint as CurvePoint,
    curve_path as curve_path,
    find_curve as find_curve,
    keep_curve as keep_curve,
    merge as merge,
    read_curve as read_curve,
    write_curve as write_curve,
)
from torchcaps.results.listing import FORMS as FORMS, entries as entries, text as text
from torchcaps.results.pages import (
    markdown as markdown,
    write_page as write_page,
    write_readme as write_readme,
    write_runs as write_runs,
)
from torchcaps.results.paper_pages import (
    gather as gather,
    judge as judge,
    write_coverage as write_coverage,
    write_paper as write_paper,
)
from torchcaps.results.routing_curve import (
    LayerRouting as LayerRouting,
    RoutingPoint as RoutingPoint,
    describe_routing as describe_routing,
)
from torchcaps.results.speed import (
    SpeedRow as SpeedRow,
    append_speed as append_speed,
    headline as headline,
    read_speed as read_speed,
    speed_table as speed_table,
)
from torchcaps.results.summary import (
    Summary as Summary,
    summarize as summarize,
    summarize_changed as summarize_changed,
)
from torchcaps.results.tables import (
    markdown_table as markdown_table,
    text_table as text_table,
    write_between as write_between,
)
