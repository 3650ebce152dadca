"""Words by which source is read: what fills, empties, differentiates, trains, shows, cuts a graph."""

from __future__ import annotations

BACKWARD = frozenset({"backward", "manual_backward", "grad"})
"""Calls that differentiate."""
ACTS = frozenset({"eval", "train", "backward", "manual_backward", "step", "zero_grad", "toggle_optimizer"})
"""Calls of a function that does more than to answer."""
JUDGES = ("loss", "criterion", "crit", "objective", "entropy", "nll")
"""Parts of the names of calls that judge an answer."""
STAGES = ("valid", "eval", "test", "predict", "infer")
"""Parts of the names of functions that evaluate."""

# Containers

ADDS = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "put", "setdefault"})
"""Methods that put something into a container."""
MUTATORS: dict[str, frozenset[str]] = {
    "list": frozenset({"append", "extend", "insert", "__iadd__"}),
    "deque": frozenset({"append", "appendleft", "extend", "extendleft", "insert"}),
    "dict": frozenset({"update", "setdefault", "__setitem__", "__ior__"}),
    "set": frozenset({"add", "update", "__ior__"}),
    "tuple": frozenset(),
    "frozenset": frozenset(),
}
ANY_MUTATOR = frozenset().union(*MUTATORS.values()) | {"put", "put_nowait", "push", "store", "log", "record"}
FIRST_ARGUMENT_MUTATORS = frozenset({"heappush", "heappushpop", "insort", "insort_left", "insort_right", "append"})
"""Functions that put something into their first argument."""
REMOVES = frozenset({"pop", "popleft", "popitem", "clear", "remove", "reset"})
REMEMBERS = frozenset({"lru_cache", "cache"})
"""Decorators of a function that keeps its answers."""
CONTAINERS = frozenset({"list", "dict", "set", "tuple", "deque", "defaultdict", "OrderedDict", "Counter", "Queue"})
PREPARES = frozenset({"__init__", "reset", "clear", "setup", "zero", "on_train_start", "__setstate__"})
"""Methods in which what they store is only prepared."""
READERS = frozenset({"reset", "clear", "compute", "result", "avg", "average", "eval", "train", "to", "parameters"})
"""Methods of an object that keep nothing."""

# Tensors

# fmt: off
DETACHES = frozenset({
    "detach", "detach_", "numpy", "argmax", "argmin", "argsort", "multinomial", "bernoulli", "no_grad",
    "requires_grad_",
})
"""Methods and functions whose result has no graph."""
NUMBERS = frozenset({
    "item", "tolist", "numel", "dim", "size", "backward", "format", "join", "strip", "time", "perf_counter",
    "monotonic",
})
"""Methods whose result holds no tensor."""
NUMBER_FUNCTIONS = frozenset({
    "float", "int", "len", "str", "bool", "repr", "format", "range", "time", "perf_counter", "monotonic", "print",
    "isinstance", "id", "hash", "type", "ord", "open",
})
CREATES = frozenset({
    "tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace",
    "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "full_like", "from_numpy", "as_tensor",
    "one_hot", "eye", "new_zeros", "new_ones", "new_tensor", "new_full",
})
"""Functions that make a tensor without a graph."""
SHOWS = frozenset({
    "print", "pprint", "display", "log", "log_dict", "log_metrics", "info", "debug", "warning", "error", "write",
    "writerow", "add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_batch", "set_postfix",
    "set_description", "plot", "imshow", "show", "save", "save_image", "savez", "dump", "record", "assert_close",
    "assert_allclose", "zero_grad", "step",
})
"""What a statement calls to show, measure or store numbers."""
# fmt: on
CUTS = DETACHES | {"item", "tolist", "numel", "dim", "size"}
CUT_ATTRIBUTES = frozenset({"data", "shape", "dtype", "device", "requires_grad", "ndim"})
VIEWS = frozenset({"squeeze", "unsqueeze", "view", "reshape", "flatten", "transpose", "permute", "t"})
SHARES = frozenset({"detach", "view", "reshape", "squeeze", "unsqueeze"})
"""Methods whose answer shares the tensor's memory, as those that work in place do."""
MOVES = frozenset(
    {"to", "cuda", "cpu", "float", "double", "half", "bfloat16", "long", "type_as", "contiguous", "clone"}
)
"""Methods that give the same values elsewhere, or in another form."""
TO_HOST = frozenset({"cpu", "numpy", "tolist", "item"})
JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})
CASTS = frozenset({"cross_entropy", "log_softmax", "softmax"})
"""Functions that compute in float32 under autocast."""
LIBRARIES = frozenset({"torch", "th", "F", "nn", "functional", "np", "numpy", "math", "einops"})
"""Names of libraries of tensor functions."""
