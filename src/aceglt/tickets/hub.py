"""Tickets on a model hub: a file, and a card that says what it is."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aceglt.config.own import is_own
from aceglt.errors import ConfigError, TicketError
from aceglt.searches.statistics import metric_in_words
from aceglt.searches.wording import percent, plus_minus, quantity

if TYPE_CHECKING:
    from aceglt.tickets.ticket import Ticket

FILE = "ticket.safetensors"
_NAME = re.compile(r"[\w.-]+/[\w.-]+")  # of what is on a hub
CARD = "README.md"


def push(
    ticket: Ticket, repo: str, *, parts: str, results: Mapping[str, Any] | None, private: bool, **options: Any
) -> str:
    """See `Ticket.push_to_hub`."""
    hub = _hub()
    api = hub.HfApi(endpoint=options.get("endpoint"), token=options.get("token"))
    with tempfile.TemporaryDirectory() as folder:
        named = replace(ticket, config=ticket.config.replace(dataset=ticket.dataset))  # without folders of this machine
        named.save(Path(folder) / FILE, parts)
        (Path(folder) / CARD).write_text(card(ticket, repo, results), encoding="utf-8")
        try:
            api.create_repo(repo, private=private, exist_ok=True)
            done = api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"Level {ticket.level}")
        except Exception as problem:  # of the network, of the hub, of the token
            raise TicketError(f"{repo}: not pushed ({_first_line(problem)})") from None
    return str(done.commit_url)


def fetched(source: str | Path, *, file: str, revision: str | None, **options: Any) -> Path:
    """The file of a ticket: in a folder, or downloaded into the hub's cache."""
    folder = Path(source)
    if folder.is_dir() and (folder / "config.json").is_file() and not (folder / file).is_file():
        raise TicketError(
            f"{source} is a run; aceglt.load_run reads it, and Ticket.load a file in {folder / 'tickets'}"
        )
    if folder.is_dir():
        return folder / file
    if folder.is_file():
        raise TicketError(f"{source} is a file; Ticket.load reads it")
    if not _NAME.fullmatch(str(source)) or str(source).startswith("."):
        raise TicketError(f"{source}: there is no such folder; a ticket on a hub is named owner/name")
    if folder.parent.is_dir() and revision is None and not any(options.values()):  # a hub would be asked for long
        raise TicketError(f"{source}: there is no such folder in {folder.parent}; with an endpoint, a hub is asked")
    hub = _hub()
    url = hub.hf_hub_url(str(source), file, revision=revision, endpoint=options.get("endpoint"))
    try:
        try:
            hub.get_hf_file_metadata(url, token=options.get("token"))  # asks once; the download would for half a minute
            reached = True
        except hub.errors.HfHubHTTPError:
            raise
        except Exception:  # of the network: what was downloaded before will do
            reached = False
        return Path(hub.hf_hub_download(str(source), file, revision=revision, local_files_only=not reached, **options))
    except Exception as problem:  # of the network, of the hub, of the token
        raise TicketError(f"{source}: no ticket there ({_first_line(problem)})") from None


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as problem:
        raise ConfigError(f"the hub needs {problem.name}: pip install 'aceglt[hub]'") from None
    return huggingface_hub


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]


def card(ticket: Ticket, repo: str | None = None, results: Mapping[str, Any] | None = None) -> str:
    """What a ticket is, in Markdown: the graph, the method, what it reaches and saves, and how to load it.

    `results` are those of its search (`results.json`), for figures over all seeds.
    """
    c, sizes, alive, total = ticket.config, ticket.sizes, ticket.masks.alive, ticket.total
    own = is_own(c.backbone)
    network = f"your own `{c.backbone}`" if own else f"{c.backbone} with {c.backbone_options.hidden} hidden units"
    metric = metric_in_words(results["metric"]) if results else "result"
    rows: list[tuple[str, ...]] = [
        ("weights", f"{alive.weights:,}", f"{total.weights:,}"),
        ("edges", f"{alive.edges:,}", f"{total.edges:,}"),
        ("MACs of a forward pass", quantity(sizes["macs"]), quantity(sizes["dense_macs"])),
    ]
    for split in ("val", "test"):
        values = [ticket.metrics[name] for name in (split, f"dense_{split}")]
        rows.append((f"{metric}, {split}", *(plus_minus(None if value is None else [value]) for value in values)))
        if results and ticket.level <= len(results["levels"]):
            over = results["levels"][ticket.level - 1][split], results["dense"][split]
            many = f"{metric}, {split}, {len(results['seeds'])} seeds"
            rows.append((many, *(plus_minus(value) for value in over)))
    table = "\n".join(f"| {' | '.join(row)} |" for row in [("", "ticket", "dense"), ("---",) * 3, *rows])
    needed = ", backbone=MyModel" if own else ""
    pruned = f"{percent(ticket.model_sparsity)} of the weights and {percent(ticket.graph_sparsity)} of the edges"
    level = f"level {ticket.level} of the {c.pruning.axis} axis, seed {ticket.seed}"
    read = "...  # the graph, a Data" if c.dataset == "data" else f'aceglt.datasets.load("{ticket.dataset}")'
    graph = f"{ticket.graph.num_nodes:,} nodes (fingerprint `{ticket.fingerprint}`)"
    return f"""---
library_name: aceglt
tags:
- graph-neural-network
- graph-lottery-ticket
- pruning
---
# A graph lottery ticket: {c.backbone} on {ticket.dataset}

A sparse subgraph and a sparse subnetwork: {pruned} are pruned.

{table}

Found by {ticket.method or c.label}, {network}, {c.task} task, {level},
preset {c.preset}, {c.training.epochs} epochs. The graph has {graph}.

```python
import aceglt

ticket = aceglt.Ticket.from_pretrained("{repo or "."}")
data = {read}
probabilities = ticket.predict(data{needed})
pruned, model = ticket.apply(data), ticket.model({needed.partition("=")[2]})
```
"""
