"""The methods by name."""

from __future__ import annotations

from aceglt.config.methods import METHOD_OPTIONS
from aceglt.config.own import built_in
from aceglt.methods.ace import Ace
from aceglt.methods.adaglt import Adaglt
from aceglt.methods.base import Level, Method, Selection
from aceglt.methods.cgp import Cgp
from aceglt.methods.dspar import Dspar
from aceglt.methods.fastglt import Fastglt
from aceglt.methods.gebt import Gebt
from aceglt.methods.icpg import Icpg
from aceglt.methods.magnitude import Magnitude
from aceglt.methods.neighbours import Neighbours
from aceglt.methods.random import Random
from aceglt.methods.sgcn import Sgcn
from aceglt.methods.teddy import Teddy
from aceglt.methods.ugs import Ugs
from aceglt.methods.ugts import Ugts

METHODS: dict[str, type[Method]] = built_in("methods", METHOD_OPTIONS)

__all__ = [
    "METHODS", "Ace", "Adaglt", "Cgp", "Dspar", "Fastglt", "Gebt", "Icpg", "Level", "Magnitude", "Method", "Neighbours",
    "Random", "Selection", "Sgcn", "Teddy", "Ugs", "Ugts",
]  # fmt: skip
