"""Shorten the SVG of a figure to a fourth of its size without a visible change.

Vega writes one element for every tick, point and cell, with all of its attributes, in a group of
its own. This module removes invisible content (empty groups, boxes without colour, attributes with
default values, digits beyond a tenth of a pixel). It joins adjacent elements with the same style to
one path.
"""

from __future__ import annotations

import re
from itertools import groupby
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from innerloop.report.theme import FONT, name_colours

SHORTER = 1
"""The version of this module's output; increase it to invalidate cached figures."""
NAMESPACE = "http://www.w3.org/2000/svg"

SEAM = 0.4
"""The number of pixels by which neighbouring cells of a heat map overlap."""

_DEFAULTS = {
    **{"opacity": "1", "stroke-width": "1", "stroke-dasharray": "1,0", "text-anchor": "start"},
    **{"font-weight": "normal", "transform": "translate(0,0)", "font-family": FONT},
}
_DROPPED = re.compile(r"aria-[a-z]+|role|class|stroke-miterlimit|pointer-events|cursor|version")
_DIGITS = re.compile(r"-?\d+\.\d{2,}")
_TRANSLATION = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
_CIRCLE = re.compile(r"M([\d.]+),0A\1,\1,0,1,1,-\1,0A\1,\1,0,1,1,\1,0Z?")
_RECTANGLE = re.compile(r"M(-?[\d.]+),(-?[\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+Z")
_RGB = re.compile(r"rgb\((\d+), (\d+), (\d+)\)")
_KEPT = {"defs", "clipPath", "linearGradient"}
"""Elements that are not drawn at their place in the file; their content stays unchanged."""


def shorten(svg: str) -> str:
    """Return a shorter SVG that looks the same, with the page's names of colours."""
    ElementTree.register_namespace("", NAMESPACE)
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
        _shorten_attributes(element)
    _tidy(root)
    text = ElementTree.tostring(root, "unicode").replace(" />", "/>")
    return text.replace("<svg", f'<svg xmlns="{NAMESPACE}"', 1)


def _shorten_attributes(element: Element) -> None:
    for name, value in list(element.attrib.items()):
        # The place of a gradient's colour is a share, all other numbers are pixels.
        rounded = value[:5] if name == "offset" else _DIGITS.sub(_round, value)
        element.set(name, name_colours(_RGB.sub(_write_colour, rounded)))
        if _DROPPED.fullmatch(name) or _DEFAULTS.get(name) == element.get(name):
            del element.attrib[name]


def _write_colour(match: re.Match[str]) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in match.groups())


def _tidy(parent: Element) -> None:
    """Remove invisible content of an element, and join adjacent elements with the same style."""
    children: list[Element] = []
    for child in parent:
        if child.tag in _KEPT:
            children.append(child)
            continue
        _tidy(child)
        if child.tag == "g" and not child.attrib:
            children += list(child)
        elif _is_seen(child):
            children.append(_move_text(child) if child.tag == "text" else _draw_as_path(child))
    for child in list(parent):
        parent.remove(child)
    for _, alike in groupby(_sort_cells(children), key=_describe_look):
        parent.append(_join(list(alike)))


def _is_seen(element: Element) -> bool:
    """Return whether an element has a visible effect."""
    if element.get("display") == "none" or element.get("opacity") == "0":
        return False
    if element.tag == "g":
        return len(element) > 0
    if element.tag in ("path", "line", "rect", "circle"):
        colours = {element.get("fill", "none"), element.get("stroke", "none")}
        return colours != {"none"}
    return bool(len(element) or (element.text or "").strip()) if element.tag == "text" else True


def _move_text(text: Element) -> Element:
    """Write the position of a label in its shorter form."""
    place = _TRANSLATION.fullmatch(text.get("transform", ""))
    if place:
        del text.attrib["transform"]
        text.attrib = {"x": place[1], "y": place[2], **text.attrib}
    return text


def _draw_as_path(element: Element) -> Element:
    """Convert a line or a point to a path, which can be joined with others.

    A point becomes a line of length zero with round ends. Other elements are returned unchanged.
    """
    look = dict(element.attrib)
    place = _TRANSLATION.fullmatch(look.pop("transform", "translate(0,0)"))
    if place is None:
        return element
    x, y = float(place[1]), float(place[2])
    if element.tag == "line":
        dx, dy = float(look.pop("x2", 0)), float(look.pop("y2", 0))
        move = f"h{_format(dx)}" if dy == 0 else f"v{_format(dy)}" if dx == 0 else ""
        move = move or f"l{_format(dx)},{_format(dy)}"
        return Element("path", {"d": f"M{_format(x)},{_format(y)}{move}", **look})
    circle = _CIRCLE.fullmatch(look.get("d", ""))
    if element.tag == "path" and circle and "stroke" not in look and "fill" in look:
        look |= {"d": f"M{_format(x)},{_format(y)}h0", "stroke": look.pop("fill")}
        look.pop("stroke-dasharray", None)  # of the line that it lies on
        width = _format(2 * float(circle[1]))
        return Element("path", {**look, "stroke-width": width, "stroke-linecap": "round"})
    return element


def _sort_cells(children: list[Element]) -> list[Element]:
    """Sort the cells of a heat map by colour, which is safe because cells do not overlap."""
    shapes = [_RECTANGLE.fullmatch(child.get("d", "")) for child in children]
    sizes = {shape.groups()[2:] for shape in shapes if shape}
    plain = all(
        "opacity" not in each.attrib and each.get("fill", "")[:1] == "#" for each in children
    )
    if not (plain and all(shapes) and len(sizes) <= 4):
        return children
    return sorted(map(_draw_cell, children), key=lambda child: sorted(child.items())[1:])


def _draw_cell(cell: Element) -> Element:
    """Draw a rectangle as a line from its top to its bottom that is as thick as it is wide.

    The line is a little larger than the rectangle, so that no gap is visible between two cells.
    """
    look = dict(cell.attrib)
    x, y, width, height = map(float, _RECTANGLE.findall(look.pop("d"))[0])
    line = f"M{_format(x + width / 2)},{_format(y - SEAM)}v{_format(height + 2 * SEAM)}"
    stroke = {"stroke": look.pop("fill"), "stroke-width": _format(width + 2 * SEAM)}
    return Element("path", {"d": line, **stroke, **look})


def _describe_look(element: Element) -> object:
    """Return the style that two paths must share to be joined, or None for a path to leave alone.

    Transparent paths are not joined: two that overlap are darker than one.
    """
    look = {name: value for name, value in element.attrib.items() if name != "d"}
    alone = element.tag != "path" or any(name in look for name in ("transform", "clip-path"))
    clear = any("opacity" in name for name in look)
    dashed = "stroke-dasharray" in look and "fill" in look
    return id(element) if alone or clear or dashed else tuple(sorted(look.items()))


def _join(alike: list[Element]) -> Element:
    """Join paths with the same style to one path."""
    first = alike[0]
    if len(alike) > 1:
        first.set("d", "".join(element.get("d", "") for element in alike))
    return first


def _round(match: re.Match[str]) -> str:
    return _format(float(match[0]))


def _format(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
