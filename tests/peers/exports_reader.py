"""Reads the definitions of `pegboard export` with the packages of the providers: `exports_reader.py FOLDER`.

The folder has one file for each format. The answer is what each package understood: the arguments of the tool `book`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
from google.genai import types as gemini
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from ollama import Tool
from pydantic import TypeAdapter


def main(folder: Path) -> dict[str, Any]:
    files = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    return {form: sorted(READERS[form](definitions)) for form, definitions in files.items()}


def _openai(definitions: Any) -> Any:
    read = TypeAdapter(list[openai.types.chat.ChatCompletionToolParam]).validate_python(definitions, extra="forbid")
    return read[0]["function"]["parameters"]["properties"]


def _openai_responses(definitions: Any) -> Any:
    read = TypeAdapter(list[openai.types.responses.FunctionToolParam]).validate_python(definitions, extra="forbid")
    return read[0]["parameters"]["properties"]


def _anthropic(definitions: Any) -> Any:
    read = TypeAdapter(list[anthropic.types.ToolParam]).validate_python(definitions)
    return read[0]["input_schema"]["properties"]


def _gemini(definitions: Any) -> Any:
    # Its models reject unknown keys and unknown types of a schema.
    read = gemini.Tool.model_validate({"functionDeclarations": definitions})
    assert read.function_declarations[0].parameters.properties["day"].type is gemini.Type.STRING
    return read.function_declarations[0].parameters.properties


def _ollama(definitions: Any) -> Any:
    read = [Tool.model_validate(definition) for definition in definitions]
    return read[0].function.parameters.properties


def _langchain(definitions: Any) -> Any:
    def answer(**arguments: Any) -> Any:
        return arguments

    tools = [StructuredTool.from_function(func=answer, **definition) for definition in definitions]
    # A tool of LangChain runs with its arguments, and goes from there to a model.
    assert tools[1].invoke({"text": "hello"}) == {"text": "hello"}
    return convert_to_openai_tool(tools[0])["function"]["parameters"]["properties"]


READERS = {
    "openai": _openai,
    "openai-loose": _openai,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
    "langchain": _langchain,
}

if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
