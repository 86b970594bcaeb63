"""A Hugging Face config.json -> `Model`: what transformers 5.24 would build from it.

`Model.switches` are the yes/no facts of an architecture:

attention_bias     biases on q, k and v             output_bias        bias on attention's output projection
mlp_bias           biases in the feed-forward       qk_norm            norms on q and k of each head
parallel_residual  attention beside feed-forward    scaled_embedding   embeddings × √hidden
sandwich_norms     a norm before and after a block  logit_softcap      tanh on the logits
attention_softcap  tanh on the scores               norm_topk          chosen experts' weights sum to 1
router_logits      the auxiliary loss of routers    norm_before        OPT: norms before the blocks
final_norm         OPT: a norm after the last layer norm_affine        OPT: norms with weights
longrope           rotary frequencies by length     dynamic_rope       rotary frequencies that grow
pooler             BERT: the file's class is the one with a pooler
norm_bias          layer norms with biases       classifier_bias    a bias in the layer before the head
float_loss         the loss takes logits in fp32, of an encoder
mask_token         DINOv2: an embedding of hidden patches, of pretraining
bare               the file's class is the encoder alone
norm_per_head      StableLM: each head has its own  head_bias          a bias on the output head
masked             Falcon: a mask for every kernel  broadcast_heads    one key/value head, broadcast in matmuls
grouped_qkv        Falcon: q, k, v lie by groups    two_norms          norms of attention and feed-forward
alibi              distances added to the scores    residual_after_norm  BLOOM: the norm's output goes on
eager_only         no fused attention kernel        scaled_logits      logits times a number
multi_query        one key/value head, however many heads
norms_after        OLMo-2: layers keep their input, the last norm does not
encoder_decoder    two stacks of layers, two sequences
shared_experts     ERNIE: experts that every token meets
shared_inputs      tensors with gradients that every layer of a stack reads
position_bias      T5: a trained bias on the scores, made in the first layer of a stack
old_end_token      CLIP: the last token is the one with the largest number
empty_window       Qwen2-MoE: no window is one of 0 tokens, whose mask is made and not used
swapped_qk_norm    norms on q and k, their heads swapped
turned_qk_norm     norms on q and k, turned    unturned_full  EXAONE: full layers do not turn queries and keys
gated              the feed-forward has a gate      scaled_output  the last hidden states times a number
drop_path          stochastic depth                 registers      DINOv2: tokens of no patch beside the class token
layer_scale        ConvNeXt: a trained factor on what a layer adds
response_norm      ConvNeXt V2: channels by how loud they are
mask_token         DINOv2: a token for hidden patches, not used here
relative           DeBERTa: distances are scored    c2p, p2c       content against positions, and the other way
shared_keys        with the projections of content  buckets        large distances by their logarithm
norm_relative      a norm on the table of distances position_input positions are added to the embeddings, too
token_types        so are token types
undropped          attention without dropout, whatever is asked for
unturned           attention that knows no positions, where others of the family turn heads
mixer_norm         Falcon-H1: a norm of the scan's output, its gate before it or after it (norm_before_gate)
mixer_output_bias  Falcon-H1: a bias of the scan's last projection, apart from its first (mixer_bias)

`feed_forward` is that of the dense layers, or of an expert where all layers are experts. `positions` are rows of a
learned table (OPT: two more than positions). `Model.sizes` of OPT: "e", width of the word embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from peakmem.errors import UnknownName, Unreadable, printable
from peakmem.model import Model
from peakmem.readers import padding
from peakmem.readers.defaults import ALIASES, DEFAULTS, HARMLESS
from peakmem.readers.fields import Fields
from peakmem.readers.json_file import NotFinite
from peakmem.readers.quantised import stored_of
from peakmem.readers.shared import Sizes, architecture

FAMILIES: Mapping[str, str] = {
    "llama": "decoders.llama", "granite": "decoders.granite", "mistral": "decoders.mistral", "qwen2": "decoders.qwen2",
    "qwen3": "decoders.qwen3", "phi3": "decoders.phi3", "gemma": "decoders.gemma", "gemma2": "decoders.gemma2",
    "gemma3_text": "decoders.gemma3", "gemma3": "siglip.gemma3", "paligemma": "siglip.paligemma",
    "gemma4_text": "gemma4.gemma4_text", "gemma4": "gemma4.gemma4",
    "olmo2": "decoders.olmo2", "stablelm": "decoders.stablelm", "falcon": "open_models.falcon",
    "bloom": "open_models.bloom", "phi": "open_models.phi", "cohere": "open_models.cohere",
    "starcoder2": "open_models.starcoder2", "gpt_bigcode": "open_models.gpt_bigcode", "gptj": "open_models.gptj",
    "codegen": "open_models.codegen",
    "mpt": "open_models.mpt", "deepseek_v2": "mixtures.deepseek_v2", "deepseek_v3": "mixtures.deepseek_v3",
    "deepseek_v4": "deepseek_v4.deepseek_v4",
    "glm_moe_dsa": "mixtures.glm_moe_dsa", "gpt_oss": "mixtures.gpt_oss", "llama4_text": "mixtures.llama4",
    "qwen3_next": "recurrent.qwen3_next", "qwen3_5_text": "recurrent.qwen3_5", "mamba": "recurrent.mamba",
    "mamba2": "recurrent.mamba2",
    "bamba": "hybrids.bamba", "falcon_h1": "hybrids.falcon_h1", "falcon_mamba": "recurrent.mamba",
    "zamba2": "zamba2.zamba2",
    "granitemoehybrid": "hybrids.granitemoehybrid", "lfm2": "hybrids.lfm2", "lfm2_moe": "hybrids.lfm2_moe",
    "jamba": "recurrent.jamba", "nemotron_h": "recurrent.nemotron_h", "nemotron-nas": "nemotron_nas.nemotron_nas",
    "ministral": "kin.ministral", "seed_oss": "kin.seed_oss", "glm": "kin.glm", "glm4": "kin.glm4", "olmo": "kin.olmo",
    "olmo3": "kin.olmo3", "olmoe": "kin.olmoe", "smollm3": "kin.smollm3", "minimax_m2": "kin.minimax_m2",
    "qwen2_moe": "kin.qwen2_moe", "glm4_moe": "kin.glm4_moe", "glm4_moe_lite": "mixtures.glm4_moe_lite",
    "mimo_v2_flash": "kin.mimo_v2_flash", "mixtral": "decoders.mixtral", "qwen3_moe": "decoders.qwen3_moe",
    "gpt2": "classics.gpt2", "gpt_neox": "classics.gpt_neox", "opt": "classics.opt", "bert": "classics.bert",
    "vit": "classics.vit", "t5": "encoder_decoders.t5", "mt5": "encoder_decoders.mt5", "roberta": "classics.roberta",
    "xlm-roberta": "classics.roberta", "camembert": "classics.roberta", "resnet": "towers.resnet",
    "unet_2d_condition": "diffusion.unet_2d", "dit": "diffusion.dit", "llava": "vision_language.llava",
    "mistral3": "pixtral.mistral3", "internvl": "tiled.internvl", "idefics3": "tiled.idefics3",
    "smolvlm": "tiled.smolvlm",
    "qwen2_vl": "vision_language.qwen2_vl", "qwen2_5_vl": "vision_language.qwen2_5_vl",
    "qwen3_vl": "vision_language.qwen3_vl",
    "qwen3_vl_moe": "vision_language.qwen3_vl_moe", "qwen3_5": "vision_language.qwen3_5", "clip": "towers.clip",
    "siglip": "siglip.siglip",
    "whisper": "encoder_decoders.whisper", "iquestcoder": "decoders.llama",
    "gpt_neo": "classics.gpt_neo",
    "deit": "pictures.deit", "dinov2": "pictures.dinov2", "dinov2_with_registers": "pictures.dinov2",
    "convnext": "pictures.convnext", "convnextv2": "pictures.convnext",
    **{name: f"llama_kin.{name}" for name in (
        "apertus", "arcee", "cohere2", "cwm", "dots1", "ernie4_5", "ernie4_5_moe", "exaone4", "granitemoe", "helium",
        "hunyuan_v1_dense", "hunyuan_v1_moe", "ministral3", "nemotron")},
    "qwen3_5_moe_text": "recurrent.qwen3_5_moe",
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus", "m2m_100"), "encoder_decoders.bart"),
    "deberta-v2": "encoders.deberta_v2",
    **{name: f"encoders.{name}" for name in ("distilbert", "electra", "modernbert", "mpnet")},
}
"""transformers' model_type -> the function that reads it, in a module of this package that is loaded when needed."""

DIFFUSERS = frozenset({"unet_2d_condition", "dit"})
NO_CLASS = DIFFUSERS | {"nemotron-nas"}
"""Those of code beside the weights, or of diffusers, which transformers has no class for."""

CLASSES: Mapping[str, str] = {"gpt2": "GPT2LMHeadModel", "bert": "BertForMaskedLM", "vit": "ViTForImageClassification",
                              "t5": "T5ForConditionalGeneration", "mt5": "MT5ForConditionalGeneration",
                              "roberta": "RobertaForMaskedLM", "distilbert": "DistilBertForMaskedLM",
                              "electra": "ElectraForMaskedLM", "mpnet": "MPNetForMaskedLM",
                              "modernbert": "ModernBertForMaskedLM",
                              "xlm-roberta": "XLMRobertaForMaskedLM", "camembert": "CamembertForMaskedLM",
                              "resnet": "ResNetForImageClassification", "deit": "DeiTForImageClassification",
                              "convnext": "ConvNextForImageClassification",
                              "convnextv2": "ConvNextV2ForImageClassification",
                              "dinov2": "Dinov2ForImageClassification",
                              "dinov2_with_registers": "Dinov2WithRegistersForImageClassification",
                              "llava": "LlavaForConditionalGeneration",
                              "internvl": "InternVLForConditionalGeneration",
                              "mistral3": "Mistral3ForConditionalGeneration",
                              "idefics3": "Idefics3ForConditionalGeneration",
                              "smolvlm": "SmolVLMForConditionalGeneration",
                              "qwen2_vl": "Qwen2VLForConditionalGeneration",
                              "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
                              "qwen3_vl": "Qwen3VLForConditionalGeneration",
                              "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
                              "paligemma": "PaliGemmaForConditionalGeneration",
                              "gemma3": "Gemma3ForConditionalGeneration",
                              "gemma4": "Gemma4ForConditionalGeneration", "qwen3_5": "Qwen3_5ForConditionalGeneration",
                              "clip": "CLIPModel", "siglip": "SiglipModel",
                              "whisper": "WhisperForConditionalGeneration",
                              "deberta-v2": "DebertaV2ForMaskedLM",
                              "bart": "BartForConditionalGeneration", "mbart": "MBartForConditionalGeneration",
                              "marian": "MarianMTModel", "pegasus": "PegasusForConditionalGeneration",
                              "m2m_100": "M2M100ForConditionalGeneration"}
NESTED: Mapping[str, str] = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "llama4": "llama4_text",
                             "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
                             "kimi_k25": "deepseek_v3"}
"""Files with a text part and a vision part: only the text part is read, unless the tower is known and is there."""
OLD_NAMES: Mapping[str, str] = {
    "phi-msft": "open_models.phi_msft", "kimi_k2": "mixtures.kimi_k2", "baichuan": "remote_code.baichuan",
    "internlm": "remote_code.internlm", "internlm2": "remote_code.internlm", "minicpm": "remote_code.minicpm",
    "qwen": "remote_code.qwen", "chatglm": "remote_code.chatglm",
}
"""model_type that transformers has no class for -> the same file under the names of a class of the same shapes."""

KNOWN = sorted({*FAMILIES, *NESTED, *OLD_NAMES})


def from_config(config: Any, name: str = "model", file: str = "config.json", whole: bool = False) -> Model:
    """The model that a parsed config.json describes.

    name: what the user calls it; file: what messages call the file, printable; whole: where it is silent, the class's
    defaults are meant, and no note says so.
    Errors: Unreadable (a field is not what it should be), Impossible (two sizes contradict each other),
    UnknownName (an architecture or activation that peakmem does not know).
    """
    if not isinstance(config, dict):
        raise Unreadable(f"{file} holds {_what(config)}, not an object with the fields of a model")
    if "_class_name" in config:
        config = function("diffusion.of_diffusers")(config, file)
    given, notes = translated(config, file)
    kind = given["model_type"]
    if kind not in FAMILIES:
        raise UnknownName(f"model_type in {file}:", kind, KNOWN, see=(
            "peakmem list models. To go on: the model_type of a class with the same layers, `custom` with sizes, or "
            "the file's weights alone (a folder with .safetensors, or a .gguf file)"))
    fields = Fields(file, given, DEFAULTS[kind], ALIASES.get(kind))
    fields.place = "text_config" if config["model_type"] in NESTED and kind != config["model_type"] else ""
    sizes: Sizes = function(FAMILIES[kind])(fields)
    if config["model_type"] not in OLD_NAMES:  # code beside the weights has defaults of its own
        padding.check(kind, fields.given, DEFAULTS[kind].get("vocab_size"), file)
    notes += [*([] if whole else _assumed(fields)), *_class_note(kind, fields), *fields.notes, *_unused(fields)]
    stored, why = None, ""
    if given.get("quantization_config") is not None:
        stored, why = stored_of(given["quantization_config"], sizes["layers"])
        notes += [why] if why else []
    return Model(name=name, architecture=kind, stored=stored, source=f"config.json ({given.get('model_type')})",
                 notes=tuple(dict.fromkeys(notes)), **sizes)


def function(path: str) -> Callable[..., Any]:
    """A reader by `module.name`."""
    module, _, name = path.partition(".")
    found: Callable[..., Any] = getattr(import_module(f"peakmem.readers.{module}"), name)
    return found


def translated(config: Mapping[str, Any], file: str) -> tuple[dict[str, Any], list[str]]:
    """The same file for a class that transformers has, and what was done, in words. Errors: Unreadable, Impossible."""
    given, notes = dict(config), []
    for _ in range(2):  # a text part may have an old name
        kind = given.get("model_type")
        if not isinstance(kind, str):
            raise Unreadable(f"{file}: model_type is {'missing' if kind is None else printable(kind, 40)}; give a "
                             f"family's name, such as llama, qwen3, gpt2 or bert; {len(KNOWN)} are known, see peakmem "
                             "list models")
        if kind in NESTED and not (kind in FAMILIES and _tower(kind, given.get("vision_config"))):
            given = _text_part(given, NESTED[kind], file)
            notes.append("text part only: what belongs to images is not counted")
        elif kind in OLD_NAMES:
            given = function(OLD_NAMES[kind])(given, file)
            notes.append(f"model_type {kind} is read as {given['model_type']}" + (
                f": its code lies beside its weights, and is counted as that of {given['model_type']} in the same sizes"
                if OLD_NAMES[kind].startswith("remote_code.") else ", its fields under today's names"))
    return given, notes


def _tower(kind: str, pictures: Any) -> bool:
    """Whether a file has a tower that is known: SigLIP's, as far as it has no head for pooling."""
    return bool(pictures) and (kind != "gemma3" or isinstance(pictures, dict)
                               and pictures.get("vision_use_head") is False)


def _text_part(config: Mapping[str, Any], kind: str, file: str) -> dict[str, Any]:
    text = config.get("text_config")
    if text is None:  # older files have the text part's fields beside the vision part
        text = {name: value for name, value in config.items() if name not in ("model_type", "architectures")}
    if not isinstance(text, dict):
        raise Unreadable(f"{file}: text_config is {printable(text, 40)}; give an object")
    # the outer class owns the head, and decides whether it is tied
    outer = {"tie_word_embeddings", "quantization_config", "dtype", "torch_dtype"} & set(config)
    return {"model_type": kind, **text, **{name: config[name] for name in sorted(outer)}}


def _assumed(fields: Fields) -> list[str]:
    """Sizes that the file does not give, with the values taken; one line for each part of the file."""
    places: dict[str, list[str]] = {}
    for (place, name), value in fields.assumed.items():
        places.setdefault(place, []).append(f"{name} {value}")
    whose = "diffusers'" if fields.given.get("model_type") in DIFFUSERS else "transformers'"
    return [f"not in {place or 'the file'}, so {whose} default holds: {', '.join(found)}"
            for place, found in places.items()]


def _class_note(kind: str, fields: Fields) -> list[str]:
    named = architecture(fields)
    expected = CLASSES.get(kind) or kind.removesuffix("_text").replace("_", "") + "forcausallm"
    noted = expected.endswith("ForMaskedLM") and named == expected.replace("ForMaskedLM", "Model")
    if not named or named.lower() == expected.lower() or noted:
        return []
    what = CLASSES.get(kind, "a causal language model")
    return [f"architectures says {printable(named, 60)[1:-1]}; counted as {what}"]


def _unused(fields: Fields) -> list[str]:
    """What the file says and peakmem does not use: dtype, unknown fields; one line each."""
    given, notes = fields.given, []
    dtype = given.get("dtype", given.get("torch_dtype"))
    if dtype is not None:
        notes.append(f"the file says {printable(dtype, 30).strip(chr(39))}; the dtypes are those of --precision")
    silent = {k for k, v in given.items() if v is None or v is False}
    unknown = sorted(set(given) - fields.used - HARMLESS - silent - {"quantization_config"})
    if unknown:
        shown, more = ", ".join(printable(k, 40)[1:-1] for k in unknown[:8]), len(unknown) - 8
        notes.append(f"fields that are not used: {shown}" + (f" and {more} more" if more > 0 else ""))
    odd = [k for k, v in given.items() if isinstance(v, NotFinite)]
    if odd:
        notes.append(f"not a number, and not used: {', '.join(printable(k, 40)[1:-1] for k in odd[:8])}")
    return notes


def _what(value: Any) -> str:
    kinds = {list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")
