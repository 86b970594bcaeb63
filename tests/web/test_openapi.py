"""schemathesis against the server's OpenAPI: what it says of itself holds for requests that nobody thought of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

schemathesis = pytest.importorskip("schemathesis", reason="the interface's tests need schemathesis")
pytest.importorskip("starlette", reason="the interface's tests need the extra: pip install -e '.[serve]'")

from hypothesis import settings  # noqa: E402

from peakmem.web.answer import ASKS  # noqa: E402
from peakmem.web.openapi import document  # noqa: E402
from tests.web.server import get, running  # noqa: E402

CONFIG = schemathesis.Config.from_dict({"checks": {
    # Settings that are right each by itself may contradict each other; then the answer is 400 and says why.
    "positive_data_acceptance": {"expected-statuses": ["2xx", 400]},
    # A number may come as it is typed, so schemas take text that only the engine can judge.
    "negative_data_rejection": {"expected-statuses": ["2xx", "4xx"]},
}, "phases": {"coverage": {"enabled": False}}, "seed": 7})
schema = schemathesis.openapi.from_dict(document(), config=CONFIG)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as found:
        yield found


@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
def test_the_server_is_as_described(case: Any, port: int) -> None:
    case.call_and_validate(base_url=f"http://127.0.0.1:{port}")


def test_it_is_served(port: int) -> None:
    assert json.loads(get(port, "/openapi.json").body) == json.loads(json.dumps(document()))


def test_every_question_is_described() -> None:
    described = set()
    for part in document()["components"]["schemas"]["Request"]["anyOf"]:
        ask = part["properties"]["ask"]
        described |= set(ask.get("enum", [])) | {ask["const"]} if "const" in ask else set(ask["enum"])
    assert described == set(ASKS)
