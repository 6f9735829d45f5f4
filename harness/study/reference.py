"""The reference of the study file, for people: docs/study-file.md below its marker line, made from the schema.

`python -m harness.study.reference` rewrites that part and leaves what stands above the marker, which is written by
hand. Every text comes from a docstring of schema.py, of a task's or an arm's parameters, or of claims.py; ranges
and defaults come from the JSON Schema, so nothing is said here that the reader of study files does not do.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness.study import claims
from harness.study.schema import Study

REFERENCE_PATH: Final = Path(__file__).parents[2] / "docs" / "study-file.md"
MARKER: Final = "<!-- below: written by `python -m harness.study.reference` from the docstrings of the schema -->\n"
_WIDTH: Final = 118
_SHARED: Final = {"TrainingSpec": "training", "PoolSizes": "task.pool", "PoolSeeds": "task.seeds"}
"""Mappings whose section is named by where they stand, not by the first place that leads to them."""

Part = dict[str, Any]
"""A part of a JSON Schema."""


def reference_text() -> str:
    """The whole page: its head as it is in the file, then one section for each mapping of a study file."""
    head, _, _ = REFERENCE_PATH.read_text(encoding="utf-8").partition(MARKER)
    return head + MARKER + "\n" + generate_reference()


def generate_reference() -> str:
    """The generated part, as Markdown."""
    schema = Study.model_json_schema()
    return "\n".join(_Reference(schema).sections())


class _Reference:
    """One walk over the schema: a section for each mapping, in the order in which a study file meets them."""

    def __init__(self, schema: Part):
        self._root = schema
        self._definitions: dict[str, Part] = schema["$defs"]
        self._titles: dict[str, str] = {}

    def sections(self) -> Iterator[str]:
        self._name_sections(self._root, "")
        yield from self._section("The keys of a study", self._root)
        for name, title in self._titles.items():
            yield from self._section(f"`{title}`", self._definitions[name])
            if name == "ClaimSpec":
                yield from self._grammar()

    def _name_sections(self, part: Part, path: str) -> None:
        """Gives each mapping below `part` its title: the path of keys that leads to it."""
        for key, value in part["properties"].items():
            here = f"{path}.{key}" if path else key
            for name, tag in _references(value):
                if name not in self._titles:
                    self._titles[name] = _SHARED.get(name, f"{here}: {tag}" if tag else here)
                    self._name_sections(self._definitions[name], here)

    def _section(self, title: str, part: Part) -> Iterator[str]:
        yield f"## {title}\n"
        yield _wrapped(part["description"]) + "\n"
        required = part.get("required", [])
        for key, value in sorted(part["properties"].items(), key=lambda member: "const" not in member[1]):
            yield self._line(key, value, key in required)
        yield ""

    def _line(self, key: str, value: Part, required: bool) -> str:
        form = self._form(value)
        default = value.get("default", {})
        if required:
            presence = "required"
        else:  # what a mapping holds by default is in its own section
            presence = "optional" if isinstance(default, dict) else f"default {_spelled(default)}"
        return _wrapped(f"- `{key}` ({form}; {presence}): {value['description']}", indent="  ")

    def _form(self, part: Part) -> str:
        """What may stand there, in words."""
        match part:
            case {"$ref": to}:
                form = self._link(to)
            case {"discriminator": {"propertyName": key, "mapping": by_tag}}:
                forms = ", ".join(self._link(to, tag) for tag, to in by_tag.items())
                form = f"mapping whose `{key}` is one of {forms}"
            case {"oneOf": choices} | {"anyOf": choices}:
                form = ", or ".join(self._form(choice) for choice in choices if choice.get("type") != "null")
            case {"type": "array"}:
                items = self._form(part["items"] if "items" in part else part["prefixItems"][0])
                several = items.replace("number", "numbers", 1)
                form = f"list, each {items}" if items.startswith("one of") else f"list of {several}"
            case {"type": "object", "additionalProperties": dict(named)}:
                form = f"mapping of names, each to a {self._form(named)}"
            case _:
                form = _plain_form(part)
        return form

    def _link(self, reference: str, text: str = "") -> str:
        title = self._titles[_name(reference)]
        return f"[{text or title}](#{_anchor(title)})"

    def _grammar(self) -> Iterator[str]:
        lines = (claims.__doc__ or "").splitlines()
        block = "\n".join(line for line in lines if line.startswith("    ") or not line).strip("\n")
        yield f"```text\n{textwrap.dedent(block)}\n```\n"


def _plain_form(part: Part) -> str:
    match part:
        case {"const": word}:
            form = f"`{word}`"
        case {"enum": words}:
            form = "one of " + ", ".join(f"`{word}`" for word in words)
        case {"type": "integer" | "number" as kind}:
            form = ("whole number" if kind == "integer" else "number") + _range(part)
        case _:
            form = {"string": "text", "boolean": "true or false", "object": "mapping"}[part["type"]]
    return form


def _references(part: Any) -> Iterator[tuple[str, str]]:
    """The definitions that a property leads to, each with the tag that chooses it, empty where there is no choice."""
    if isinstance(part, list):
        for item in part:
            yield from _references(item)
    elif isinstance(part, dict) and "discriminator" in part:
        yield from ((_name(to), tag) for tag, to in part["discriminator"]["mapping"].items())
    elif isinstance(part, dict) and "$ref" in part:
        yield _name(part["$ref"]), ""
    elif isinstance(part, dict):
        for key in ("oneOf", "anyOf", "items", "additionalProperties"):
            yield from _references(part.get(key))


def _name(reference: str) -> str:
    return reference.rsplit("/", 1)[1]


def _anchor(title: str) -> str:
    """As GitHub makes it of a heading."""
    return "".join(c for c in title.lower() if c.isalnum() or c in " -_").replace(" ", "-")


def _range(part: Part) -> str:
    words = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
    told = [f"{word} {_spelled(part[key])}" for key, word in words.items() if key in part]
    return " " + " and ".join(told) if told else ""


def _spelled(value: Any) -> str:
    """A value as a study file would write it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, value))}]"
    if isinstance(value, bool) or value is None or value == "":
        return {True: "true", False: "false", None: "none", "": "empty"}[value]
    if isinstance(value, int):
        return f"{value:_}"
    return repr(value).removesuffix(".0").replace("e-0", "e-") if isinstance(value, float) else f"`{value}`"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    REFERENCE_PATH.write_text(reference_text(), encoding="utf-8")
