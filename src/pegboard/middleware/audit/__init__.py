"""The audit log: a record of every call and decision, in files whose lines form a chain."""
