"""Campaigns: many training runs side by side, within a time limit, resumable.

    entries = read_list("benchmarks/campaign.txt")
    outcome = run_campaign(entries, Settings(minutes=28, parallel=3))

Every run is a process of its own that ``torchcaps train`` would start in the same way. A campaign
keeps no state beside the run folders, so the same command goes on after any interruption.
"""

from torchcaps.campaign.entries import Entry as Entry, read_list as read_list
from torchcaps.campaign.estimate import Pace as Pace, write_estimates as write_estimates
from torchcaps.campaign.mps import mps_daemon as mps_daemon
from torchcaps.campaign.plan import Planned as Planned, plan as plan
from torchcaps.campaign.runner import Settings as Settings, run_campaign as run_campaign
from torchcaps.campaign.worker import State as State, Worker as Worker
