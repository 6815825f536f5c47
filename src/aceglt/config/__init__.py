"""What can be set. Cheap to import: nothing here needs torch.

A setting is written once, in `groups`, `configuration` or `methods`, with its default, its check and its help;
validation, JSON, the options of `aceglt search` and the keywords of `aceglt.search` come from there.
"""

from aceglt.config.checks import check_type, suggest
from aceglt.config.configuration import MAX_SEEDS, SCORING, SETTINGS, STEERING, TUPLES, Config, check_known, hints
from aceglt.config.groups import AXES, BACKBONE_OPTIONS, METRICS, TASK_OPTIONS, Pruning, Scoring, Stopping, Training
from aceglt.config.methods import METHOD_OPTIONS
from aceglt.config.presets import PRESETS
from aceglt.config.resolution import as_call, difference, resolve, with_options

__all__ = [
    "AXES", "BACKBONE_OPTIONS", "MAX_SEEDS", "METHOD_OPTIONS", "METRICS", "PRESETS", "SCORING", "SETTINGS", "STEERING",
    "TASK_OPTIONS", "TUPLES", "Config", "Pruning", "Scoring", "Stopping", "Training", "as_call", "check_known",
    "check_type", "difference", "hints", "resolve", "suggest", "with_options",
]  # fmt: skip
