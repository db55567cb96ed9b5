"""Escape all text that goes into pages and figures, so that a browser never runs it.

Names, settings, messages and the contents of files may contain markup, control characters, or bytes
that do not encode text. Use `escape` for HTML, `inline_json` for scripts and `clean` for figures.
`fill_template` makes pages that run no script except their own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import vl_convert

_UNPRINTABLE = re.compile(
    "[^\t\n\r\u0020-\u007e\u00a0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that XML forbids or discourages, and JavaScript's two additional line separators.
They include control characters and lone surrogates, which represent bytes of a file name that is
not UTF-8. Some of them abort Vega's converter and with it the process."""
_SCRIPT = re.compile("<script>(.*?)</script>", re.DOTALL)


def clean(value: Any) -> Any:
    """Replace unprintable characters in texts: the escape character by `␛`, others by `�`."""
    if isinstance(value, str):
        return _UNPRINTABLE.sub(_picture_character, value)
    if isinstance(value, dict):
        return {clean(name): clean(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [clean(part) for part in value]
    return value


def _picture_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"  # Unicode's pictures of controls


def escape(value: Any) -> str:
    """Escape a value as HTML text, between tags or in a quoted attribute."""
    return html.escape(clean(str(value)))


def inline_json(value: Any) -> str:
    """Encode a value as JSON for a script element, so that no text in it can end the element."""
    return json.dumps(clean(value)).replace("<", "\\u003c")


@cache
def load_bundle() -> str:
    """Load Vega, Vega-Lite and vega-embed as one script, embedded once per page."""
    code = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in code.lower():
        raise RuntimeError("the Vega bundle would end its own script element")
    return code


def fill_template(name: str, **values: str | int) -> str:
    """Fill in a page of this folder: every `$name`, and `$policy`, which names its scripts.

    The policy lists the digests of the page's scripts. A browser runs no other script, even if some
    text was not escaped, and loads nothing. If `bundle` is among the values, the page contains
    Vega,
    and the policy allows it to compile expressions at run time.
    """
    text = files("innerloop.report").joinpath(name).read_text("utf-8")
    scripts = (Template(script).substitute(values) for script in _SCRIPT.findall(text))
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()) for script in scripts)
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    compiles = "'unsafe-eval' " if "bundle" in values else ""
    policy = (
        f"default-src 'none'; script-src {compiles}{allowed}; style-src 'unsafe-inline'; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(text).substitute(values, policy=policy)
