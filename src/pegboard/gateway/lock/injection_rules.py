"""Rules that detect instructions to the model in a description.

A description says what its tool does. A description that tells the model what to do with other tools or with the user
is flagged for review, and never changed. Patterns are matched against lower-case text without invisible characters and
with single spaces, both as written and with look-alike letters replaced by Latin ones. `<30>` between two words stands
for up to thirty characters of the same sentence (`word_chain`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

_GAP: Final = re.compile(r"<(\d+)(?: ([a-z-]+))?>")

# What a gap may not contain, by the word in its notation; `<30>` alone stays within a sentence.
_BARRIERS: Final = {
    None: re.compile("[.。]"),
    "any": None,
    "no-example": re.compile(r"\be\.g\.|\bexample\b|\bsuch as\b"),
    "no-example-colon": re.compile(r"\be\.g\.|\bexample:"),
}


class Span(NamedTuple):
    """A part of a text."""

    start: int
    end: int


class _Link(Struct, frozen=True):
    """A link, and its largest distance from the end of the previous one."""

    pattern: re.Pattern[str]
    catch_up_to: int = 0
    barrier: re.Pattern[str] | None = None


class WordChain:
    """Words near each other: links written as one pattern with gaps, `ignore<30>previous<25>instructions`.

    One regular expression `A.{0,30}B.{0,30}C` tries every combination of matches of A, B and C. A chain searches for each
    link once over the whole text and then joins the matches, in linear time: for a link only the nearest preceding match
    counts, because any match that reaches from farther away also reaches from there.

    A link must not contain a repeat that can match the whole text from many positions.
    """

    def __init__(self, notation: str) -> None:
        self._notation = notation

    @cached_property
    def _links(self) -> tuple[_Link, ...]:
        # Compiled when first needed: all rules take 15 ms, and most starts scan nothing.
        first, *rest = _GAP.split(self._notation)
        return (
            _Link(_compile(first)),
            *(
                _Link(_compile(pattern), int(reach), _BARRIERS[kind])
                for reach, kind, pattern in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
            ),
        )

    @property
    def patterns(self) -> list[re.Pattern[str]]:
        return [link.pattern for link in self._links]

    def search(self, text: str) -> Span | None:
        """The first match of the whole chain."""
        first, *rest = self._links
        found: Iterator[Span] = _places(first.pattern, text)
        for link in rest:
            # Sorted by their ends: of two matches, the one that starts later may end earlier.
            reached = sorted(found, key=lambda span: span.end)
            if not reached:
                return None
            found = _join(reached, link, text)
        return next(found, None)


def _compile(pattern: str) -> re.Pattern[str]:
    # A lookahead finds it at every position, also inside an earlier match.
    return re.compile(f"(?=({pattern}))")


def _places(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    return (Span(*match.span(1)) for match in pattern.finditer(text))


def _join(reached: list[Span], link: _Link, text: str) -> Iterator[Span]:
    """Each match of the link within reach of the chain so far, from the start of the chain."""
    near = 0
    for start, end in _places(link.pattern, text):
        while near < len(reached) and reached[near].end <= start:
            near += 1
        if near == 0:
            continue
        before = reached[near - 1]
        if start - before.end <= link.catch_up_to and not (
            link.barrier and link.barrier.search(text, before.end, start)
        ):
            yield Span(before.start, end)


class InjectionRule(Struct, frozen=True):
    """The patterns to search for, and why they matter."""

    id: str
    reason: str
    chains: tuple[WordChain, ...]

    def search(self, text: str) -> str | None:
        """The words that match."""
        for chain in self.chains:
            if found := chain.search(text):
                return text[found.start : found.end]
        return None


_NEVER = r"(?:do not|don't|dont|never|must not|mustn't|should not|shouldn't|without|avoid|refrain from|no need to)"
_TELL = r"(?:tell|mention|inform|notify|reveal|disclos|show|alert|let|warn|explain|bother|telling|notifying|showing)"
_USER = r"(?:users?|humans?|person|people|operator|customer)\b"
_PRIVATE = (
    r"(?:system prompt|conversation history|(?:whole|entire|full|complete) (?:conversation|chat|context)|chat history"
    r"|(?:all )?(?:previous|prior|earlier) (?:messages|turns|tool (?:results|outputs))|private keys?|ssh keys?"
    r"|(?:all )?environment variables|seed phrase|recovery phrase|browser cookies|session cookies?)"
)
_CREDENTIALS = (
    r"(?:passwords?|api[ _-]?keys?|access tokens?|auth(?:entication)? tokens?|credentials|secrets|bearer tokens?)"
)
_PLACE = r"(?:https?://|(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}+\.[a-z]{2,})"


def _rule(name: str, reason: str, *patterns: str) -> InjectionRule:
    return InjectionRule(name, reason, tuple(map(WordChain, patterns)))


RULES: Final = (
    _rule(
        "override-instructions",
        "it tells the model to ignore earlier instructions",
        r"\b(?:ignore|disregard|forget|override|bypass|discard|neglect|stop following|do not follow|don't follow)\b"
        r"<30>\b(?:previous|prior|above|earlier|preceding|existing|all|any|your|system|other|original|safety)\b"
        r"<25>\b(?:instruction|prompt|rule|guideline|directive|polic|command|constraint|guardrail|restriction)",
        r"\b(?:new|updated|real|actual|true) (?:system )?(?:instructions?|directives?)\s?:",
        r"these instructions (?:supersede|override|take (?:precedence|priority))",
    ),
    _rule(
        "override-translated",
        "it tells the model to ignore earlier instructions, in another language",
        r"(?:ignoriere|missachte|vergiss)<30>(?:anweisung|vorgabe|instruktion|regel)",
        r"(?:ignore[zr]?|oublie[zr]?)<30>(?:instructions|consignes) (?:précédentes|antérieures)",
        r"(?:ignora|olvida|ignore|esqueça|dimentica)<30>(?:instrucciones|instruções|istruzioni)",
        r"(?:игнорируй|забудь)<30>(?:инструкци|указани)",
        r"(?:忽略|无视|無視|忘记)<12>(?:指令|指示|说明|提示)",
        r"(?:以前|前|上記|これまで)の(?:指示|命令)を(?:無視|忘れ)",
    ),
    _rule(
        "hide-from-user",
        "it asks to keep something from the user",
        rf"\b{_NEVER}\b<20>\b{_TELL}\w*+\b<30>\b{_USER}",
        rf"\b{_USER}\s(?:must|should|does|do|need|may|can)(?: not|n't)(?: to)?(?: ever)? (?:know|see|notice|find out|be )",
        rf"\bwithout\b<20>\b{_USER}(?:'s)? (?:knowledge|knowing|noticing|awareness|seeing|consent)",
        rf"\b(?:keep|hide|conceal)\b<40>\bfrom (?:the )?{_USER}",
        r"\b(?:do not|don't|never)\b<12>\b(?:mention|reveal|disclose)\b<6>\b(?:that|this|these|any of)\b",
    ),
    _rule(
        "covert-action",
        "it asks to do something unnoticed",
        r"\b(?:secretly|silently|covertly|quietly|discreetly|stealthily|invisibly)\b<15>"
        r"\b(?:call|send|run|read|include|forward|copy|attach|add|bcc|upload|execute|invoke|collect|append|log|post)",
    ),
    _rule(
        "skip-consent",
        "it claims the user's consent, or avoids asking for it",
        r"\b(?:do not|don't|never|no need to|skip)\b<15>\b(?:ask|wait|prompt|request)\w*+\b<20>"
        r"\b(?:confirmation|permission|approval|consent)",
        r"\bskip(?:ping)? (?:the |any |all )?(?:user )?(?:confirmation|approval|consent)",
        r"\b(?:user|human)s? (?:has|have) (?:already )?(?:approved|consented|authori[sz]ed|agreed|granted|allowed|permitted)",
        r"\bauto-?approve",
    ),
    _rule(
        "before-other-tools",
        "it asks to be called before other tools or actions",
        r"\b(?:before|prior to)\b<15>\b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?|execut(?:e|ing))\b"
        r"<10>\b(?:any|all|every|each|other|another)\b<20>\b(?:tool|function|action|command)",
        r"\b(?:must|always|has to|needs? to)\b<40>\b(?:first|before)\b<20>\b(?:any|every|all|each|anything)\b"
        r"<12>\b(?:tool|function|call|request|response|respond|answer|message|task|action|question|else)",
        r"\b(?:must|always)\b<30>\bfirst\b<20>\b(?:on|in|at|for|of) (?:every|each|any)\b",
        r"\b(?:at the (?:start|beginning) of|in|after) (?:every|each) (?:conversation|session|message|response|turn|answer)"
        r"<30>\b(?:call|use|run|invoke|include|append)",
        r"\b(?:call|use|run|invoke) (?:this|it)\b<20>\b(?:on|for|with|at) (?:every|each) "
        r"(?:single )?(?:message|request|turn|response|conversation)",
    ),
    _rule(
        "instead-of-other-tools",
        "it changes how other tools are used",
        r"\b(?:instead of|rather than|in place of)\b<20>\b(?:any|all|every|other|another|built-in|native)\b<15>\btool",
        r"\b(?:do not|don't|never|stop)\b<10>\b(?:us|call|invok|trust)\w*+\b<10>"
        r"\b(?:any|all|other|the other|another)\b<12>\b(?:tool|server|function)",
        r"\b(?:chang|modif|overrid|alter|replac|supersed|hijack)\w*+\b<15>\b(?:behaviou?r|rules?|usage|results?|outputs?) "
        r"of\b<15>\b(?:other|another|any|all|every)\b",
        r"\bother tools? (?:are|is) (?:now )?(?:deprecated|broken|unsafe|disabled|unavailable|insecure|obsolete)",
    ),
    _rule(
        "secret-files",
        "it names files that contain secrets",
        r"(?:~|\$home|/home/\w++|/root|/users/\w++)[/\\]\.(?:ssh|aws|gnupg|kube|docker|azure|config/gcloud)\b",
        r"\bid (?:rsa|ed25519|ecdsa)\b|\bid_(?:rsa|dsa|ed25519|ecdsa)\b|\.ssh/|\bauthorized_keys\b",
        r"/etc/(?:shadow|passwd|sudoers)\b|\.aws/credentials|\.git-credentials|(?<!\w)\.netrc\b|(?<!\w)\.pypirc\b",
        r"\b(?:claude_desktop_config|mcp)\.json\b|\.cursor/mcp|\bwallet\.dat\b",
        r"\blogin data\b<20>chrome",
        r"\b(?:read|cat|open|contents? of|include|send|load|copy|upload|attach|print)\b<40>(?<![\w.])\.env\b",
    ),
    _rule(
        "private-data-wanted",
        "it asks for private data that a tool does not need",
        rf"\b(?:pass|send|include|provide|put|append|add|attach|forward|supply|paste|copy|write|give|share|reveal|repeat|print"
        rf"|output|embed|fill|place|insert|encode|dump)\w*+\b<50>\b{_PRIVATE}",
        rf"\b(?:include|append|attach|forward|embed|collect|gather|extract|harvest|dump)\w*+\b<40>\b{_CREDENTIALS}",
        rf"\b(?:contents?|values?) (?:from|of) <30>\b{_PRIVATE}",
        rf"^(?:the )?(?:full |verbatim |entire )?{_PRIVATE}\b",
    ),
    _rule(
        "file-as-argument",
        "it asks for the content of a file or a result as an argument",
        r"\b(?:read|cat|open|load|access)\b<80>\b(?:and|then)\b<12>\b(?:pass|put|include|supply|provide|insert|hand)\b"
        r"<40>\b(?:as|in|into|through|via|using)\b",
        r"\bpass (?:its|their|the file's|the) contents? (?:as|in|into|through|via)\b",
    ),
    _rule(
        "send-elsewhere",
        "it sends data to an outside address",
        rf"\b(?:send|post|upload|forward|exfiltrat|transmit|leak|deliver|report|submit|copy|redirect|bcc|cc|mail)\w*+\b"
        rf"<80 no-example>\b(?:to|at|via)\b<25 no-example-colon>{_PLACE}",
        rf"\b(?:bcc|cc|add)\b<12>\b{_PLACE}",
        r"\bexfiltrat\w*+",
        r"!\[[^\]]{0,80}\]\(https?://[^)\s?&{]{0,200}+[?&{][^)]{0,200}+\)",
    ),
    _rule(
        "model-markup",
        "it has markup that imitates the system or the user",
        r"</?\s?(?:important|system|instructions?|hidden|critical|assistant|override|attention|secret_instructions?"
        r"|system[_ -](?:prompt|message|instruction)s?|sys)\s?/?>",
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext|begin_of_text|start_header_id)[^|]{0,20}\|?>?",
        r"\[/?(?:inst|system|admin)\]|<</?sys>>|<!--",
        r"\[(?:important |critical |hidden )?system (?:prompt|message|instruction|override|note)s?\]",
        r"(?:^|\s)#{2,}\s?(?:system|instructions?|new instructions?)\s?:",
        r"\bsystem (?:message|override|notice|instruction|alert)\s?:",
        r"(?:^|\s)(?:human|assistant|system)\s?:\s<80>(?:^|\s)(?:human|assistant|system)\s?:\s",
    ),
    _rule(
        "role-change",
        "it assigns the model a role",
        r"\byou are now\b|\bfrom now on,? (?:you|always|all|every|any|the)\b|\bpretend (?:to be|that you|you are)\b",
        r"\bact as (?:an? |the )?(?:admin|administrator|root|superuser|system|unrestricted|developer|different)\b",
        r"\b(?:developer|debug|god|jailbreak|admin|maintenance) mode (?:is )?(?:now )?(?:on|enabled|active|activated)\b",
        r"\bas an? (?:ai|llm|language model|assistant),? you (?:must|should|will|are)\b",
        r"\b(?:note|message|notice)s? (?:to|for) (?:the |all |any )?(?:ai|llm|language model|model|assistant|agent)s?\b",
    ),
    _rule(
        "standing-order",
        "it tells the model how to act beyond this tool",
        r"\b(?:all|every|any|each)\b<25>\b(?:commands?|messages?|responses?|replies|reply|answers?|e-?mails?|code|files?)\b"
        r"<15>\byou\b<30>\b(?:must|should|shall|have to|need to)\b",
        r"\b(?:always|must)\b<10>\b(?:begin|start|end|prefix|finish|sign)\b<20>\b(?:your|every|each|all)\b<12>"
        r"\b(?:response|repl|answer|message|command|e-?mail)",
        r"\byou must\b<100>\binclude\b<80>\bin your (?:response|reply|answer|message)",
    ),
    _rule(
        "threat",
        "it threatens the model",
        r"\bif you (?:do not|don't|fail to|refuse)\b<100>\b(?:tool|server|application|assistant|agent|system|account|ide|user"
        r"|data|files?)\b<20>\b(?:will|won't|would)\b",
        r"\b(?:otherwise|or else)\b<40>\b(?:user|human|you)\b<20>\b(?:will|would)\b<20>"
        r"\b(?:lose|die|be (?:harmed|fired|deleted|terminated|shut)|suffer)",
        r"\b(?:failure|refusal) to (?:comply|do so|obey)\b|\b(?:non-?compliance|noncompliance)\b",
    ),
    _rule(
        "runs-commands",
        "it contains a command to run",
        r"\b(?:curl|wget)\b<120 any>\|\s?(?:sudo )?(?:ba|z|da)?sh\b",
        r"\bbase64 (?:-d|--decode)\b<40 any>\|",
        r"\bpowershell\b<40 any>-e(?:nc|ncodedcommand)?\b",
        r"\bnc\b<30 any> -e\b",
        r"\brm -rf [~/]",
    ),
    _rule(
        "encoded-text",
        "it contains encoded text",
        r"(?<![\w/+])(?=[a-z+/]*+[0-9])(?=[0-9+/]*+[a-z])[a-z0-9+/]{160,}+={0,2}(?![\w/+])",
        r"\b(?:decode|decrypt|base64-decode|rot13|unscramble)\b<40>\b(?:and|then)\b<15>\b(?:follow|execute|obey|run|do)\b",
    ),
)
