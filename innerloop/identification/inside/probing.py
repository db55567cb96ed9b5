"""Reading of a state from one layer: the best view of each of its tensors, beside its controls.

prompt     the same read-out from the stream before the first layer: what needs no computing
random     from the same layer of a network of the same shape with its weights in random order
shuffled   of other prompts' states, which the stream cannot know

gain = 1 − (1 − R²) / (1 − R² of the best control): how much of what the controls leave open the
layer explains. R² alone says little: M x of Newton's iteration is nearly a multiple of x where the
examples are well conditioned, and any network that keeps x has that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from innerloop.identification.inside.reading import Fitter, ReadOut
from innerloop.identification.inside.report import Reading
from innerloop.identification.inside.views import Place, View, list_views

TRIVIAL = 1e-9
"""Where a control leaves less than this share open, the state needs no computing."""
MIN_SPREAD = 1e-20
"""A state whose variance is a smaller share of its power is a constant."""
RESOLUTION = 1e-6
"""Views whose gains differ by less are equally good: the first is taken."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A set of prompts as one layer sees them."""

    problem: Any
    forms: dict[str, list[Tensor]]
    """The tensors of the state, each in all its forms."""
    stream: Tensor
    prompt: Tensor
    random: Tensor | None


Probe = tuple[Reading, View, ReadOut | None]


def probe_layer(fitting: Layer, scoring: Layer, first_fitters: FitterStore) -> list[Probe]:
    """Read each tensor of a state with the view that is best on the prompts to fit on.

    `first_fitters` has the fitters for the stream before the first layer. Tensors that are the same
    for all prompts, or that the prompt already contains, are left out.
    """
    own, found = FitterStore(fitting.stream), []
    for name, forms in fitting.forms.items():
        value = forms[0]
        spread = float((value - value.mean(dim=0)).square().mean())
        if name in scoring.forms and spread > MIN_SPREAD * float(value.square().mean()):
            best = _choose_view(_list_forms_views(fitting, name), fitting, own, first_fitters)
            if best is not None:
                found.append(_score_view(best, fitting, scoring, own, first_fitters))
    return found


def _list_forms_views(layer: Layer, name: str) -> list[View]:
    """List the views of a tensor, and of its other forms."""
    return [
        replace(view, form=form)
        for form, value in enumerate(layer.forms[name])
        for view in list_views(layer.problem, name, value, layer.stream.shape[1])
    ]


class FitterStore:
    """Fitters for the places of a stream, each made once."""

    def __init__(self, stream: Tensor) -> None:
        self.stream = stream
        self.known: dict[str, Fitter] = {}

    def get(self, place: Place) -> Fitter:
        if place.name not in self.known:
            self.known[place.name] = Fitter(place.read(self.stream))
        return self.known[place.name]


def _choose_view(
    views: list[View], fitting: Layer, own: FitterStore, first_fitters: FitterStore
) -> View | None:
    """Choose the view of largest gain over the prompt, on the held-out prompts to fit on.

    None where some view of the tensor is in the prompt already: there is nothing to compute.
    """
    best, chosen = float("-inf"), None
    for view in views:
        value = fitting.forms[view.field][view.form]
        label = view.compute(fitting.problem, value, fitting.stream.shape[1])
        here, before = own.get(view.place).fit(label), first_fitters.get(view.place).fit(label)
        control = 0.0 if before is None else before.validation
        if control > 1 - TRIVIAL:
            return None
        if here is None:
            continue
        gain = _gain(here.validation, control)
        if gain > best + RESOLUTION:
            best, chosen = gain, view
    return chosen


def _score_view(
    view: View,
    fitting: Layer,
    scoring: Layer,
    own: FitterStore,
    first_fitters: FitterStore,
) -> Probe:
    place, tokens = view.place, fitting.stream.shape[1]
    value, scored = (layer.forms[view.field][view.form] for layer in (fitting, scoring))
    label = view.compute(fitting.problem, value, tokens)
    truth = view.compute(scoring.problem, scored, tokens).double()
    read_out, before = own.get(place).fit(label), first_fitters.get(place).fit(label)

    def score(fitted: ReadOut | None, stream: Tensor | None, values: Tensor = truth) -> float:
        if fitted is None or stream is None:
            return 0.0
        found = fitted.score(place.read(stream).double(), values)
        return found if found > 0 else 0.0  # also where it is not a number

    strangers = view.compute(fitting.problem, value.roll(1, 0), tokens)
    stranger_truth = view.compute(scoring.problem, scored.roll(1, 0), tokens).double()
    noise = None
    if fitting.random is not None:
        noise = Fitter(place.read(fitting.random)).fit(label)
    r2 = score(read_out, scoring.stream)
    controls = {
        "prompt": score(before, scoring.prompt),
        "random": score(noise, scoring.random),
        "shuffled": score(own.get(place).fit(strangers), scoring.stream, stranger_truth),
    }
    gain = _gain(r2, max(controls.values()))
    reading = Reading(field=view.field, view=view.text, r2=r2, gain=gain, **controls)
    return reading, view, read_out


def _gain(r2: float, control: float) -> float:
    """1 − (1 − R²)/(1 − control); 0 where the control leaves nothing open."""
    left = 1 - max(control, 0.0)
    return 0.0 if left < TRIVIAL else 1 - (1 - r2) / left
