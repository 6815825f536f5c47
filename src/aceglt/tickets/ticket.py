"""The ticket: masks, the initial and trained weights that are alive, and where it comes from. The product."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aceglt import datasets
from aceglt.backbones import Backbone, Params, build
from aceglt.config import Config
from aceglt.config.formats import FORMAT
from aceglt.config.own import again, is_own
from aceglt.errors import AcegltError, ConfigError, DataError, TicketError, is_shortage
from aceglt.files import check_claim
from aceglt.files import tensors as storage
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.checks import check_edges
from aceglt.problems.link import embeddings
from aceglt.searches.sketch import bars
from aceglt.searches.wording import escape, percent, plus_minus, quantity
from aceglt.tickets import stored
from aceglt.tickets.applied import applied
from aceglt.tickets.compact import CompactModel, parts_of
from aceglt.tickets.export import export as write_export
from aceglt.tickets.hub import FILE, fetched, push
from aceglt.tickets.hub import card as write_card
from aceglt.tickets.own import Names, compact_of, export_own, module_of
from aceglt.tickets.own import outputs as own_outputs
from aceglt.tickets.shrink import alive_layers

_KIND = "ticket"
_LARGER = 4  # than the training graph a whole one may be


@dataclass(frozen=True, repr=False, eq=False)
class Ticket:
    """A sparse subgraph and a sparse subnetwork of one run, with the weights it starts from and those it ended with.

    Examples:
        >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2, hidden=8).tickets[0]
        >>> ticket
        Ticket of random, gcn with 8 hidden units on data, node task
        level 1 of the model axis, seed 0, preset default, 2 epochs
        weights  51 of 64 (20.31 % sparse)
        ...

    Tickets are equal where their content is: masks, weights, graph, configuration and metrics.
    """

    config: Config
    seed: int
    level: int
    masks: Masks  # S = 1
    initial: Params | None
    """S = 1, dead weights are 0; with `rewind_epoch`, those of the dense model after that epoch. None if it was saved
    for inference."""
    trained: Params  # S = 1, dead weights are 0
    metrics: Mapping[str, float | None]
    """val, test, dense_val, dense_test of this run; test is None where it was never read."""
    sizes: Mapping[str, int]
    """in_features, out_features, macs, dense_macs; edge_features where the backbone reads such."""
    graph: Graph
    """The (training) graph that it was found on: all edges, dead ones too unless it was saved for inference, with their
    weights."""
    fingerprint: str
    """Of that graph; it covers features of edges too, which a ticket does not hold."""
    several: bool = False
    """Whether a node may have several labels (or none) rather than one class."""
    names: Names | None = None
    """What a model of the user's own calls its weights; None for a built-in backbone."""
    backend: str = "unknown"
    """What trained it; another one gives the same to rounding only."""
    method: str = ""
    """The name of a method of the user's own; empty for a built-in one."""
    nodes: Tensor | None = None  # [N] int64
    """The numbers of the training graph's nodes in the whole graph of the inductive task."""
    whole: stored.Whole | None = None
    """What is known of the graph with its dead edges, where the ticket was saved without them."""

    @property
    def total(self) -> Counts:
        """How many weights and edges there are, dead ones included."""
        edges = self.graph.num_edges if self.whole is None else self.whole.num_edges
        return Counts(self.masks.total.weights, edges)

    @property
    def model_sparsity(self) -> float:
        return self.masks.sparsity[0]

    @property
    def graph_sparsity(self) -> float:
        return 1.0 - self.masks.alive.edges / self.total.edges

    @property
    def dataset(self) -> str:
        """What the graph is called: a dataset's name, or a file's without its folder."""
        return self.config.dataset.replace("\\", "/").rpartition("/")[2]

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.graph.edge_weight is not None

    @property
    def reads_edge_features(self) -> bool:
        """Whether the graph has features of edges, which a ticket does not hold."""
        return self.whole is None and self.fingerprint != self.graph.fingerprint

    @property
    def objective(self) -> str:
        """What a ticket of link prediction was trained by: bce or infoclust."""
        return str(self.config.flat()["objective"])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return storage.content_digest(*stored.content(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ticket) and self.digest == other.digest

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __repr__(self) -> str:
        c, alive, total, dense = self.config, self.masks.alive, self.total, self.sizes["dense_macs"]
        shown = {name: plus_minus(None if value is None else [value]) for name, value in self.metrics.items()}
        network = f"your own {c.backbone}" if is_own(c.backbone) else c.backbone
        rewound = f", rewound to epoch {c.training.rewind_epoch}" if c.training.rewind_epoch else ""
        width = "" if is_own(c.backbone) else f" with {c.backbone_options.hidden} hidden units"
        return "\n".join(
            [
                f"Ticket of {self.method or c.label}, {network}{width} on {c.dataset}, {c.task} task",
                f"level {self.level} of the {c.pruning.axis} axis, seed {self.seed}, preset {c.preset}, "
                f"{c.training.epochs} epochs{rewound}",
                f"weights  {alive.weights:,} of {total.weights:,} ({percent(self.model_sparsity)} sparse)",
                f"edges    {alive.edges:,} of {total.edges:,} ({percent(self.graph_sparsity)} sparse)",
                f"MACs     {quantity(self.sizes['macs'])} of {quantity(dense)} "
                f"({dense / self.sizes['macs']:.1f}× fewer)",
                f"val      {shown['val']} (dense {shown['dense_val']})",
                f"test     {shown['test']} (dense {shown['dense_test']})",
                f"graph    {self.graph.num_nodes:,} nodes, fingerprint {self.fingerprint}",
                *(["saved    for inference: without initial weights and dead edges"] if self.initial is None else []),
            ]
        )

    def _repr_html_(self) -> str:
        first, second, *facts = (escape(line) for line in repr(self).splitlines())
        shares = {"weights": 1 - self.model_sparsity, "edges": 1 - self.graph_sparsity}
        shares["MACs"] = self.sizes["macs"] / self.sizes["dense_macs"]
        drawn = bars([(f"{name} left", share, percent(share)) for name, share in shares.items()], "what is left")
        return f"<p><b>{first}</b><br>{second}</p>{drawn}<pre>{'<br>'.join(facts)}</pre>"

    def save(self, path: str | Path, parts: str = "all", half: bool = False) -> None:
        """Write a safetensors file.

        Args:
            path: of the file.
            parts: "all": bit-packed masks, the alive weights before and after training, and the graph's edges.
                "inference": the alive weights after training and the alive edges, which is what predict, bench, export
                and apply need; it cannot be evaluated.
            half: weights in float16, for inference; they are float32 again when loaded.

        Examples:
            >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0]
            >>> ticket.save("small.safetensors", parts="inference", half=True)
            >>> aceglt.Ticket.load("small.safetensors").predict(data).allclose(ticket.predict(data), atol=1e-2)
            True
        """
        storage.write_tensors(Path(path), _KIND, FORMAT, *stored.written(self, parts, half))

    @classmethod
    def load(cls, path: str | Path) -> Ticket:
        """Read a ticket; nothing in it is executed.

        Raises TicketError if the file is missing, damaged or of another kind.
        """
        if not isinstance(path, (str, os.PathLike)):
            hint = "; where no level wins, result.best is None, and result.tickets has what is kept"
            raise TicketError(f"a ticket or its file is needed, found {type(path).__name__}{hint}")
        payload, tensors = storage.read_tensors(Path(path), _KIND, FORMAT, TicketError)
        try:
            check_claim(stored.claimed_bytes(payload), os.path.getsize(path), "its masks", TicketError)
            return cls(**stored.read(payload, tensors))
        except KeyError as problem:
            raise TicketError(f"{path}: the ticket lacks {problem}") from None
        except (TypeError, ValueError, ArithmeticError, RuntimeError, IndexError, AcegltError) as problem:
            if is_shortage(problem):
                raise
            raise TicketError(f"{path}: the ticket's content does not fit together ({problem})") from None

    def push_to_hub(
        self,
        repo: str,
        *,
        parts: str = "all",
        results: Mapping[str, Any] | None = None,
        private: bool = False,
        token: str | None = None,
        endpoint: str | None = None,
    ) -> str:
        """Upload the ticket and a card about it to a model hub (needs the extra `hub`); returns the commit's address.

        Args:
            repo: "user/name"; it is made if it does not exist.
            parts: what the file holds; see `save`.
            results: of the search (`result.results`), so that the card has figures over all seeds.
            private: whether a new repository is private.
            token: of the user; by default the one that is logged in.
            endpoint: of the hub; by default the usual one, or $HF_ENDPOINT.
        """
        return push(self, repo, parts=parts, results=results, private=private, token=token, endpoint=endpoint)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        file: str = FILE,
        revision: str | None = None,
        token: str | None = None,
        endpoint: str | None = None,
    ) -> Ticket:
        """Load a ticket from a model hub (needs the extra `hub`) or from a folder; nothing in it is executed.

        Args:
            source: "user/name", or a folder. Where there is a folder user/, a hub is asked only with a revision, token
                or endpoint.
            file: its name there.
            revision: a branch, tag or commit.
            token: of the user; by default the one that is logged in.
            endpoint: of the hub; by default the usual one, or $HF_ENDPOINT.
        """
        return cls.load(fetched(source, file=file, revision=revision, token=token, endpoint=endpoint))

    def card(self, results: Mapping[str, Any] | None = None) -> str:
        """What the ticket is, in Markdown; `results` of its search add figures over all seeds."""
        return write_card(self, None, results)

    def apply(self, data: Any, unseen: str = "error") -> Any:
        """A copy of a PyG `Data` with the alive edges, listed as the model reads them; all else is kept.

        Self-loops and repetitions are left out, and an undirected edge is in both directions, even if the data lists
        one: what the search made of the data too. What the data says about edges (`edge_weight`, `edge_attr` …) goes
        with them. Edges between nodes that an inductive ticket did not train on stay. Edges that link prediction holds
        out go.

        Args:
            data: a PyG `Data`, or what `aceglt.datasets.load` returns.
            unseen: what to do where the (training) graph is not the one that the ticket was found on. "error": raise
                TicketError. "keep" or "drop": edges that the search never saw stay or go; nodes are known by their
                number, so new ones come after those of the search. No node is ever removed.
        """
        return applied(self, data, unseen)

    def model(self, backbone: Any = None, compact: bool = False) -> Any:
        """The trained network without what is dead, for inference on a graph that the ticket was applied to.

        Of a ticket of your own model, that module with the ticket's weights, dead ones 0, to infer or to train:
        `backbone` is its class, a factory, an instance (which is copied) or "module:attribute". What the ticket names
        is never imported by itself. With `compact`, the module is without the dead hidden units that can be cut from
        its linear maps and batch norms; a line is logged where there are none.

        Examples:
            >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0]
            >>> ticket.model()(data.x, ticket.apply(data).edge_index).shape
            torch.Size([24, 2])
        """
        if is_own(self.config.backbone):
            return compact_of(self, backbone) if compact else module_of(self, backbone)
        again(self.config.to_dict(), {"backbone": backbone})  # refuses one that is given in vain
        built = self.backbone()
        (layers, there), directed = alive_layers(built, self.trained, self.masks), self.graph.directed
        return CompactModel(layers, built.coefficients, directed, built.edge_features, self.weighted, there).eval()

    def state_dict(self) -> dict[str, Tensor]:
        """The trained weights by the names that the model has for them, dead ones 0; for `load_state_dict` of your own.

        Examples:
            >>> sorted(aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0].state_dict())
            ['layer0.weight', 'layer1.weight']
        """
        if not is_own(self.config.backbone):
            return {name: part.clone() for name, part in self.trained_weights().items()}
        if self.names is None:
            raise TicketError(
                "the ticket is of an earlier version, which did not record the names of weights; search again"
            )
        return self.names.split(self.trained.prunable[0], self.trained.other[0])

    def predict(
        self,
        data: Any,
        unseen: str = "error",
        device: torch.device | str = "cpu",
        backbone: Any = None,
        pairs: Tensor | None = None,
    ) -> Tensor:
        """Probability of each class (or, where nodes have several, label) at each node, [N, classes].

        Of link prediction, the embeddings [N, C] whose inner products score pairs; with `pairs` [2, n], the probability
        that each is an edge, [n] (with InfoClust, which trains no probabilities, the cosine).

        See `apply` for `unseen`, and `model` for `backbone`, which a ticket of your own model needs.

        Examples:
            >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0]
            >>> ticket.predict(data).sum(dim=1).allclose(torch.ones(24))
            True
        """
        if pairs is not None:
            self._check_pairs(pairs, int(data.num_nodes))
        pruned = self.apply(data, unseen)
        if is_own(self.config.backbone):
            outputs: Tensor = own_outputs(self, pruned, backbone, device)
        else:
            model = self.model(backbone).to(device)
            outputs = model(*(None if part is None else part.to(device) for part in parts_of(pruned)))
        if not bool(outputs.isfinite().all()):
            raise TicketError("the model's outputs on this graph are not finite: its weights or the features overflow")
        if self.config.task != "link":
            return (outputs.sigmoid() if self.several else outputs.softmax(dim=-1)).cpu()
        made = embeddings(outputs, self.objective).cpu()
        if pairs is None:
            return made
        scores = (made[pairs[0]] * made[pairs[1]]).sum(dim=-1)
        return scores if self.objective == "infoclust" else scores.sigmoid()

    def _check_pairs(self, pairs: Tensor, num_nodes: int) -> None:
        if self.config.task != "link":
            raise ConfigError(f"pairs are scored by tickets of link prediction, this one is of {self.config.task}")
        try:
            check_edges(pairs, num_nodes, self.config.dataset, "pairs")
        except DataError as problem:
            raise ConfigError(str(problem)) from None

    def export(self, out: str | Path, format: str = "pyg", backbone: Any = None) -> Path:
        """Write the compact model and the alive edges into a new folder, for use without aceglt.

        See `aceglt.tickets.export.export` for the formats. Of your own model, named as `backbone`, the format pyg
        writes a `state_dict` with dead weights 0; the others trace the module, without the dead units that can be cut.
        """
        if is_own(self.config.backbone):
            return export_own(self, out, format, backbone)
        again(self.config.to_dict(), {"backbone": backbone})
        return write_export(self, out, format)

    def trained_weights(self) -> dict[str, Tensor]:
        """The trained weights by name, dead ones 0."""
        return {name: part[0] for name, part in self.backbone().weights(self.trained).items()}

    def backbone(self) -> Backbone:
        """The backbone that the weights belong to.

        Raises TicketError if the ticket has no compact form, or the weights do not fit.
        """
        c, sizes = self.config, self.sizes
        if is_own(c.backbone):
            raise TicketError(f"the ticket is of your own model {c.backbone}, which has no compact form")
        options = asdict(c.backbone_options) | {name: sizes[name] for name in stored.EDGE_SIZES if name in sizes}
        backbone = build(c.backbone, sizes["in_features"], sizes["out_features"], **options)
        backbone = backbone if c.pruning.structure is None else backbone.with_whole_units()
        wanted = (backbone.prunable.size, backbone.other.size)
        found = (self.masks.total.weights, self.trained.other.shape[1])
        if wanted != found:
            raise TicketError(
                f"the ticket has {found[0]} prunable and {found[1]} other weights, but a {c.backbone} of its sizes has "
                f"{wanted[0]} and {wanted[1]}"
            )
        return backbone

    def load_data(self, dataset: str | None = None, data_root: str | Path | None = None) -> Any:
        """The graph that the ticket was found on, by the name that its search gave; `dataset` names another place.

        Only what the caller names is downloaded, or made if it is far larger than the ticket's own graph.
        """
        if dataset is None and self.config.dataset == "data":
            raise ConfigError(
                "the ticket was found on a graph given in Python; say where it is, with --dataset and the name of a "
                "dataset or of an .npz file (datasets.save_npz writes one)"
            )
        if dataset is not None:
            return datasets.read(dataset, data_root)
        nodes = datasets.nodes_of_synthetic(self.config.dataset)
        if nodes > _LARGER * self.graph.num_nodes:
            raise TicketError(
                f"the ticket's graph has {self.graph.num_nodes} nodes, {self.config.dataset} {nodes}; name it with "
                "--dataset if it is that one all the same"
            )
        return datasets.read(self.config.dataset, data_root, download=False)

    def check(self, graph: Graph) -> None:
        """Raise TicketError unless this is the (training) graph that the ticket was found on."""
        self.check_structure(graph)
        if graph.fingerprint != self.fingerprint:
            raise TicketError(
                f"the ticket was found on a graph with the same edges but other edge_weight or edge_attr "
                f"({self.config.dataset})"
            )

    def check_structure(self, graph: Graph) -> None:
        """Raise TicketError unless this graph has the nodes and edges of the ticket's."""
        nodes, edges = self.graph.num_nodes, self.total.edges
        if graph.structure != (self.whole.structure if self.whole else self.graph.structure):
            raise TicketError(
                f"the ticket was found on a graph with {nodes} nodes and {edges} "
                f"edges ({self.config.dataset}); this one has {graph.num_nodes} nodes and {graph.num_edges} edges"
                + ("" if graph.num_edges != edges else ", and other ones")
            )
