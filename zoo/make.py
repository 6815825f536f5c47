"""Make the tickets of this folder: python zoo/make.py [NAME …]. Searches take minutes on two cores.

Each NAME gets a folder with ticket.safetensors (for inference, weights in float16) and its card; README.md and
SHA256SUMS are written anew from all that are there.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import aceglt
from aceglt.searches.wording import byte_count, percent, plus_minus

HERE = Path(__file__).parent
COMMON: dict[str, Any] = {"preset": "quick", "hidden": 64, "seeds": 3, "device": "cpu"}
TICKETS: dict[str, dict[str, Any]] = {
    "citeseer-gcn": {"dataset": "citeseer", "prune_model": 0.4},
    "cora-gcn": {"dataset": "cora", "prune_model": 0.4},
    "cora-gcn-edges": {"dataset": "cora", "axis": "graph", "prune_graph": 0.1},
    "citeseer-sage": {"dataset": "citeseer", "backbone": "sage", "prune_model": 0.4},
}


def make(name: str) -> None:
    """Search, and keep the best ticket: the sparsest whose mean validation is at least dense's, or the best of all."""
    result = aceglt.search(**COMMON, **TICKETS[name])
    ticket = result.best or max(result.tickets, key=lambda ticket: ticket.metrics["val"] or 0.0)
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    ticket.save(folder / "ticket.safetensors", parts="inference", half=True)
    small = aceglt.Ticket.load(folder / "ticket.safetensors")
    (folder / "README.md").write_text(small.card(result.results), encoding="utf-8")


def overview() -> str:
    """README.md: what there is, and how it was made."""
    rows = [
        "| ticket | weights left | edges left | test, its seed | dense | file |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    commands = []
    for name, settings in TICKETS.items():
        file = HERE / name / "ticket.safetensors"
        if not file.exists():
            continue
        ticket = aceglt.Ticket.load(file)
        left = [percent(1 - sparsity) for sparsity in (ticket.model_sparsity, ticket.graph_sparsity)]
        reached = [plus_minus([ticket.metrics[which] or 0.0]) for which in ("test", "dense_test")]
        rows.append(
            f"| [{name}]({name}/README.md) | {' | '.join([*left, *reached])} | {byte_count(file.stat().st_size)} |"
        )
        options = {**settings, **COMMON}
        commands.append(
            "aceglt search " + " ".join(f"--{option.replace('_', '-')} {value}" for option, value in options.items())
        )
    made = "\n".join(commands)
    return f"""# A few tickets

Small tickets on Planetoid graphs, to look at and to try things on: hidden layers of {COMMON["hidden"]} units,
{COMMON["seeds"]} seeds, a search of minutes. They are saved for inference, weights in float16. The seed is the best one
on validation, so its test result says little; each card has those of all seeds.

{chr(10).join(rows)}

```python
import aceglt

ticket = aceglt.Ticket.from_pretrained("zoo/citeseer-gcn")
probabilities = ticket.predict(aceglt.datasets.load("citeseer"))
```

`python zoo/make.py` made them, with aceglt {aceglt.__version__}. The same searches from the command line:

```sh
{made}
```

Of each run, `aceglt export RUN FILE --format ticket --half` writes such a file. `sha256sum -c SHA256SUMS` checks
those here.
"""


def refresh() -> None:
    """Write README.md and SHA256SUMS from what is there."""
    (HERE / "README.md").write_text(overview(), encoding="utf-8")
    files = [path for name in TICKETS if (path := HERE / name / "ticket.safetensors").exists()]
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(HERE)}" for path in files]
    (HERE / "SHA256SUMS").write_text("\n".join(sums) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or TICKETS:
        make(name)
    refresh()
