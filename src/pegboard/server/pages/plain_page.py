"""Plain pages for people: a title, texts, facts and forms, without scripts.

Every text is escaped here, and nowhere else: parts of a page are values, never markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from pegboard.logs.printable import printable, printable_lines
from pegboard.server.http_types import Answer, Headers

CSRF_FIELD: Final = "csrf"
"""The name of the hidden field that proves that a form is from one of our pages."""


class PageText(Struct, frozen=True):
    """A paragraph; `tone` makes it stand out."""

    text: str
    tone: Literal["", "error", "warning", "good", "quiet"] = ""


class PageCode(Struct, frozen=True):
    """A text of a program, as it is: JSON, a command."""

    text: str


class PageFacts(Struct, frozen=True):
    """Names and values."""

    facts: Sequence[tuple[str, str]]


class PageLink(Struct, frozen=True):
    """A link; `button` makes it look like one. Only http, https and our own paths are linked."""

    text: str
    url: str
    button: bool = False


class FormField(Struct, frozen=True):
    """One field of a form; a `choice` has options, a `hidden` field only a value."""

    name: str
    label: str = ""
    kind: Literal["text", "password", "lines", "choice", "check", "hidden"] = "text"
    value: str = ""
    options: Sequence[str] = ()
    required: bool = False
    hint: str = ""


class FormButton(Struct, frozen=True):
    """A button that sends the form with `action=<value>`."""

    text: str
    value: str = ""
    tone: Literal["main", "plain", "danger"] = "main"


class PageForm(Struct, frozen=True):
    """A form that is posted to `action`, a path of ours; `csrf` is the token of the visitor."""

    action: str
    csrf: str
    buttons: Sequence[FormButton]
    fields: Sequence[FormField] = ()


PagePart: TypeAlias = PageText | PageCode | PageFacts | PageLink | PageForm

_STYLE: Final = """
:root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--text:#1b1f24;--quiet:#57606a;--line:#d4d9df;--main:#0b5fc4;--on:#fff;
--error:#b3261e;--good:#1a6b37;--warning:#8a5300;--code:#eef1f4}
@media(prefers-color-scheme:dark){:root{--back:#0e1116;--card:#171b21;--text:#e6e9ee;--quiet:#a0a9b4;--line:#343b45;--main:#6ab0ff;
--on:#0b1420;--error:#ff8f87;--good:#6fd391;--warning:#f0b455;--code:#0e1116}}
*{box-sizing:border-box}
body{margin:0;padding:6vh 1rem 2rem;background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main{max-width:34rem;margin:auto;padding:1.75rem 2rem 2rem;background:var(--card);border:1px solid var(--line);border-radius:12px}
h1{margin:0 0 1rem;font-size:1.4rem;line-height:1.25;overflow-wrap:anywhere}
p{margin:0 0 1rem;overflow-wrap:anywhere}
.error,.warning,.good{padding:.6rem .8rem;border-left:4px solid;border-radius:4px;background:var(--code)}
.error{color:var(--error)}.good{color:var(--good)}.warning{color:var(--warning)}.quiet{color:var(--quiet)}
pre{margin:0 0 1rem;padding:.8rem;max-height:22rem;overflow:auto;background:var(--code);border:1px solid var(--line);border-radius:6px;
font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.35rem 1rem;margin:0 0 1rem}
dt{color:var(--quiet)}dd{margin:0;overflow-wrap:anywhere;min-width:0}
form{margin:0 0 1rem}
main>:last-child{margin-bottom:0}
label{display:block;margin:0 0 1rem;font-weight:600}
label.check{display:flex;gap:.5rem;align-items:center;font-weight:400}
input:not([type=checkbox]),textarea,select{display:block;width:100%;margin-top:.3rem;padding:.55rem .65rem;font:inherit;font-weight:400;
color:inherit;background:var(--back);border:1px solid var(--quiet);border-radius:6px}
small{display:block;margin-top:.25rem;color:var(--quiet);font-weight:400}
.buttons{display:flex;flex-wrap:wrap;gap:.6rem}
button,a.button{display:inline-block;padding:.55rem 1.1rem;font:inherit;font-weight:600;text-decoration:none;cursor:pointer;
color:var(--on);background:var(--main);border:1px solid var(--main);border-radius:6px}
button.plain{color:var(--text);background:none;border-color:var(--quiet)}
button.danger{color:var(--error);background:none;border-color:var(--error)}
a{color:var(--main)}
:focus-visible{outline:3px solid var(--main);outline-offset:2px}
@media(max-width:30rem){body{padding:1rem .5rem}main{padding:1.25rem 1rem}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.6rem}}
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
PLAIN_HEADERS: Final[Headers] = (
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'".encode(),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # With no-referrer, a browser would send `Origin: null` with a form.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""The headers of every page: no script, no frame, no copy in a cache."""


def plain_page(title: str, *parts: PagePart, status: int = 200, headers: Headers = ()) -> Answer:
    """A whole page as the response to a request."""
    body = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{_text(title)}</h1>{''.join(map(_write, parts))}</main></body></html>"
    )
    return Answer(status, body.encode(), b"text/html; charset=utf-8", (*PLAIN_HEADERS, *headers))


def redirect(location: str, headers: Headers = ()) -> Answer:
    """Send the browser on, with GET."""
    return Answer(303, content_type=b"text/plain", headers=((b"location", location.encode()), *PLAIN_HEADERS, *headers))


def _write(part: PagePart) -> str:
    match part:
        case PageText(text, tone):
            role = ' role="alert"' if tone == "error" else ""
            return f'<p class="{tone}"{role}>{_text(text)}</p>' if tone else f"<p>{_text(text)}</p>"
        case PageCode(text):
            return f'<pre tabindex="0">{escape(printable_lines(text))}</pre>'
        case PageFacts(facts):
            return f"<dl>{''.join(f'<dt>{_text(name)}</dt><dd>{_text(value)}</dd>' for name, value in facts)}</dl>"
        case PageLink(text, url, button):
            style = ' class="button"' if button else ""
            shown = _text(text)
            return f'<p><a href="{escape(url)}"{style}>{shown}</a></p>' if _is_web(url) else f"<p>{shown}</p>"
        case PageForm(action, csrf, buttons, fields):
            hidden = FormField(CSRF_FIELD, kind="hidden", value=csrf)
            written = "".join(map(_write_field, (hidden, *fields)))
            return f'<form method="post" action="{escape(action)}">{written}{_write_buttons(buttons)}</form>'


def _write_field(field: FormField) -> str:
    name = f'name="{escape(field.name)}"' + (" required" if field.required else "")
    value = escape(field.value)
    hint = f"<small>{_text(field.hint)}</small>" if field.hint else ""
    match field.kind:
        case "hidden":
            return f'<input type="hidden" {name} value="{value}">'
        case "check":
            checked = " checked" if field.value else ""
            return (
                f'<label class="check"><input type="checkbox" {name} value="yes"{checked}>{_text(field.label)}</label>'
            )
        case "lines":
            shown = f'<textarea {name} rows="4">{value}</textarea>'
        case "choice":
            shown = f"<select {name}>{_write_options(field.options, field.value)}</select>"
        case _:
            shown = f'<input type="{field.kind}" {name} value="{value}" autocomplete="off" spellcheck="false">'
    return f"<label>{_text(field.label)}{shown}{hint}</label>"


def _write_options(options: Iterable[str], chosen: str) -> str:
    return "".join(
        f'<option value="{escape(option)}"{" selected" if option == chosen else ""}>{_text(option)}</option>'
        for option in options
    )


def _write_buttons(buttons: Iterable[FormButton]) -> str:
    written = "".join(
        f'<button class="{button.tone}" name="action" value="{escape(button.value)}">{_text(button.text)}</button>'
        for button in buttons
    )
    return f'<div class="buttons">{written}</div>'


def _text(text: str) -> str:
    """A text of one line; what could be invisible or reorder others is shown as its escape."""
    return escape(printable(text))


def _is_web(url: str) -> bool:
    if url.startswith("/"):
        return not url.startswith(("//", "/\\"))
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
