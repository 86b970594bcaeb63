"""Pictures against captions: normalised features, all pairs of a batch, and a loss in both directions."""

from __future__ import annotations

from peakmem.estimate.losses import cross_entropy
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, autocast_fp32, broadcast, mul, promote, result_like, scale, square, total_over
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import rename, swap
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import product


def unit(x: Tensor) -> Tensor:
    """x / _get_vector_norm(x) of modeling_clip.py: the norm is a root of a sum of squares, each kept."""
    return divide(x, norm(x))


def norm(x: Tensor) -> Tensor:
    squares = square(x)
    sums = total_over(squares, len(x.dims) - 1, True)
    root_of_sums = root(sums)
    del squares
    return root_of_sums


def root(x: Tensor) -> Tensor:
    """pow.Tensor_Scalar with exponent 0.5: `grad * (0.5 * x.pow(-0.5))` makes two tensors on the way."""
    x = autocast_fp32(x)
    n = Node("pow", x)
    n.saves(x, f"slope of the root in {n.scope}")
    out = result_like(n, x, None, "root")
    n.gradient(0, memory="grad", temporaries=((x.dims, x.dtype), (x.dims, x.dtype)))
    return n.output(out)


def divide(x: Tensor, y: Tensor, name: str = "quotient") -> Tensor:
    """div.Tensor: keeps both; the divisor's gradient, `-grad * ((x / y) / y)`, is made first, at full size."""
    n = Node("div", x, y)
    full, dtype = broadcast(x, y), promote(x, y)
    if n.needs(1):
        n.saves(x, f"gradient of {y.name}, its divisor")
    n.saves(y, f"gradient of {x.name}, which it divides")
    out = result_like(n, full, dtype, name)
    n.gradient(1, dims=full.dims, dtype=dtype, memory="grad", steps="+negative +ratio +ratio2")
    n.gradient(0, dims=full.dims, dtype=dtype, memory="grad")
    return n.output(out)


def exponential(x: Tensor) -> Tensor:
    """exp: the result is kept, the gradient is multiplied with it."""
    x = autocast_fp32(x)
    n = Node("exp", x)
    out = result_like(n, x, None, "exponential")
    n.keeps(out, f"slope of the exponential in {n.scope}")
    n.gradient(0, memory="grad")
    return n.output(out)


def log_sigmoid(x: Tensor) -> Tensor:
    """log_sigmoid_forward: keeps its input; the buffer beside the result is empty on a GPU."""
    n = Node("log_sigmoid", x)
    n.saves(x, f"slope of the log-sigmoid in {n.scope}")
    out = result_like(n, x, None, "log-sigmoid")
    n.gradient(0, memory="grad")
    return n.output(out)


def all_pairs(text: Tensor, image: Tensor, logit_scale: Tensor) -> Tensor:
    """Each caption times each picture, times the exponential of a trained number."""
    pairs = product(text, as_rows(image), None)
    return mul(pairs, exponential(logit_scale), "logits for each caption")


def as_rows(image: Tensor) -> Tensor:
    """The pictures, counted by b' to tell them from the captions."""
    return rename(image, (("b'",), image.dims[1]))


def both_directions(logits: Tensor) -> Tensor:
    """image_text_contrastive_loss: which picture belongs to a caption, and which caption to a picture."""
    with scope("loss"):
        caption_loss = one_direction(logits)
        image_loss = one_direction(swap(logits, "b' b"))
        return scale(add(caption_loss, image_loss), "loss")


def one_direction(logits: Tensor) -> Tensor:
    return cross_entropy(logits, made("b", "int64", "numbers of the pairs"))
