"""What people ask for in their own words, and the tools of real servers that do it.

`real_tools.json` has the tools of fourteen servers from npm and PyPI: their names, and the words of their texts in
alphabetical order, which is all that the ranking reads. The questions were written before the ranking was made to tell
reading from changing. Where several tools would do, any of them counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pegboard.gateway.modes.tool_directory import DirectoryEntry
from pegboard.tools.qualified_names import ToolName

REAL_QUESTIONS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    # github
    ("open a pull request", ("github/create_pull_request",)),
    ("file a bug report in the repo", ("github/create_issue",)),
    ("make a new repository", ("github/create_repository",)),
    ("close the issue", ("github/update_issue",)),
    ("leave a comment on an issue", ("github/add_issue_comment",)),
    ("show me the pull request", ("github/get_pull_request",)),
    ("approve the pull request", ("github/create_pull_request_review",)),
    ("add a file to the repository on github", ("github/create_or_update_file", "github/push_files")),
    ("did the checks of the pull request pass", ("github/get_pull_request_status",)),
    ("find a user by name on github", ("github/search_users",)),
    # git
    ("make a new branch", ("git/git_create_branch", "github/create_branch")),
    ("save my work as a commit", ("git/git_commit",)),
    ("stage a file", ("git/git_add",)),
    ("switch to another branch", ("git/git_checkout",)),
    ("what has changed since the last commit", ("git/git_diff", "git/git_diff_unstaged", "git/git_status")),
    # files
    ("make a folder", ("filesystem/create_directory",)),
    ("rename a file", ("filesystem/move_file",)),
    ("change a line in a file", ("filesystem/edit_file",)),
    ("how large are the files in this folder", ("filesystem/list_directory_with_sizes", "filesystem/get_file_info")),
    ("show an image file", ("filesystem/read_media_file",)),
    # memory
    ("remember a new fact about a person", ("memory/add_observations", "memory/create_entities")),
    ("forget what you know about this entity", ("memory/delete_entities", "memory/delete_observations")),
    # browser
    ("go to a web page", ("playwright/browser_navigate", "puppeteer/puppeteer_navigate", "fetch/fetch")),
    ("take a picture of the page", ("playwright/browser_take_screenshot", "puppeteer/puppeteer_screenshot")),
    ("fill in the form", ("playwright/browser_fill_form", "puppeteer/puppeteer_fill")),
    ("open a new tab", ("playwright/browser_tabs",)),
    ("attach a file to the form on the page", ("playwright/browser_file_upload", "playwright/browser_drop")),
    # sqlite
    ("insert a row into the database", ("sqlite/write_query",)),
    ("add a table to the database", ("sqlite/create_table",)),
    ("which columns does the table have", ("sqlite/describe_table",)),
    # slack
    ("send a message to the team channel", ("slack/slack_post_message",)),
    ("react to a message with thumbs up", ("slack/slack_add_reaction",)),
    ("read the latest messages of a channel", ("slack/slack_get_channel_history",)),
    # maps, time
    ("how do I get from the station to the airport", ("maps/maps_directions", "maps/maps_distance_matrix")),
    ("what time is it in Tokyo", ("time/get_current_time",)),
)


def real_entries() -> Iterator[DirectoryEntry]:
    """The tools, as a gateway lists them."""
    servers = json.loads(Path(__file__).with_name("real_tools.json").read_text())
    for server, tools in servers.items():
        for name, told in tools.items():
            place = ToolName("main", server, name)
            arguments = {argument: {"description": words} for argument, words in told["arguments"].items()}
            definition = {
                "name": place.qualified,
                "title": told.get("title", ""),
                "description": told["words"],
                "inputSchema": {"type": "object", "properties": arguments},
                "annotations": {"readOnlyHint": told["readOnly"]} if "readOnly" in told else {},
            }
            yield DirectoryEntry(place.qualified, place, definition, ())
