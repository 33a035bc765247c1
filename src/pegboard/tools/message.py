"""The messages that tools may take and return: raw, or with typed arguments."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType

from pegboard.binding.conversion import BindingProblem, convert, describe_problems, load_pydantic
from pegboard.call import Json, RequestId
from pegboard.errors import InvalidArguments

T = TypeVar("T")


class JsonRpcMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON-RPC message: a request has `id` and `method`, a response has `id` and `result` or `error`.

    The message that a tool receives has the arguments of its call as `params`, checked and repaired.
    """

    id: RequestId | None = None
    method: str = ""
    params: Any = UNSET
    result: Any = UNSET
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
            reasons = "; ".join(error.message for error in errors)
            raise InvalidArguments(f"The arguments do not fit: {reasons}", errors) from problem

    def get(self, name: str, default: Any = None) -> Any:
        """One of the params by name."""
        return self.params.get(name, default) if isinstance(self.params, dict) else default


class Request(JsonRpcMessage, Generic[T], frozen=True, kw_only=True):
    """A request whose arguments are an object of a type of the author's: `def add(request: Request[Numbers])`.

    `args` is that object; the fields of its type are the arguments, and their schema. `id`, `method` and `params` are
    those of the request; `result` and `error` belong to responses.
    """

    args: T


class ToolResponse:
    """Responses to a `JsonRpcMessage`."""

    @staticmethod
    def success(request_id: RequestId | None, value: Any = None) -> JsonRpcMessage:
        """A successful response; a `value` that is not a tool result is converted like a return value."""
        return JsonRpcMessage(id=request_id, result=value)

    @staticmethod
    def error(request_id: RequestId | None, code: int, message: str, data: Json = None) -> JsonRpcMessage:
        """Return a JSON-RPC error response to `request_id`, with `code`, `message` and, unless it is None, `data`."""
        error = {"code": code, "message": message}
        return JsonRpcMessage(id=request_id, error=error if data is None else {**error, "data": data})
