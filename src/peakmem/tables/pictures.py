"""Pictures in the text of a sequence: how many, and how many of its tokens they take."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.model import Model
from peakmem.setup import Setup


def images_of(model: Model, setup: Setup) -> int:
    """Pictures in each sequence; none in a model of text alone. Errors: Impossible where they take more tokens than
    there are, or peakmem does not know how the model looks at them."""
    if "sees" not in model.switches:
        if setup.images > 0 and model.towers and model.vocabulary:
            raise Impossible(f"--images {setup.images}: {model.architecture} is counted without pictures between its "
                             "tokens; leave it out")
        return 0
    if setup.run == "inference" and setup.images > 0:
        raise Impossible(f"--images {setup.images}: with pictures peakmem knows training; generation of "
                         f"{model.architecture} is counted on text alone, so leave it out")
    count = (1 if setup.run == "training" else 0) if setup.images < 0 else setup.images
    tokens = count * tokens_of_image(model)
    if tokens > setup.sequence:
        raise Impossible(f"--sequence {setup.sequence:,}: a picture takes {tokens:,} tokens of it; give {tokens:,} or "
                         "more, or --images 0")
    return count


def tokens_of_image(model: Model) -> int:
    """A token for each patch, and one for the class token where it is kept.

    Source: transformers 5.24 models/llava/modeling_llava.py, get_image_features.
    """
    return int((model.image // model.patch) ** 2 + ("class_token" in model.switches))
