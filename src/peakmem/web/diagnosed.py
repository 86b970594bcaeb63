"""An out-of-memory message in a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peakmem.errors import Impossible, printable
from peakmem.web.request import model_of, settings_of


def diagnosed(request: Mapping[str, Any], estimated: Callable[..., Any]) -> dict[str, Any]:
    """What it means; estimated: refuses what would keep others waiting. Errors: PeakmemError."""
    from peakmem.plan.diagnose import as_json, diagnose_run

    message = request.get("message")
    if not isinstance(message, str):
        raise Impossible(f"message {printable(message, 40)}: give the text of the log")
    known = request.get("model") is not None or request.get("config") is not None
    model, settings = model_of(request) if known else None, settings_of(request)
    if model is not None:
        estimated(model, settings)
    return as_json(diagnose_run(message, model, settings))
