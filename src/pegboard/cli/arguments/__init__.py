"""Arguments and flags that several verbs share."""
