"""`hf://owner/name`: the config.json of a model on the Hugging Face hub. The only thing that uses the network."""

from __future__ import annotations

import os
import re

from peakmem.errors import Missing, Unreadable, printable

PREFIX = "hf://"
IDENTIFIER = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?(@[\w./-]{1,100})?")
FILES = ("config.json", "hf_quant_config.json")


def folder_of(word: str) -> str:
    """The folder of the hub's cache that holds the configuration; weights are not fetched.

    Errors: Missing without huggingface_hub, Unreadable for a name that is none and for what the hub refuses.
    """
    identifier = word.removeprefix(PREFIX)
    if not IDENTIFIER.fullmatch(identifier):
        raise Unreadable(f"{printable(word)} is no model of the hub; write hf://owner/name or hf://owner/name@revision")
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError:
        raise Missing(f"{printable(word)} needs huggingface_hub", "hub") from None
    name, _, revision = identifier.partition("@")
    folder = ""
    for file in FILES:
        try:
            folder = os.path.dirname(hf_hub_download(name, file, revision=revision or None))
        except EntryNotFoundError:
            if file == "config.json":
                raise Unreadable(f"{printable(word)} has no config.json") from None
        except Exception as error:  # whatever network, access and cache may say
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise Unreadable(f"{printable(word)} cannot be fetched: {printable(reason, 160)[1:-1]}") from None
    return folder
