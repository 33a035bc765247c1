"""Questions that a running tool asks its caller: elicitation, sampling and roots."""
