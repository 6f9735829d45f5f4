"""The JSON Schema of a study file, for editors: completion, descriptions, and red lines before any command runs.

`python -m harness.study.json_schema` writes it to preregistrations/schema.json. It is generated from schema.py and
looser in one thing: where a number is due, the spellings that only our reader knows (`1_000_000`, `1.5M`) pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from harness.study.schema import Study

SCHEMA_PATH: Final = Path(__file__).parents[2] / "preregistrations" / "schema.json"
_SPELLED: Final = {"type": "string", "pattern": r"^[-+]?[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+|[kKMBT])?$"}
_NUMERIC: Final = frozenset({"type", "exclusiveMinimum", "minimum", "exclusiveMaximum", "maximum"})


def generate_json_schema() -> dict[str, Any]:
    """The schema, as draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_with_spellings(Study.model_json_schema())}


def schema_text() -> str:
    """The file's text."""
    return json.dumps(generate_json_schema(), indent=2, ensure_ascii=False) + "\n"


def _with_spellings(part: Any) -> Any:
    if isinstance(part, list):
        return [_with_spellings(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") in ("integer", "number"):
        number = {key: value for key, value in part.items() if key in _NUMERIC}
        rest = {key: value for key, value in part.items() if key not in _NUMERIC}
        return {**rest, "anyOf": [number, _SPELLED]}
    return {key: _with_spellings(value) for key, value in part.items()}


if __name__ == "__main__":
    SCHEMA_PATH.write_text(schema_text(), encoding="utf-8")
