"""Edits configuration files and keeps everything else in them as it is."""
