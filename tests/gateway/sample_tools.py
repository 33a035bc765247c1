"""Tools as eighteen everyday servers define them, for trying search, modes and their costs on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pegboard.gateway.modes.tool_directory import Directory, DirectoryEntry
from pegboard.tools.qualified_names import ToolName

# toolbox → server → tool → (description, argument → description); a "?" ends the names of optional arguments.
SHED: Final[dict[str, dict[str, dict[str, tuple[str, dict[str, str]]]]]] = {
    "code": {
        "filesystem": {
            "read_file": (
                "Return the complete text of one file. Fails for anything outside the permitted directories.",
                {"path": "Location of the file", "head?": "Only the first N lines", "tail?": "Only the last N lines"},
            ),
            "read_multiple_files": (
                "Return the text of several files at once; a file that cannot be read does not stop the others.",
                {"paths": "Locations of the files"},
            ),
            "read_media_file": (
                "Return an image or audio file as base64 together with its MIME type.",
                {"path": "Location of the file"},
            ),
            "write_file": (
                "Create a file or overwrite an existing one with new content.",
                {"path": "Where to write", "content": "The whole new text"},
            ),
            "edit_file": (
                "Replace exact passages of a text file and show the difference as a patch.",
                {"path": "File to change", "edits": "Old and new text of each passage", "dry_run?": "Preview only"},
            ),
            "create_directory": (
                "Make a new directory, with its parents where they do not exist.",
                {"path": "Directory to make"},
            ),
            "list_directory": (
                "Show the entries of a directory, files and subdirectories marked as such.",
                {"path": "Directory to look into"},
            ),
            "directory_tree": (
                "Show a directory and everything below it as a nested JSON structure.",
                {"path": "Top of the tree", "exclude?": "Glob patterns to leave out"},
            ),
            "move_file": (
                "Move or rename a file or directory; the destination must not exist.",
                {"source": "What to move", "destination": "Where to"},
            ),
            "copy_file": ("Duplicate a file under another path.", {"source": "Original", "destination": "Copy"}),
            "delete_file": ("Remove a file for good.", {"path": "File to remove"}),
            "search_files": (
                "Find files and directories below a path whose names match a glob pattern.",
                {"path": "Where to begin", "pattern": "Glob, such as **/*.py", "exclude?": "Patterns to skip"},
            ),
            "grep": (
                "Look for a regular expression in the text of all files below a path.",
                {"path": "Where to begin", "pattern": "Regular expression", "ignore_case?": "Case does not matter"},
            ),
            "get_file_info": (
                "Size, permissions and the times of creation and last modification of a file.",
                {"path": "File or directory"},
            ),
        },
        "git": {
            "git_status": ("Show the state of the working tree.", {"repo_path": "Path of the repository"}),
            "git_diff_unstaged": (
                "Show changes in the working directory that are not staged yet.",
                {"repo_path": "Path of the repository", "context_lines?": "Lines around each change"},
            ),
            "git_diff_staged": ("Show changes that are staged for commit.", {"repo_path": "Path of the repository"}),
            "git_diff": (
                "Compare a branch or commit with another.",
                {"repo_path": "Path of the repository", "target": "Branch or commit to compare with"},
            ),
            "git_commit": (
                "Record the staged changes in the repository.",
                {"repo_path": "Path of the repository", "message": "Commit message"},
            ),
            "git_add": (
                "Add file contents to the staging area.",
                {"repo_path": "Path of the repository", "files": "Files to stage"},
            ),
            "git_reset": ("Unstage everything that is staged.", {"repo_path": "Path of the repository"}),
            "git_log": (
                "Show the commit history.",
                {"repo_path": "Path of the repository", "max_count?": "How many commits", "since?": "Oldest date"},
            ),
            "git_blame": (
                "Show who last changed each line of a file, and in which commit.",
                {"repo_path": "Path of the repository", "file": "File to annotate"},
            ),
            "git_create_branch": (
                "Create a branch from another one or from HEAD.",
                {"repo_path": "Path of the repository", "branch_name": "New branch", "base?": "Where it starts"},
            ),
            "git_checkout": (
                "Switch to another branch.",
                {"repo_path": "Path of the repository", "branch_name": "Branch to switch to"},
            ),
            "git_stash": (
                "Put uncommitted changes aside, or bring them back.",
                {"repo_path": "Path of the repository", "action": "push, pop or list"},
            ),
            "git_show": ("Show the contents of one commit.", {"repo_path": "Path", "revision": "Commit to show"}),
        },
        "forge": {
            "create_repository": (
                "Create a new repository in your account or an organization.",
                {"name": "Repository name", "private?": "Visible to you only", "description?": "What it is for"},
            ),
            "fork_repository": ("Fork a repository to your account.", {"owner": "Owner", "repo": "Repository"}),
            "search_repositories": ("Find repositories by topic, language or stars.", {"query": "Search syntax"}),
            "search_code": (
                "Search source code across all repositories you can see.",
                {"query": "Search syntax", "page?": "Page of results"},
            ),
            "get_file_contents": (
                "Get a file or directory listing of a hosted repository at a given ref.",
                {"owner": "Owner", "repo": "Repository", "path": "Path in the repository", "ref?": "Branch or tag"},
            ),
            "push_files": (
                "Push several files to a hosted repository in a single commit.",
                {"owner": "Owner", "repo": "Repository", "branch": "Branch", "files": "Paths and contents"},
            ),
            "create_issue": (
                "Open a new issue in a repository.",
                {"owner": "Owner", "repo": "Repository", "title": "Title", "body?": "Text", "labels?": "Labels"},
            ),
            "list_issues": (
                "List the issues of a repository, filtered by state, label or assignee.",
                {"owner": "Owner", "repo": "Repository", "state?": "open or closed", "labels?": "Labels"},
            ),
            "add_issue_comment": (
                "Comment on an issue or pull request.",
                {"owner": "Owner", "repo": "Repository", "issue_number": "Number", "body": "Text"},
            ),
            "create_pull_request": (
                "Open a pull request that asks to merge one branch into another.",
                {"owner": "Owner", "repo": "Repository", "title": "Title", "head": "From", "base": "Into"},
            ),
            "merge_pull_request": (
                "Merge a pull request.",
                {"owner": "Owner", "repo": "Repository", "pull_number": "Number", "method?": "merge or squash"},
            ),
            "get_pull_request_files": (
                "List the files that a pull request changes.",
                {"owner": "Owner", "repo": "Repository", "pull_number": "Number"},
            ),
            "create_pull_request_review": (
                "Review a pull request: approve it, comment, or request changes.",
                {"owner": "Owner", "repo": "Repository", "pull_number": "Number", "event": "Verdict", "body": "Text"},
            ),
            "list_workflow_runs": (
                "Runs of the continuous integration workflows of a repository, with their conclusions.",
                {"owner": "Owner", "repo": "Repository", "status?": "success, failure or in_progress"},
            ),
            "get_job_logs": (
                "Download the log of a workflow job.",
                {"owner": "Owner", "repo": "Repository", "job_id": "Job"},
            ),
            "create_release": (
                "Publish a release with notes for a tag.",
                {"owner": "Owner", "repo": "Repository", "tag": "Tag", "notes?": "Release notes"},
            ),
        },
        "postgres": {
            "query": ("Run a read-only SQL statement and return its rows.", {"sql": "SELECT statement"}),
            "execute": (
                "Run a SQL statement that changes data: INSERT, UPDATE or DELETE.",
                {"sql": "Statement", "parameters?": "Values for placeholders"},
            ),
            "list_tables": ("List the tables of a schema.", {"schema?": "Schema, public if not given"}),
            "describe_table": (
                "Columns, types, keys and constraints of a table.",
                {"table": "Table name", "schema?": "Schema"},
            ),
            "list_schemas": ("List the schemas of the database.", {}),
            "explain_query": (
                "Show the execution plan of a query and what each step costs.",
                {"sql": "Statement", "analyze?": "Really run it"},
            ),
            "list_indexes": ("List the indexes of a table with their sizes.", {"table": "Table name"}),
            "create_index": (
                "Create an index on columns of a table.",
                {"table": "Table name", "columns": "Columns", "unique?": "No two rows alike"},
            ),
            "slow_queries": (
                "The statements that took most time, from pg_stat_statements.",
                {"limit?": "How many"},
            ),
            "active_connections": ("Sessions connected to the database and what they are running.", {}),
            "kill_connection": ("Terminate the session of a backend.", {"pid": "Process id of the backend"}),
            "backup_database": ("Dump the database to a file.", {"destination": "File", "format?": "plain or custom"}),
        },
        "kubernetes": {
            "list_pods": (
                "List pods with phase, restarts and age.",
                {"namespace?": "Namespace", "selector?": "Label selector"},
            ),
            "get_pod_logs": (
                "Get what a container of a pod has written to its output.",
                {"namespace": "Namespace", "pod": "Pod", "container?": "Container", "previous?": "Of the crashed one"},
            ),
            "exec_in_pod": (
                "Run a command inside a running container.",
                {"namespace": "Namespace", "pod": "Pod", "command": "Command and arguments"},
            ),
            "apply_manifest": ("Create or update resources from YAML.", {"manifest": "YAML text"}),
            "delete_resource": (
                "Delete a resource of the cluster.",
                {"kind": "Kind", "name": "Name", "namespace?": "Namespace"},
            ),
            "scale_deployment": (
                "Set the number of replicas of a deployment.",
                {"namespace": "Namespace", "deployment": "Deployment", "replicas": "How many"},
            ),
            "rollout_restart": (
                "Restart the pods of a deployment one after the other.",
                {"namespace": "Namespace", "deployment": "Deployment"},
            ),
            "rollback_deployment": (
                "Return a deployment to an earlier revision.",
                {"namespace": "Namespace", "deployment": "Deployment", "revision?": "Which one"},
            ),
            "describe_resource": (
                "Details, conditions and recent events of one resource.",
                {"kind": "Kind", "name": "Name", "namespace?": "Namespace"},
            ),
            "get_events": ("Recent events of a namespace, warnings first.", {"namespace?": "Namespace"}),
            "top_nodes": ("CPU and memory use of the nodes of the cluster.", {}),
            "port_forward": (
                "Forward a local port to a port of a pod or service.",
                {"namespace": "Namespace", "target": "Pod or service", "port": "Port"},
            ),
            "list_namespaces": ("List the namespaces of the cluster.", {}),
        },
    },
    "office": {
        "chat": {
            "list_channels": ("List the public channels of the workspace.", {"cursor?": "Next page"}),
            "post_message": (
                "Post a message to a channel.",
                {"channel_id": "Channel", "text": "Message"},
            ),
            "send_direct_message": (
                "Send a private message to one person.",
                {"user_id": "Recipient", "text": "Message"},
            ),
            "reply_to_thread": (
                "Answer in the thread of a message.",
                {"channel_id": "Channel", "thread_ts": "Timestamp of the parent", "text": "Reply"},
            ),
            "add_reaction": (
                "React to a message with an emoji.",
                {"channel_id": "Channel", "timestamp": "Message", "reaction": "Name of the emoji"},
            ),
            "get_channel_history": (
                "The latest messages of a channel.",
                {"channel_id": "Channel", "limit?": "How many"},
            ),
            "search_messages": ("Find messages by words, author or date.", {"query": "What to look for"}),
            "get_users": ("List the members of the workspace with their profiles.", {"cursor?": "Next page"}),
            "set_status": (
                "Set your status text, with an emoji and an expiry.",
                {"text": "Status", "emoji?": "Emoji", "until?": "When it ends"},
            ),
            "invite_to_channel": ("Invite people to a channel.", {"channel_id": "Channel", "user_ids": "People"}),
            "upload_attachment": (
                "Share a file in a channel.",
                {"channel_id": "Channel", "filename": "Name", "content": "Data"},
            ),
        },
        "calendar": {
            "list_events": (
                "List events of a calendar between two moments.",
                {"calendar_id?": "Calendar", "start": "From", "end": "To"},
            ),
            "create_event": (
                "Schedule a meeting or appointment and invite attendees.",
                {"title": "Subject", "start": "Begins", "end": "Ends", "attendees?": "Email addresses"},
            ),
            "update_event": (
                "Change time, place, title or attendees of an event.",
                {"event_id": "Event", "start?": "Begins", "end?": "Ends", "location?": "Place"},
            ),
            "delete_event": ("Cancel an event and notify its attendees.", {"event_id": "Event"}),
            "find_free_slots": (
                "Find times at which all participants are available.",
                {"participants": "Email addresses", "duration": "Minutes", "window": "Between which days"},
            ),
            "respond_to_invitation": (
                "Accept, decline or tentatively accept an invitation.",
                {"event_id": "Event", "response": "Your answer"},
            ),
            "list_calendars": ("List the calendars you can see.", {}),
            "set_reminder": (
                "Add a reminder to an event.",
                {"event_id": "Event", "minutes_before": "How long before"},
            ),
            "book_room": (
                "Reserve a conference room.",
                {"room": "Room", "start": "Begins", "end": "Ends"},
            ),
        },
        "mail": {
            "send_email": (
                "Send an email, with attachments if there are any.",
                {"to": "Recipients", "subject": "Subject line", "body": "Text", "attachments?": "Files"},
            ),
            "search_emails": (
                "Search the mailbox by sender, subject, date or words.",
                {"query": "Search terms", "limit?": "How many"},
            ),
            "read_email": ("Return headers, text and attachments of an email.", {"message_id": "Email"}),
            "draft_email": (
                "Save a draft without sending it.",
                {"to": "Recipients", "subject": "Subject", "body": "Text"},
            ),
            "reply_to_email": ("Answer an email, quoting it.", {"message_id": "Email", "body": "Text"}),
            "forward_email": ("Forward an email to others.", {"message_id": "Email", "to": "Recipients"}),
            "archive_email": ("Move an email out of the inbox.", {"message_id": "Email"}),
            "label_email": ("Put labels on an email, or take them off.", {"message_id": "Email", "labels": "Labels"}),
            "unsubscribe": ("Leave the mailing list that an email came from.", {"message_id": "Email"}),
            "set_out_of_office": (
                "Turn the automatic reply for absences on or off.",
                {"enabled": "On or off", "message?": "Text", "until?": "Last day"},
            ),
        },
        "notes": {
            "create_page": (
                "Create a page under a parent page or in a database.",
                {"parent_id": "Parent", "title": "Title", "content?": "Markdown"},
            ),
            "get_page": ("Retrieve a page with its properties and blocks.", {"page_id": "Page"}),
            "append_blocks": (
                "Append paragraphs, lists or headings to a page.",
                {"page_id": "Page", "blocks": "Blocks"},
            ),
            "search_workspace": ("Search pages and databases by title.", {"query": "Title words"}),
            "query_database": (
                "Filter and sort the entries of a database.",
                {"database_id": "Database", "filter?": "Conditions", "sorts?": "Order"},
            ),
            "update_page_properties": ("Set properties of a page.", {"page_id": "Page", "properties": "New values"}),
            "archive_page": ("Move a page to the trash.", {"page_id": "Page"}),
            "list_comments": ("Comments on a page or block.", {"page_id": "Page"}),
            "export_page_pdf": ("Export a page as PDF.", {"page_id": "Page"}),
        },
        "tracker": {
            "create_ticket": (
                "Create a ticket in a project: bug, task or story.",
                {"project": "Project key", "type": "Kind of ticket", "summary": "Short text", "description?": "Text"},
            ),
            "search_tickets": (
                "Find tickets with a JQL expression.",
                {"jql": "Expression", "fields?": "What to return"},
            ),
            "get_ticket": ("Fields, comments and history of a ticket.", {"key": "Ticket key"}),
            "transition_ticket": (
                "Move a ticket to another status of its workflow.",
                {"key": "Ticket key", "status": "Such as In Progress or Done"},
            ),
            "assign_ticket": ("Set the assignee of a ticket.", {"key": "Ticket key", "user": "Person"}),
            "log_work": (
                "Record time spent on a ticket.",
                {"key": "Ticket key", "hours": "How long", "comment?": "On what"},
            ),
            "link_tickets": (
                "Connect two tickets: blocks, duplicates or relates to.",
                {"from_key": "One", "to_key": "Other", "relation": "Kind of link"},
            ),
            "list_sprints": ("Sprints of a board with their dates and goals.", {"board_id": "Board"}),
            "move_to_sprint": ("Put tickets into a sprint.", {"sprint_id": "Sprint", "keys": "Ticket keys"}),
            "list_projects": ("Projects you have access to.", {}),
        },
    },
    "web": {
        "browser": {
            "navigate": ("Go to a URL in the current tab.", {"url": "Address"}),
            "click": ("Click an element of the page.", {"selector": "CSS selector"}),
            "type_text": ("Type text into an input field.", {"selector": "CSS selector", "text": "What to type"}),
            "fill_form": ("Fill in several fields of a form at once.", {"fields": "Selector and value of each field"}),
            "take_screenshot": (
                "Capture the page or an element as PNG.",
                {"selector?": "Element", "full_page?": "All of the page"},
            ),
            "get_page_text": ("Extract the readable text of the current page.", {}),
            "evaluate_script": ("Run JavaScript in the page.", {"script": "Code"}),
            "go_back": ("Return to the previous page of the tab's history.", {}),
            "wait_for": ("Wait until text appears or disappears.", {"text": "Text", "timeout?": "Seconds"}),
            "list_tabs": ("List open tabs.", {}),
            "select_option": ("Choose an option of a dropdown.", {"selector": "CSS selector", "value": "Option"}),
            "console_messages": ("Messages written to the browser's console.", {"level?": "error, warning or all"}),
            "network_requests": ("Network requests since the page was loaded, with status codes.", {}),
            "upload_file": ("Choose files for a file input.", {"selector": "CSS selector", "paths": "Files"}),
            "save_pdf": ("Print the page to PDF.", {"path?": "Where to save"}),
        },
        "websearch": {
            "web_search": (
                "Search the web and return titles, links and snippets.",
                {"query": "Words", "count?": "How many"},
            ),
            "image_search": ("Search the web for pictures.", {"query": "Words"}),
            "news_search": ("Recent articles of news sites on a topic.", {"query": "Topic", "days?": "How recent"}),
            "fetch_url": (
                "Fetch a web page and convert it to markdown.",
                {"url": "Address", "max_length?": "Characters to return"},
            ),
            "summarize_url": ("Summarize the content of a web page.", {"url": "Address"}),
        },
        "maps": {
            "geocode": ("Convert an address into coordinates.", {"address": "Street, town, country"}),
            "reverse_geocode": (
                "Convert coordinates into an address.",
                {"latitude": "Degrees north", "longitude": "Degrees east"},
            ),
            "search_places": (
                "Find restaurants, shops and other places near a point.",
                {"query": "What", "location?": "Around where", "radius?": "Meters"},
            ),
            "place_details": ("Opening hours, phone, ratings and reviews of a place.", {"place_id": "Place"}),
            "directions": (
                "Route between two points with turn-by-turn steps.",
                {"origin": "From", "destination": "To", "mode?": "driving, walking, bicycling or transit"},
            ),
            "distance_matrix": (
                "Travel distance and duration between many origins and destinations.",
                {"origins": "From", "destinations": "To"},
            ),
            "elevation": ("Height above sea level of locations.", {"locations": "Coordinates"}),
        },
        "weather": {
            "current_conditions": (
                "Temperature, humidity, wind and sky at a location now.",
                {"location": "City or coordinates"},
            ),
            "forecast": ("Weather of the next days.", {"location": "City or coordinates", "days?": "How many"}),
            "alerts": ("Severe weather warnings in force for a region.", {"region": "State or country"}),
            "air_quality": ("Pollution index and pollen.", {"location": "City or coordinates"}),
            "sun_times": ("Sunrise and sunset on a date.", {"location": "City or coordinates", "date?": "Day"}),
        },
    },
    "business": {
        "payments": {
            "create_customer": ("Create a customer record.", {"email": "Email", "name?": "Name"}),
            "list_customers": ("List customers, newest first.", {"email?": "Only with this address"}),
            "create_payment_link": (
                "Create a shareable link at which a customer can pay for a product.",
                {"price": "Price id", "quantity": "How many"},
            ),
            "create_invoice": (
                "Create a draft invoice for a customer.",
                {"customer": "Customer", "days_until_due?": "Days"},
            ),
            "finalize_invoice": ("Finalize an invoice and send it.", {"invoice": "Invoice"}),
            "create_refund": (
                "Give money back for a charge, all of it or a part.",
                {"payment_intent": "Payment", "amount?": "In cents"},
            ),
            "list_subscriptions": ("List subscriptions by customer, price or status.", {"customer?": "Customer"}),
            "cancel_subscription": (
                "End a subscription, at once or at the end of its period.",
                {"subscription": "Which"},
            ),
            "create_coupon": ("Create a discount coupon.", {"percent_off?": "Percent", "duration": "once or forever"}),
            "get_balance": ("Available and pending balance of the account.", {}),
            "list_disputes": ("Chargebacks and their state.", {"charge?": "Charge"}),
            "create_product": ("Add a product to the catalog.", {"name": "Name", "description?": "Text"}),
        },
        "storage": {
            "list_buckets": ("List the buckets of the account.", {}),
            "list_objects": ("List objects of a bucket by prefix.", {"bucket": "Bucket", "prefix?": "Prefix"}),
            "get_object": ("Download an object.", {"bucket": "Bucket", "key": "Key"}),
            "put_object": ("Upload data as an object.", {"bucket": "Bucket", "key": "Key", "body": "Data"}),
            "delete_object": ("Delete an object from a bucket.", {"bucket": "Bucket", "key": "Key"}),
            "presign_url": (
                "Make a temporary link through which anybody can download an object.",
                {"bucket": "Bucket", "key": "Key", "expires?": "Seconds"},
            ),
            "set_lifecycle": ("Expire objects after a number of days.", {"bucket": "Bucket", "days": "Days"}),
            "bucket_size": ("Number of objects and total bytes of a bucket.", {"bucket": "Bucket"}),
        },
        "observability": {
            "query_metrics": (
                "Evaluate a PromQL expression over a time range.",
                {"expr": "PromQL", "start": "From", "end": "To"},
            ),
            "search_logs": (
                "Search log lines of services by label and text.",
                {"query": "LogQL", "since?": "How far back"},
            ),
            "list_alerts": ("Alerts that are firing or pending.", {"severity?": "critical or warning"}),
            "silence_alert": ("Mute an alert for a while.", {"alert": "Alert", "duration": "How long"}),
            "get_trace": ("Spans of one distributed trace.", {"trace_id": "Trace"}),
            "list_dashboards": ("Dashboards by folder and tag.", {"tag?": "Tag"}),
            "list_incidents": ("Open incidents and who is on call for them.", {"status?": "open or resolved"}),
            "acknowledge_incident": ("Acknowledge an incident so that nobody else is paged.", {"incident": "Incident"}),
            "who_is_on_call": ("The person on call for a schedule right now.", {"schedule": "Schedule"}),
        },
    },
    "personal": {
        "time": {
            "get_current_time": ("Current time in a time zone.", {"timezone": "IANA name, such as Europe/Paris"}),
            "convert_time": (
                "Convert a time from one time zone to another.",
                {"time": "HH:MM", "source_timezone": "From", "target_timezone": "To"},
            ),
            "add_duration": (
                "Date and time a duration after or before a given one.",
                {"start": "Date", "duration": "ISO 8601"},
            ),
            "days_between": ("Number of days between two dates.", {"start": "First", "end": "Second"}),
            "set_timer": ("Start a countdown and be told when it is over.", {"seconds": "How long", "label?": "Name"}),
        },
        "memory": {
            "create_entities": (
                "Create new entities in the knowledge graph.",
                {"entities": "Name, type and observations"},
            ),
            "create_relations": (
                "Create relations between entities, in active voice.",
                {"relations": "From, to and kind"},
            ),
            "add_observations": ("Add facts to existing entities.", {"observations": "Entity and facts"}),
            "delete_entities": ("Delete entities and their relations.", {"entityNames": "Names"}),
            "delete_observations": ("Delete facts of entities.", {"deletions": "Entity and facts"}),
            "read_graph": ("Read the entire knowledge graph.", {}),
            "search_nodes": (
                "Search for nodes in the knowledge graph.",
                {"query": "Matched to names, types and facts"},
            ),
            "open_nodes": ("Open nodes of the knowledge graph by name.", {"names": "Names"}),
        },
        "home": {
            "list_devices": ("Lights, plugs, locks and sensors of the house.", {"room?": "Room"}),
            "turn_on": ("Switch a device on.", {"device": "Device"}),
            "turn_off": ("Switch a device off.", {"device": "Device"}),
            "set_brightness": ("Dim a light.", {"device": "Light", "percent": "0 to 100"}),
            "set_thermostat": ("Set the temperature of the heating.", {"degrees": "Celsius", "room?": "Room"}),
            "lock_door": ("Lock or unlock a door.", {"door": "Door", "locked": "Locked or not"}),
            "camera_snapshot": ("Picture of what a camera sees.", {"camera": "Camera"}),
            "play_music": (
                "Play a song, album or playlist on a speaker.",
                {"what": "Title or artist", "speaker?": "Where"},
            ),
        },
    },
}


def schema_of(arguments: dict[str, str]) -> dict[str, Any]:
    """An input schema as a server would write it."""
    properties = {name.rstrip("?"): {"type": "string", "description": text} for name, text in arguments.items()}
    required = [name for name in arguments if not name.endswith("?")]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def entries() -> Iterator[DirectoryEntry]:
    """All of them as an endpoint would hold them."""
    for toolbox, servers in SHED.items():
        for server, tools in servers.items():
            for tool, (description, arguments) in tools.items():
                place = ToolName(toolbox, server, tool)
                definition = {
                    "name": place.qualified,
                    "description": f"[{toolbox}/{server}] {description}",
                    "inputSchema": schema_of(arguments),
                }
                yield DirectoryEntry(place.qualified, place, definition)


def directory() -> Directory:
    return Directory(entries())
