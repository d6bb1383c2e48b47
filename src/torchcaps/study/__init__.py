"""Studies: train every head of a comparison, measure each network, and keep one row of each.

    runs = plan_study(find_study("quick"))
    outcome = run_study(runs, Settings(devices=("cpu",)), "results/compare-quick.csv")

Training is a campaign, and a row that exists is not measured again. Processes of their own measure
each network when it is trained, and speed is measured last. The same call goes on after any
interruption.
"""

from torchcaps.study.measuring import measure_run as measure_run, measure_speed as measure_speed
from torchcaps.study.plan import (
    StudyRun as StudyRun,
    plan_study as plan_study,
    sort_rows as sort_rows,
)
from torchcaps.study.runner import (
    Outcome as Outcome,
    known_rows as known_rows,
    run_study as run_study,
    without_rows as without_rows,
)
