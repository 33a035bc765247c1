"""The raw message that explicit tools take and may return."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType

from pegboard.binding.conversion import BindingProblem, convert, describe_problems, load_pydantic
from pegboard.call import Json, RequestId
from pegboard.errors import InvalidArguments

T = TypeVar("T")


class JsonRpcMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON-RPC message as values: a request has `method`, an answer has `result` or `error`.

    The message a tool receives carries the arguments of its call as `params`, checked and repaired.
    """

    id: RequestId | None = None
    method: str = ""
    params: Json = UNSET
    result: Json = UNSET
    error: Json | UnsetType = UNSET

    def params_as(self, wanted: type[T]) -> T:
        """The params as a dataclass, struct, TypedDict, attrs class or pydantic model of the author's."""
        params = {} if self.params is UNSET else self.params
        try:
            if hasattr(wanted, "__pydantic_validator__"):
                model: T = load_pydantic(wanted, strict=False)(params)
                return model
            value: T = convert(params, wanted)
            return value
        except BindingProblem as problem:
            errors = describe_problems(problem, params)
            told = "; ".join(error.message for error in errors)
            raise InvalidArguments(f"The arguments do not fit: {told}", errors) from problem

    def get(self, name: str, default: Json = None) -> Json:
        """One of the params by its name."""
        return self.params.get(name, default) if isinstance(self.params, dict) else default


class ToolResponse:
    """Answers to a `JsonRpcMessage`."""

    @staticmethod
    def success(request_id: RequestId | None, value: Any = None) -> JsonRpcMessage:
        """The call went well; a `value` that is not a tool result by itself is told like a plain return value."""
        return JsonRpcMessage(id=request_id, result=value)

    @staticmethod
    def error(request_id: RequestId | None, code: int, message: str, data: Json = None) -> JsonRpcMessage:
        """The call is answered with a JSON-RPC error."""
        error = {"code": code, "message": message}
        return JsonRpcMessage(id=request_id, error=error if data is None else {**error, "data": data})
