"""The built-in middleware, and what you need to write your own."""

from __future__ import annotations

from pegboard.lazy_names import lazy_names

_HOMES = {
    "Around": "pegboard.call",
    "Audit": "pegboard.middleware.audit.audit",
    "Budget": "pegboard.middleware.limits.token_budget",
    "Cache": "pegboard.middleware.cache",
    "Call": "pegboard.call",
    "Caller": "pegboard.call",
    "ConcurrencyLimit": "pegboard.middleware.limits.call_limits",
    "Done": "pegboard.call",
    "ErrorMessage": "pegboard.middleware.error_messages",
    "ErrorMessages": "pegboard.middleware.error_messages",
    "Estimate": "pegboard.middleware.limits.token_estimate",
    "EstimateTally": "pegboard.middleware.limits.token_estimate",
    "Handler": "pegboard.call",
    "History": "pegboard.middleware.observability.history",
    "HelperProcess": "pegboard.helper_process",
    "InputRequired": "pegboard.call",
    "KeptResults": "pegboard.middleware.limits.kept_results",
    "Logging": "pegboard.middleware.observability.call_log",
    "MemoryRates": "pegboard.middleware.limits.rate_limit",
    "Metrics": "pegboard.middleware.observability.metrics",
    "Middleware": "pegboard.hooks.middleware",
    "Observation": "pegboard.hooks.observation",
    "Question": "pegboard.call",
    "RateLimit": "pegboard.middleware.limits.rate_limit",
    "RateStore": "pegboard.middleware.limits.rate_limit",
    "RedisRates": "pegboard.middleware.limits.redis_rates",
    "Reply": "pegboard.call",
    "ResponseModes": "pegboard.middleware.limits.token_budget",
    "Retry": "pegboard.middleware.retry",
    "Subscribed": "pegboard.call",
    "Suggestion": "pegboard.middleware.suggestions",
    "Suggestions": "pegboard.middleware.suggestions",
    "TaskStarted": "pegboard.call",
    "Timeout": "pegboard.middleware.limits.call_limits",
    "Timing": "pegboard.middleware.observability.timing",
    "TokenBudget": "pegboard.middleware.limits.token_budget",
    "TokenCount": "pegboard.middleware.observability.token_count",
    "Tracing": "pegboard.middleware.observability.tracing",
    "answer": "pegboard.middleware.answer",
    "count_tokens": "pegboard.middleware.observability.token_count",
    "estimate_tokens": "pegboard.middleware.observability.token_count",
    "mask": "pegboard.middleware.observability.masking",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
