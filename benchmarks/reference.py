"""A GCN the way published mask learning has it, to compare with: everything dense, masks are parameters.

An N×N adjacency, an N×N mask of it and masks of the weights, all trained by Adam with plain autograd; L1 added to the
masks' gradients after the backward pass, as everywhere in this field.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aceglt.problems import NodeProblem


class DenseGCN(nn.Module):
    """Two layers over a dense masked adjacency."""

    def __init__(self, problem: NodeProblem, hidden: int) -> None:
        super().__init__()
        nodes, (source, target) = problem.graph.num_nodes, problem.graph.edges
        self.adjacency = torch.zeros(nodes, nodes, device=problem.device)
        self.adjacency[source, target] = self.adjacency[target, source] = 1.0
        self.x, self.eye = problem.x, torch.eye(nodes, device=problem.device)
        shapes = ((problem.x.shape[1], hidden), (hidden, problem.out_features))
        self.weights = nn.ParameterList(nn.init.xavier_uniform_(torch.empty(shape)) for shape in shapes)
        self.weight_masks = nn.ParameterList(torch.ones(shape) for shape in shapes)
        self.edge_mask = nn.Parameter(self.adjacency.clone())

    def forward(self) -> Tensor:
        adjacency = self.adjacency * self.edge_mask + self.eye
        root = adjacency.sum(dim=1).clamp(min=1e-6).rsqrt()
        adjacency = root[:, None] * adjacency * root[None, :]
        first, second = (w * m for w, m in zip(self.weights, self.weight_masks, strict=True))
        hidden = torch.dropout(torch.relu(adjacency @ (self.x @ first)), 0.5, self.training)
        outputs: Tensor = adjacency @ (hidden @ second)
        return outputs


class Reference:
    """Score training with validation, epoch by epoch."""

    def __init__(self, problem: NodeProblem, hidden: int = 512) -> None:
        self.problem = problem
        self.model = DenseGCN(problem, hidden).to(problem.device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=5e-4)

    def epoch(self) -> float:
        model, problem = self.model, self.problem
        model.train()
        self.optimiser.zero_grad()
        problem.loss(model().unsqueeze(0), None, torch.zeros(1, dtype=torch.int64)).sum().backward()
        with torch.no_grad():
            for mask in (model.edge_mask, *model.weight_masks):
                assert mask.grad is not None
                mask.grad += 1e-4 * mask.sign()
        self.optimiser.step()
        model.eval()
        with torch.no_grad():
            return float(problem.measure(model().unsqueeze(0), "val"))
