"""From pydantic's errors to lines a reader can act on: where it stands, what is wrong, what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.errors import Problem, brief
from harness.study.numbers import WrittenFloat, WrittenInt
from harness.study.schema import NAME_PATTERN
from harness.study.strict_yaml import Document, KeyPath
from harness.study.suggest import did_you_mean
from harness.study.training import PERCENTAGE

_PATTERNS: Final = {
    NAME_PATTERN: "letters, digits, dot, dash and underscore, at most 80, starting with a letter or digit",
    PERCENTAGE: "a percentage such as 25%",
}
_TYPES: Final = {
    "int_type": "a whole number, such as 1_000_000, 1e6 or 1.5M",
    "int_from_float": "a whole number, such as 1_000_000, 1e6 or 1.5M",
    "float_type": "a number, such as 0.5 or 5e-4",
    "bool_type": "true or false",
    "string_type": "text, in quotes if it looks like a number or like true, false or null",
    "list_type": "a list, such as [a, b]",
    "tuple_type": "a list, such as [a, b]",
    "dict_type": "a mapping of `key: value` lines",
    "model_type": "a mapping of `key: value` lines",
    "model_attributes_type": "a mapping of `key: value` lines",
}
_BOUNDS: Final = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def shown(value: object) -> str:
    """A value as its author would recognise it."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, WrittenInt | WrittenFloat):
        return brief(value.text)
    if isinstance(value, bool):
        return str(value).lower()
    return "nothing" if value is None else repr(brief(value) if isinstance(value, str) else value)


def problems_of(error: ValidationError, document: Document, model: type[BaseModel]) -> list[Problem]:
    """One problem for each of pydantic's errors, but one only for a required key that is there misspelt."""
    details = error.errors(include_url=False)
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]

    def is_misspelt(detail: ErrorDetails) -> bool:
        beside = [str(loc[-1]) for loc in unknown if loc[:-1] == detail["loc"][:-1]]
        return detail["type"] == "missing" and bool(difflib.get_close_matches(str(detail["loc"][-1]), beside))

    return [_problem(detail, document, model) for detail in details if not is_misspelt(detail)]


def path_of(detail: ErrorDetails, value: Any) -> KeyPath:
    """The part of pydantic's location that is in the value it was given: names of union members are not."""
    path: list[str | int] = []
    for part in detail["loc"]:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            continue
        path.append(part)
    return tuple(path)


def _problem(detail: ErrorDetails, document: Document, model: type[BaseModel]) -> Problem:
    path = path_of(detail, document.value)
    kind = detail["type"]
    about_key = kind == "extra_forbidden" or detail["loc"][-1:] == ("[key]",)
    what, right = _told(detail, lambda: _known_keys(model.model_json_schema(), document, path[:-1]))
    missing = (detail["loc"][-1],) if kind == "missing" else ()
    if kind == "union_tag_not_found":
        missing = (detail["ctx"]["discriminator"].strip("'"),)
    if kind == "union_tag_invalid":
        path = (*path, detail["ctx"]["discriminator"].strip("'"))
    where = document.where(path, key=about_key or (bool(missing) and bool(path)))
    return Problem(what, right, ".".join(brief(str(part)) for part in (*path, *missing)), where)


def _told(detail: ErrorDetails, known_keys: Callable[[], Sequence[str]]) -> tuple[str, str]:
    """(what is wrong, what would be right)."""
    kind, found = detail["type"], shown(detail["input"])
    context = detail.get("ctx", {})
    told: tuple[str, str]
    match kind:
        case "extra_forbidden":
            told = "unknown key", did_you_mean(str(detail["loc"][-1]), known_keys())
        case "missing":
            told = "required key is missing", "add it"
        case "union_tag_not_found":
            wanted = context["discriminator"].strip("'")
            given = detail["input"] if isinstance(detail["input"], dict) else ()
            near = difflib.get_close_matches(wanted, map(str, given), 1)
            told = (
                (f"unknown key {near[0]}", f"did you mean {wanted}")
                if near
                else ("required key is missing", "add it")
            )
        case "union_tag_invalid":
            known = [name.strip(" '") for name in context["expected_tags"].split(",")]
            told = f"there is no {brief(str(context['tag']))!r}", did_you_mean(context["tag"], known)
        case "literal_error":
            known = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
            other_form = ", or a mapping" if detail["loc"][-1] == "(word)" else ""
            told = f"found {found}", f"{'one of: ' if len(known) > 1 else ''}{', '.join(known)}{other_form}"
        case _ if kind in _TYPES:
            told = f"found {found}", _TYPES[kind]
        case _ if kind in _BOUNDS:
            name, words = _BOUNDS[kind]
            told = f"found {found}", f"{words} {context[name]:g}"
        case "string_pattern_mismatch":
            told = f"found {found}", _PATTERNS.get(context["pattern"], f"text that matches {context['pattern']}")
        case "too_short" | "string_too_short":
            told = "empty", "give at least one"
        case _:
            what, _, right = detail["msg"].removeprefix("Value error, ").partition("; ")
            told = what, right
    return told


def _known_keys(schema: dict[str, Any], document: Document, path: KeyPath) -> list[str]:
    """Keys that may stand in the mapping at `path`, followed down the JSON schema."""
    definitions = schema.get("$defs", {})

    def keys(part: dict[str, Any], value: Any, rest: KeyPath) -> list[str]:
        if "$ref" in part:
            return keys(definitions[part["$ref"].rsplit("/", 1)[1]], value, rest)
        forms = part.get("oneOf") or part.get("anyOf")
        if forms:
            tag = part.get("discriminator", {"propertyName": "", "mapping": {}})
            chosen = tag["mapping"].get(value.get(tag["propertyName"])) if isinstance(value, dict) else None
            return [key for form in ([{"$ref": chosen}] if chosen else forms) for key in keys(form, value, rest)]
        if not rest:
            return list(part.get("properties", {}))
        below = part.get("properties", {}).get(rest[0]) or part.get("additionalProperties") or part.get("items")
        return keys(below, value[rest[0]], rest[1:]) if isinstance(below, dict) else []

    return keys(schema, document.value, path)
