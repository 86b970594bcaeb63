"""The server's interface as an OpenAPI document, from the field table."""

from __future__ import annotations

from typing import Any

from peakmem.setup import FIELDS
from peakmem.tables.resize import SIZES
from peakmem.version import __version__

COMMON = {
    "400": "a mistake in the request, told in one line",
    "403": "the Host or Origin header names somebody else",
    "408": "the body did not come in time",
    "413": "the request is too long",
    "415": "not application/json in UTF-8, or compressed",
    "429": "too many requests a second from one address",
    "503": "too much at once, or an answer that takes too long",
}
ANSWERS = {
    "estimate": ("ledger", "largest", "more", "room", "beside"),
    "chart": ("ledger", "room"),
    "beside": ("beside",),
    "refused": ("refused",),
    "room": ("gpu", "fits", "close", "spare", "need", "used", "total"),
    "fit": ("batch", "gpu"),
    "levers": ("before", "by_kind", "tried", "levers"),
    "compare": ("equal", "phases", "kinds", "lines"),
    "diagnose": ("asked", "findings", "advice", "gpu", "gpus"),
    "sweep": ("count", "axes", "peaks", "refused"),
    "tables": ("fields", "sizes", "models", "gpus"),
}
FIGURES = ("tables", "three-layers", "cells", "growth")


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    ask: dict[str, Any] = {
        "operationId": "ask", "summary": "Ask peakmem one question",
        "description": "The same request gives the same bytes as `peakmem.web.answer.estimate_json`.",
        "requestBody": {"required": True, "content": {"application/json": {
            "schema": {"$ref": "#/components/schemas/Request"},
            "examples": {"estimate": {"value": {"model": "llama-3.1-8b", "settings": {"sequence": 4096}}}}}}},
        "responses": {"200": answer("the answer", {"$ref": "#/components/schemas/Answer"}),
                      **{status: answer(text, {"$ref": "#/components/schemas/Error"})
                         for status, text in COMMON.items()}}}
    either = answer("the answer, or a mistake in the question", {"anyOf": [
        {"$ref": "#/components/schemas/Answer"}, {"$ref": "#/components/schemas/Error"}]})
    from_page = {**ask, "operationId": "askFromThePage",
                 "summary": "The same, as the page asks: a mistake in the question has status 200, too",
                 "responses": {**ask["responses"], "200": either}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "peakmem", "version": __version__,
                 "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
                 "description": "Where the memory of a neural-network training step goes, to the byte."},
        "paths": {
            "/api/ask": {"post": ask},
            "/api/estimate": {"post": {**ask, "operationId": "askAgain", "summary": "The same by another name"}},
            "/ask": {"post": from_page},
            "/health": {"get": {"operationId": "health", "summary": "Whether the server answers", "responses": {
                "200": answer("it does", {"$ref": "#/components/schemas/Health"}), **strangers()}}},
            "/openapi.json": {"get": {"operationId": "openapi", "summary": "This document", "responses": {
                "200": answer("OpenAPI 3.1", {"type": "object"}), **strangers()}}},
        },
        "components": {"schemas": schemas()},
    }


def answer(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def strangers() -> dict[str, Any]:
    """What any path may say."""
    return {status: answer(COMMON[status], {"$ref": "#/components/schemas/Error"}) for status in ("400", "403", "429")}


def schemas() -> dict[str, Any]:
    run = {"model": {"type": "string", "description": "a preset, custom, or what a config is to be called"},
           "config": {"type": ["object", "string", "null"], "description": "the fields of a config.json, or its text"},
           "sizes": {"$ref": "#/components/schemas/Sizes"}, "settings": {"$ref": "#/components/schemas/Settings"}}
    side = closed(run)
    more: dict[str, dict[str, Any]] = {
        "estimate": {**run, "lines": {"type": "integer", "minimum": 0, "maximum": 5000},
                     "timeline": {"type": "boolean"}, "allocator": {"type": "boolean"}},
        "chart": run, "room": run, "beside": run, "refused": run, "fit": run, "levers": run,
        "sweep": {**run, "axes": {"type": "object", "minProperties": 1}},
        "compare": {"a": side, "b": side},
        "diagnose": {**run, "message": {"type": "string", "description": "a log with PyTorch's out-of-memory message"}},
    }
    asks = [closed({"ask": {"const": name}, **parts},
                   *({"estimate": (), "compare": ("ask", "a", "b"), "sweep": ("ask", "axes"),
                      "diagnose": ("ask", "message")}.get(name, ("ask",))))
            for name, parts in more.items()]
    figures = closed({"ask": {"enum": list(FIGURES)}}, "ask")
    found = [{"type": "object", "required": list(names)} for names in ANSWERS.values()]
    return {
        "Request": {"anyOf": [*asks, figures]},
        "Settings": {**closed({name: setting(row) for name, row in FIELDS.items()}), "type": ["object", "null"]},
        "Sizes": {**closed({**{name: whole(1, 10**9) for name in SIZES}, "tied": {"type": ["boolean", "string"]}}),
                  "type": ["object", "null"]},
        "Answer": {"anyOf": [*found, {"type": "object", "not": {"required": ["error"]}}]},
        "Error": closed({
            "error": {"type": "string", "description": "one line"},
            "fields": {"type": "array", "items": {"type": "string"},
                       "description": "settings and sizes that it is about, those first that are to be mended"},
            "parts": {"type": "array", "items": {"anyOf": [
                {"type": "string"}, closed({"field": {"type": "string"}}, "field")]},
                "description": "the line without flags: text, and names of settings and sizes"}}, "error"),
        "Health": {**closed({"status": {"const": "ok"}, "version": {"type": "string"}}, "status", "version")},
    }


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """An object with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False,
            **({"required": list(required)} if required else {})}


def whole(least: float, most: float) -> dict[str, Any]:
    """A whole number, or one as it is typed."""
    return {"anyOf": [{"type": "integer", "minimum": int(least), "maximum": int(most)},
                      {"type": "string", "maxLength": 30}]}


def setting(row: Any) -> dict[str, Any]:
    """A row of the field table as a schema."""
    kind, default = row["type"], row["default"]
    made: dict[str, Any]
    if row["many"]:
        made = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
        default = list(default)
    elif kind is bool:
        made = {"type": ["boolean", "string"]}
    elif kind is str:
        made = {"type": "string", **({"enum": list(row["choices"])} if row["choices"] else {})}
    elif row["values"]:
        made = {"anyOf": [{"enum": list(row["values"])}, {"type": "string", "maxLength": 30}]}
    elif kind is int:
        made = whole(row["least"], row["most"])
    else:
        made = {"anyOf": [{"type": "number", "minimum": row["least"], "maximum": row["most"]}, {"type": "string"}]}
    return {**made, "description": row["help"], "default": default}
