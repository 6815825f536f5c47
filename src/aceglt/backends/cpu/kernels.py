"""Operations on the CPU by kernels that numba compiles, where there are any and they are worth it.

numba is optional (the extra `fast`) and imported with the first operation that is worth it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from aceglt.backends.cpu.workers import Workers
from aceglt.numerics import ops, rng
from aceglt.numerics.batch import Block, GraphBatch
from aceglt.numerics.kernels import Kernels

_PASSES = 8  # over the arcs that normalisation is counted as
_FEW = 16  # outputs of a layer up to which they are made one by one
_NARROW = 8  # columns below which a row has nothing to vectorise
_LINES = 1 << 8  # bytes of a row up to which they are
_FETCHED = 12  # entries ahead
_TILE = 256  # bytes of a row of features, transposed, that a product with a sparse weight reads
_FLOATS = (torch.float32, torch.float64)
_LANES = 16  # of a vector
_HASH = 8  # operations that a draw is counted as
_STEP = 8  # and a step of Adam for a moment

Drawing = tuple[Any, Tensor, int, Tensor, int, Tensor]
"""The arguments of `drop` between h and what is left of it."""
_version = cache(metadata.version)  # which reads a file
_unusable: list[Exception] = []  # why numba's kernels cannot be used, once that is known


def described() -> str:
    """What computes: numba's version, or torch where there is none that works, as far as is known without trying."""
    return f"numba {_version('numba')}" if find_spec("numba") is not None and not _unusable else "torch"


@cache
def compiled_module() -> ModuleType | None:
    """The compiled kernels; None without numba, or with one that does not go with the rest."""
    if find_spec("numba") is None:
        return None
    try:
        from aceglt.backends.cpu import compiled, compiled_gcn  # noqa: F401 - fails now or never
    except Exception as problem:  # whatever keeps an optional package from working
        logging.getLogger("aceglt").warning(
            "numba is installed, but its kernels cannot be used (%s: %s); plain torch computes the same to rounding",
            type(problem).__name__,
            " ".join(str(problem).split())[:200],
        )
        _unusable.append(problem)
        return None
    return compiled


@cache
def core_cache() -> int:
    """Bytes of the second cache, which a core has for itself; 1 MiB where the system does not say."""
    try:
        size = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text()
        return int(size.strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 1 << 20


class CompiledKernels(Kernels):
    """What numba's kernels give, and plain torch where they do not serve."""

    def __init__(
        self,
        worth: int = 1 << 16,
        blocked: int = 1 << 23,
        block: int = 1 << 19,
        cache: int = 1 << 22,
        reads: int = 16,
        numba: bool = True,
        workers: Workers | None = None,
    ) -> None:
        """
        Args:
            worth: elements from which on an operation is worth a compiled kernel.
            blocked: bytes of a matrix from which on long rows of entries read it block by block.
            block: bytes of such a block.
            cache: bytes of a matrix from which on gathers of its rows are prefetched.
            reads: how often a row of a matrix is read, from which on blocks of its columns are packed for a cache.
            numba: whether to use it where it is installed.
            workers: threads that share the work of a kernel; by default its own.
        """
        self.worth, self.blocked, self.block, self._numba = worth, blocked, block, numba
        self._cache, self._reads = cache, reads
        self.sparse_gradient = 0.13 if numba and find_spec("numba") is not None else Kernels.sparse_gradient
        self.workers = workers or Workers()

    def computes(self, like: Tensor, size: int) -> bool:
        """Whether there are the kernels for numbers like these, and so many of them are worth it."""
        return like.dtype in _FLOATS and self._serves(like, size)

    def _serves(self, like: Tensor, size: int) -> bool:
        """Whether there are kernels for the device of `like`, and so many elements are worth them."""
        worth = self._numba and size >= self.worth and like.device.type == "cpu"
        return worth and compiled_module() is not None

    def run(self, kernel: str, work: int | Tensor, *arguments: Any, **options: int) -> None:
        """Run a compiled kernel, which there is, divided among the workers (see `Workers.divide`)."""
        self.workers.divide(getattr(compiled_module(), kernel), *map(as_given, (work, *arguments)), **options)

    def together(self, kernel: str, *arguments: Any, size: int) -> None:
        """Run a kernel of `compiled_gcn`, whose threads divide its work themselves (see `Workers.together`)."""
        self.call(kernel, *arguments, size=size)()

    def call(self, kernel: str, *arguments: Any, size: int) -> Callable[[], None]:
        """What runs such a kernel, each time on what is in these arguments then."""
        from aceglt.backends.cpu import compiled_gcn

        return partial(self.workers.together, getattr(compiled_gcn, kernel), *map(as_given, arguments), size=size)

    # Random draws

    def uniform(self, key: Tensor, n: int) -> Tensor:
        if not self._serves(key, n):
            return super().uniform(key, n)
        out = torch.empty(len(key), n, dtype=torch.float64)
        for run, number in enumerate(_unsigned(key)):
            self.run("uniform", n, number, out[run])
        return out

    def keep_mask(
        self, key: Tensor, n: int, drop: float, dtype: torch.dtype = torch.bool, rows: Tensor | None = None
    ) -> Tensor:
        lines, width = torch.zeros(1, dtype=torch.int64) if rows is None else rows, n + -n % 4
        served = self._serves(key, len(lines) * width) and dtype in (torch.bool, *_FLOATS)
        if not served or (rows is not None and n % 4):
            return super().keep_mask(key, n, drop, dtype, rows)
        out = torch.empty(len(key), len(lines), width, dtype=dtype)
        for run, number in enumerate(_unsigned(key)):
            arguments = number, lines, rng.threshold(drop), out[run]
            self.run("keep", len(lines), *arguments, size=_HASH * len(lines) * width)
        return out[:, 0, :n].contiguous() if rows is None else out

    def dropped(
        self, key: Tensor, h: Tensor, rows: Tensor | None, drop: float, whole: int | None, units: Tensor | None
    ) -> Tensor | None:
        drawing = self.drawing(h[0], key, units, rows, drop, whole) if len(h) == 1 else None
        if drawing is None:
            return None

        def dropping(given: Tensor) -> Tensor:
            out = torch.empty_like(given)
            self.run("drop", given.shape[1], given[0], *drawing, out[0], size=_HASH * given.numel())
            return out

        result: Tensor = _Dropped.apply(h, dropping)
        return result

    def drawing(
        self, h: Tensor, key: Tensor, units: Tensor | None, rows: Tensor | None, drop: float, whole: int | None
    ) -> Drawing | None:
        """How `drop` drops elements of h [n, H]; None where no kernel serves."""
        columns, width = torch.empty(0, dtype=torch.int64), h.shape[1]
        if whole is not None:
            width = whole + -whole % 4
        elif units is not None:
            columns, width = units.nonzero().squeeze(1), len(units)
        drawn = len(h) * width  # what serves a layer serves it without its dead units
        if width % 4 or not self.computes(h, drawn):
            return None
        rows = torch.arange(len(h)) if rows is None else rows
        factors = torch.tensor([1.0 / (1.0 - drop), 0.0], dtype=h.dtype)
        return _unsigned(key), rows, width // 4, columns, rng.threshold(drop), factors

    # Products

    def multiplies(self, entries: int, width: int) -> bool:
        """Whether a compiled kernel serves a product of so many entries with a matrix of this width."""
        large = width >= _NARROW and entries * width >= max(1, self.worth)
        return large and self._numba and compiled_module() is not None

    def product(self, left: Tensor, dense: Tensor, out: Tensor | None = None) -> Tensor:
        out = dense.new_empty(left.shape[0], dense.shape[1]) if out is None else out
        served = left.is_sparse_csr and self._serves(dense, left.values().numel() * dense.shape[1])
        if not served or dense.shape[1] < _NARROW or not _plain(left.values(), dense, out):
            return super().product(left, dense, out)
        self.multiply(left.crow_indices(), left.col_indices(), left.values(), dense, out)
        return out

    def few_columns(self, left: Tensor, dense: Tensor) -> Tensor:
        if self.computes(left, left.numel()) and _plain(left, dense):
            return self.outputs(left, dense.t().contiguous())
        return (dense.t() @ left.t()).t().contiguous()  # reads left row by row

    def by_sparse(self, left: Tensor, transposed: Tensor) -> Tensor | None:
        if not self.computes(left, left.numel()) or not _plain(left, transposed.values()):
            return None
        out, lanes = left.new_empty(len(left), len(transposed)), _TILE // left.element_size()
        csr = transposed.crow_indices(), transposed.col_indices(), transposed.values()
        self.run("matmul_by_sparse", -(-len(left) // lanes), left, *csr, out, lanes, size=len(left) * len(csr[2]))
        return out

    def sparse_by_sparse(self, left: Tensor, right: Tensor) -> Tensor | None:
        values = left.values()
        if not self.computes(values, left.shape[0] * right.shape[1]):
            return None
        out = values.new_empty(left.shape[0], right.shape[1])
        matrices = [part for csr in (left, right) for part in (csr.crow_indices(), csr.col_indices(), csr.values())]
        each = right.values().numel() // max(1, len(right))
        self.run("matmul_sparse", left.crow_indices(), *matrices, out, size=len(values) * each)
        return out

    def nonzeros(self, dense: Tensor) -> Tensor | None:
        if not self.computes(dense, dense.numel()) or not _plain(dense):
            return None
        rowptr, size = torch.zeros(len(dense) + 1, dtype=torch.int32), dense.numel()
        self.run("count_nonzeros", len(dense), dense, rowptr, size=size)
        torch.cumsum(rowptr, 0, out=rowptr)
        count = int(rowptr[-1])
        col, values = torch.empty(count, dtype=torch.int32), dense.new_empty(count)
        self.run("take_nonzeros", len(dense), dense, rowptr, col, values, size=size)
        return torch.sparse_csr_tensor(rowptr, col, values, dense.shape)

    def multiply(self, rowptr: Tensor, col: Tensor, values: Tensor, dense: Tensor, out: Tensor) -> None:
        """A CSR matrix · dense, into `out`."""
        entries, (height, width), each = col.shape[0], dense.shape, dense.element_size()
        size, block, matrix = entries * width, self.block // (width * each), (rowptr, col, values)
        none = self.blocks(0, dense)[:0]
        if entries >= self._reads * height and height * none.shape[2] * each <= core_cache():
            self.together("product", *matrix, dense, none, none, out, False, size=size)
        elif dense.nbytes > self.blocked and entries * block >= 4 * out.shape[0] * height:
            self.run("matmul_blocks", rowptr, *matrix, dense, out, block, size=size, pieces=1)
        else:
            self.run("matmul", rowptr, *matrix, dense, out, self.prefetched(dense), size=size)

    def prefetched(self, dense: Tensor) -> int:
        """How many entries ahead the rows of a matrix larger than the cache are prefetched; long rows fetch
        themselves."""
        return _FETCHED if dense.nbytes > self._cache and dense.nbytes <= _LINES * dense.shape[0] else 0

    def inner(self, block: Block, left: Tensor, right: Tensor) -> Tensor:
        if not self._serves(left, block.num_arcs * left.shape[1]) or not _plain(left, right):
            return super().inner(block, left, right)
        return self.inner_products(block.rowptr, block.col32, left, right)

    def inner_products(self, rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """[A] left[row] · right[col] at the entries of a CSR matrix, whatever the size."""
        entries = col.shape[0]
        out, size = left.new_empty(entries), entries * left.shape[1]
        self.run("inner", rowptr, rowptr, col, left, right, out, self.prefetched(right), size=size)
        return out

    def linear(self, h: Tensor, weight: Tensor) -> Tensor:
        if h.device.type != "cpu":
            return super().linear(h, weight)
        result: Tensor = _Linear.apply(h, weight)
        return result

    def outputs(self, h: Tensor, weight: Tensor) -> Tensor:
        """[n, C] h [n, H] · weight [C, H] transposed."""
        (rows, _), columns = h.shape, weight.shape[0]
        if columns > _FEW:
            return h @ weight.t()
        out = h.new_empty(rows, columns)
        self.run("linear", rows, h, weight, out, size=columns * h.numel())
        return out

    # The pass of a GCN

    def blocks(self, rows: int, weight: Tensor) -> Tensor:
        """Room for so many rows as wide as a weight [F, H], in blocks of columns [blocks, rows, columns]."""
        from aceglt.backends.cpu import compiled_rows

        width, lanes = weight.shape[1], compiled_rows.VECTOR // weight.element_size()
        vectors = next((few for few in (1, 2) if width <= few * lanes), compiled_rows.LONGEST)
        return weight.new_empty(-(-width // (vectors * lanes)), rows, vectors * lanes)

    def stretches(self, rowptr: Tensor, col: Tensor, columns: int) -> Tensor:
        """[stretches + 1, rows] int32: where a row's entries in each stretch of the columns begin and end.

        A core's cache holds the rows of a block that a stretch reads. Columns ascend in each row.
        """
        from aceglt.backends.cpu import compiled_rows

        most = core_cache() // (compiled_rows.LONGEST * compiled_rows.VECTOR)
        count = 1 if columns <= most else -(-2 * columns // most)  # half of the cache, which others need as well
        rows = len(rowptr) - 1
        row = torch.arange(rows).repeat_interleave(rowptr.diff())
        place = row * count + col.long() * count // max(1, columns)
        ends = torch.bincount(place, minlength=rows * count).cumsum(0).view(rows, count)
        return torch.cat([rowptr[:-1].view(1, rows).long(), ends.t()]).int().contiguous()

    def room(self, units: Tensor, z: Tensor, kept: bool, sources: int) -> tuple[Tensor, Tensor]:
        """For the gradient of units [n, H], in blocks as z, and for one block of that of their sources: none where
        each thread has its own."""
        columns = z.shape[2]
        blocks = -(-units.shape[1] // columns)
        shared = blocks < self.workers.most
        of_units = units.new_empty(blocks if kept or shared else 0, len(units), columns)
        return of_units, units.new_empty(sources if shared else 0, columns)

    # Losses

    def soft_cross_entropy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        few = outputs.shape[2] < _LANES and outputs.dtype in _FLOATS and outputs.dtype == targets.dtype
        if outputs.device.type != "cpu" or not few:
            return super().soft_cross_entropy(outputs, targets)
        result: Tensor = _SoftCrossEntropy.apply(outputs, targets)
        return result

    # Symmetric normalisation

    def normalised(self, batch: GraphBatch, edge_values: Tensor) -> Tensor | None:
        if not self.computes(edge_values, _PASSES * batch.num_arcs):
            return None
        result: Tensor = _Normalise.apply(ops.slots(edge_values), batch, self)
        return result

    def arc_coefficients(self, batch: GraphBatch, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[A] arcs' values from those of slots, scaled by the inverse roots of both ends' sums of magnitudes; also the
        values unscaled, and the roots [S·N]."""
        left, call = self.arc_coefficients_call(batch, slots)
        call()
        return left

    def arc_coefficients_call(
        self, batch: GraphBatch, slots: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Callable[[], None]]:
        """Room for these, and the call that fills it."""
        values, root = slots.new_empty(batch.num_arcs), slots.new_empty(len(batch.rowptr) - 1)
        out, weight = torch.empty_like(values), _arc_weights(batch, slots)
        arcs, size = (batch.rowptr, batch.col32, batch.slot32), _PASSES * batch.num_arcs
        given = *arcs, slots, weight, values, root, self.prefetched(slots), out
        return (out, values, root), self.call("coefficients", *given, size=size)

    def slot_gradient(self, batch: GraphBatch, values: Tensor, root: Tensor, grad: Tensor) -> Tensor:
        """Of the slots, from that of what `arc_coefficients` returned first."""
        left, call = self.slot_gradient_call(batch, values, root, grad.contiguous())
        call()
        return left

    def slot_gradient_call(
        self, batch: GraphBatch, values: Tensor, root: Tensor, grad: Tensor
    ) -> tuple[Tensor, Callable[[], None]]:
        """Room for that, and the call that fills it."""
        at_target, at_source = torch.empty_like(root), torch.empty_like(root)
        out, weight = root.new_empty(len(batch.arcs_of_slot)), _arc_weights(batch, values)
        arcs = batch.rowptr, batch.row, batch.col32, values, weight, root, grad, at_target, at_source
        ahead, size = self.prefetched(grad), _PASSES * batch.num_arcs
        return out, self.call("coefficient_gradients", *arcs, batch.arcs_of_slot, ahead, out, size=size)


class Sums:
    """A CSR matrix, of changing values, times sparse features X: where the product has entries, and what they are."""

    def __init__(self, kernels: CompiledKernels, rowptr: Tensor, col: Tensor, x: Tensor) -> None:
        from scipy.sparse import csr_array  # here: only these sums pay for the import

        self._run, self._matrix = kernels.run, (rowptr, col)
        self._x = x.crow_indices(), x.col_indices(), x.values()

        def pattern(rows: Tensor, cols: Tensor, width: int) -> Any:
            ones = _array(torch.ones(len(cols), dtype=torch.bool))
            return csr_array((ones, _array(cols), _array(rows)), shape=(len(rows) - 1, width))

        there = pattern(rowptr, col, x.shape[0]) @ pattern(*self._x[:2], x.shape[1])
        there.sort_indices()
        self.rowptr, self.col = torch.from_numpy(there.indptr), torch.from_numpy(there.indices)
        self._places = there.indptr, there.indices, x.shape[1]

    def of(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        """The product's entries, from the matrix's; in `out`, if that is given."""
        return self._filled("sums", values, values.new_empty(len(self.col)) if out is None else out)

    def gradient(self, grad: Tensor) -> Tensor:
        """Of the matrix's entries, from that of the product's."""
        return self._filled("sum_gradients", grad, grad.new_empty(len(self._matrix[1])))

    def _filled(self, kernel: str, given: Tensor, out: Tensor) -> Tensor:
        rowptr, col = self._matrix
        size = len(col) * len(self._x[1]) // max(1, len(self._x[0]) - 1)
        self._run(kernel, rowptr, rowptr, col, given, *self._x, self._places, out, size=size)
        return out


class Adam:
    """Steps of Adam, as torch's, in one pass over each matrix and with the threads that are lent."""

    _BETAS, _EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, kernels: CompiledKernels, lr: float, like: Tensor) -> None:
        """`like` what is updated."""
        self._run, self._lr, self._steps = kernels.run, lr, 0
        self._nothing, self._everywhere = like.new_empty(0), torch.empty(0, dtype=torch.int32)
        self._all = torch.empty(0, dtype=torch.uint8)
        self._rates = self._nothing  # of this step

    def rules(self, *rules: tuple[float, float]) -> Tensor:
        """A decay and an L1 term for each of what `update` updates."""
        return self._nothing.new_tensor(rules)

    def advance(self) -> None:
        """To the next step."""
        self._steps += 1
        first, second = (1 - beta**self._steps for beta in self._BETAS)
        low, lower = (1 - beta for beta in self._BETAS)
        self._rates = self._nothing.new_tensor([low, lower, self._lr / first, second**-0.5, self._EPSILON])

    def stepping(
        self,
        value: Tensor,
        moments: Tensor,
        rules: Tensor,
        matrix: Tensor | None = None,
        places: Tensor | None = None,
        scores: Tensor | None = None,
        alive: Tensor | None = None,
    ) -> Callable[[Tensor], None]:
        """A function that makes a step from a gradient: of values in place, and their two moments [2, n], by their
        rule; of the `alive` [n] uint8, unless all are.

        With scores, which have a rule too, of both and their four moments [4, n], from the gradient of their product,
        which is the matrix. With places [≤ n] in a matrix, whose gradient is given, values or products go there.
        """
        at, count = (self._everywhere, moments.shape[1]) if places is None else (places, len(places))
        before = value, self._nothing if scores is None else scores, value if matrix is None else matrix
        first = [_array(part.view(-1)) for part in before]
        then = [_array(part) for part in (self._all if alive is None else alive.view(-1), at, moments, rules)]

        def step(grad: Tensor) -> None:
            self._run("adam", count, *first, grad.view(-1), *then, self._rates, size=_STEP * moments.numel())

        return step


class _Dropped(torch.autograd.Function):
    """The gradient is dropped as the values are: it is drawn again, and nothing is kept."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, dropping: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.dropping = dropping
        return dropping(h.contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.dropping(grads[0].contiguous()), None


class _Linear(torch.autograd.Function):
    """The products in the order that reads h row by row: three to five times as fast as autograd's own."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(h, weight)
        return (weight.transpose(1, 2).contiguous() @ h.transpose(1, 2)).transpose(1, 2).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor]:
        h, weight = ctx.saved_tensors
        grad = grads[0]
        grad_h = grad @ weight.transpose(1, 2) if ctx.needs_input_grad[0] else None
        return grad_h, (grad.transpose(1, 2) @ h).transpose(1, 2).contiguous()


class _SoftCrossEntropy(torch.autograd.Function):
    """Of few classes, class by class: torch takes twenty times as long for rows as short as that. Whole vectors of
    nodes have the same gradient bit by bit."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, targets: Tensor) -> Tensor:
        logs, aims = _by_class(outputs).log_softmax(dim=1), _by_class(targets)
        ctx.save_for_backward(logs, aims)
        ctx.nodes = outputs.shape[1]
        loss: Tensor = -(aims * logs).sum(dim=(1, 2)) / outputs.shape[1]
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logs, aims = ctx.saved_tensors
        of_logs = aims * -(grads[0] / ctx.nodes).view(-1, 1, 1)
        of_outputs: Tensor = torch.ops.aten._log_softmax_backward_data(of_logs, logs, 1, logs.dtype)
        return of_outputs[..., : ctx.nodes].transpose(1, 2).contiguous(), None


def _by_class(values: Tensor) -> Tensor:
    """[S, C, n] of values [S, n, C], with zeros that fill the last vector."""
    runs, nodes, classes = values.shape
    out = values.new_zeros(runs, classes, nodes + -nodes % _LANES)
    out[..., :nodes] = values.transpose(1, 2)
    return out


class _Normalise(torch.autograd.Function):
    """`ops.normalise` by compiled kernels, with few passes over the arcs."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, batch: GraphBatch, kernels: CompiledKernels) -> Tensor:
        out, *kept = kernels.arc_coefficients(batch, slots)
        ctx.batch, ctx.kernels = batch, kernels
        ctx.save_for_backward(*kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        values, root = ctx.saved_tensors
        return ctx.kernels.slot_gradient(ctx.batch, values, root, grads[0]), None, None


def _arc_weights(batch: GraphBatch, like: Tensor) -> Tensor:
    """Of the arcs, as the kernels read them: empty if all are 1."""
    return like.new_empty(0) if batch.weight is None else batch.weight.to(like.dtype)


def _plain(*tensors: Tensor) -> bool:
    return all(t.dtype in _FLOATS and t.dtype == tensors[0].dtype and t.is_contiguous() for t in tensors)


def _array(tensor: Tensor) -> Any:
    """As the kernels read it."""
    return (tensor.detach() if tensor.requires_grad else tensor).numpy()


def not_drawn(like: Tensor) -> Drawing:
    """Nothing is dropped."""
    none = torch.empty(0, dtype=torch.int64)
    return _unsigned(none), none, 1, none, 0, like.new_empty(0)


def as_given(argument: Any) -> Any:
    """As kernels read it: arrays in place of tensors, also of those in a tuple."""
    if isinstance(argument, Tensor):
        return _array(argument)
    return tuple(map(as_given, argument)) if isinstance(argument, tuple) else argument


def _unsigned(key: Tensor) -> Any:
    return _array(key).view("uint64")
