"""The six words as types, capabilities, randomness and errors. NumPy at most."""

from equipoise.core.capabilities import (
    Acts,
    Capability,
    Embeds,
    Forecasts,
    Generates,
    GeneratesAsync,
    HasModule,
    Judges,
    Predicts,
    PredictsProba,
    ScoresText,
    Trains,
    capability_names,
)
from equipoise.core.errors import EquipoiseError, RunError, UnitError, UsageError, nearest
from equipoise.core.estimates import Estimate
from equipoise.core.kinds import Measure, Subject, Talk, Task, Treatment, learnable
from equipoise.core.language import (
    Generation,
    Json,
    Message,
    Prompt,
    Request,
    TokenScores,
    Usage,
)
from equipoise.core.outcomes import Outcome, Outcomes, ScoreSpec, Split, Unit
from equipoise.core.parts import Parameter, Part, between, one_of, parameters, setting
from equipoise.core.rng import Rng

__all__ = [
    "Acts",
    "Capability",
    "Embeds",
    "EquipoiseError",
    "Estimate",
    "Forecasts",
    "Generates",
    "GeneratesAsync",
    "Generation",
    "HasModule",
    "Json",
    "Judges",
    "Measure",
    "Message",
    "Outcome",
    "Outcomes",
    "Parameter",
    "Part",
    "Predicts",
    "PredictsProba",
    "Prompt",
    "Request",
    "Rng",
    "RunError",
    "ScoreSpec",
    "ScoresText",
    "Split",
    "Subject",
    "Talk",
    "Task",
    "TokenScores",
    "Trains",
    "Treatment",
    "Unit",
    "UnitError",
    "Usage",
    "UsageError",
    "between",
    "capability_names",
    "learnable",
    "nearest",
    "one_of",
    "parameters",
    "setting",
]
