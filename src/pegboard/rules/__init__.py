"""Rules: who may see and use what, and the one verdict about a caller and an item."""
