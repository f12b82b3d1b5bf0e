"""Bounds for the variables of an uncompressed run: `cusz config --from`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from cusz_core import tuning
from cusz_core.command_line import extents, print_table
from cusz_core.embedding import absolute_bound
from cusz_core.errors import ParameterError

from .sampling import SampledVariable

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11

    from cusz_core.parameters import Mode, Options

#: The bounds that are shown for every variable, as fractions of its value range.
BOUNDS = (1e-2, 1e-3, 1e-4, 1e-5)
#: The bound that is chosen by default, as a fraction of the value range.
RELATIVE = tuning.USUAL
#: The bound relative to every value that is chosen if `RELATIVE` would ruin too many values (`tuning.MANY`).
POINTWISE = 1e-3
_DIGITS = 2  # significant digits of a bound that is chosen


@dataclasses.dataclass(frozen=True)
class Goal:
    """How to choose the bound of a variable: the first of these that is not None, else `RELATIVE`.

    Attributes:
        eb: the bound, as it is.
        mode: of `eb`.
        psnr: the largest bound with this PSNR.
        ratio: the smallest bound with this ratio.
        relative: this fraction of the value range.
    """

    eb: float | None = None
    mode: Mode = "abs"
    psnr: float | None = None
    ratio: float | None = None
    relative: float | None = None


@dataclasses.dataclass(frozen=True)
class Proposal:
    """What is proposed for a variable.

    Attributes:
        variable: as it is in the file, without its sample.
        shown: what each of `BOUNDS` gives, according to the sample; empty if there is none, or all values are equal.
        eb: the bound; None: the variable is to be left out. 0 for integers, which are packed exactly.
        mode: of `eb`.
        outcome: what it gives, according to the sample; None if there is no sample.
        comment: where the bound comes from, in one line.
        remark: why the variable is left out, or another remark; "" if there is none.
        value_range: smallest and largest value.
    """

    variable: SampledVariable
    shown: list[tuning.Outcome] = dataclasses.field(default_factory=list)
    eb: float | None = None
    mode: Mode = "abs"
    outcome: tuning.Outcome | None = None
    comment: str = ""
    remark: str = ""
    value_range: tuple[float, float] = (0.0, 0.0)


def propose(variable: SampledVariable, goal: Goal, *, is_wanted: bool, **options: Unpack[Options]) -> Proposal:
    """Chooses a variable's bound.

    Args:
        variable: with its sample.
        goal: how to choose.
        is_wanted: the variable was asked for by name, so it is not left out for being small.
        options: parameters of the compression.

    Raises:
        ParameterError: a parameter out of range; for a variable asked for by name also: there is nothing to choose its
            bound from, or the ratio is out of reach.
    """
    sample = variable.sample
    bare = dataclasses.replace(variable, sample=None)
    if is_wanted and variable.is_single:
        raise ParameterError(f"variable {variable.name!r}: {variable.remark}: BP5 refuses its second step")
    if variable.is_exact and not math.isnan(variable.packed_ratio):
        if variable.remark and not is_wanted:
            return Proposal(bare, remark=f"left out: {variable.remark}")
        comment = f"integers, packed exactly; estimated: ratio {variable.packed_ratio:.3g}"
        return Proposal(bare, eb=0.0, comment=comment, remark=variable.remark)
    if sample is None and is_wanted and goal.eb is not None:
        return Proposal(bare, eb=goal.eb, mode=goal.mode, comment="bound as given", remark=variable.remark)
    if sample is None or (variable.remark and not is_wanted):
        if is_wanted:
            raise ParameterError(f"variable {variable.name!r}: {variable.remark}: give its bound with --eb")
        return Proposal(bare, remark=f"left out: {variable.remark}")
    low, high, _ = sample.limits
    shown = tuning.survey(sample, BOUNDS, **options) if low < high else []
    found = Proposal(bare, shown, value_range=(low, high))
    source = "ADIOS2's statistics" if variable.has_statistics else "the samples"
    values = f"the value range {low:g} to {high:g} ({source})"
    try:
        eb, comment = _choose(sample, goal, values, **options)
    except _NoBoundError as reason:
        if is_wanted:
            raise ParameterError(f"variable {variable.name!r}: {reason}") from None
        return dataclasses.replace(found, remark=f"left out: {reason}")
    mode = goal.mode
    try:
        outcome = _outcome(sample, eb, mode, **options)
        ruined = outcome.effects if outcome.effects.off_10_percent > tuning.MANY else None
        if ruined and goal == Goal() and tuning.has_one_sign(sample):
            eb, mode = POINTWISE, "pw_rel"
            comment = (
                f"{POINTWISE:g} of every value, as {RELATIVE:g} of the range would be too much for small ones "
                f"({ruined}); {values}"
            )
            outcome, ruined = _outcome(sample, eb, mode, **options), None
    except tuning.OutOfReachError as error:
        raise ParameterError(f"variable {variable.name!r}: {error}") from None
    estimate = f"estimated: ratio {outcome.ratio:.3g}, PSNR {outcome.psnr:.0f} dB"
    mark = None if options.get("fill") is not None else tuning.likely_fill(sample)
    remarks = []
    if mark is not None:
        remarks.append(
            f"{tuning.percent(mark.share)} are {mark.value:g}: if it means no data, give --fill {mark.value:g}"
        )
    elif ruined and tuning.has_one_sign(sample):
        remarks.append(f"with this bound, {ruined}: --mode pw_rel gives a bound relative to every value")
    return dataclasses.replace(
        found, eb=eb, mode=mode, outcome=outcome, comment=f"{comment}; {estimate}", remark="; ".join(remarks)
    )


class _NoBoundError(Exception):
    """Why there is no bound to propose."""


def _outcome(sample: tuning.Sample, eb: float, mode: Mode, **options: Unpack[Options]) -> tuning.Outcome:
    """What a bound gives, according to a sample."""
    if mode == "psnr":
        return tuning.find_bound(sample, psnr=eb, **options)
    if mode == "ratio":
        return tuning.find_bound(sample, ratio=eb, **options)
    (outcome,) = tuning.survey(sample, [eb], mode, **options)
    return outcome


def _choose(sample: tuning.Sample, goal: Goal, values: str, **options: Unpack[Options]) -> tuple[float, str]:
    """A bound, and where it comes from."""
    low, high, _ = sample.limits
    if goal.eb is not None:
        return goal.eb, f"bound as given; {values}"
    if low == high:
        raise _NoBoundError(f"all values sampled are {low:g}: a bound can be given with --eb")
    mark = None if options.get("fill") is not None else tuning.likely_fill(sample)
    if mark:
        raise _NoBoundError(
            f"{tuning.percent(mark.share)} are {mark.value:g}, far from the others: give --fill {mark.value:g} if that "
            "is no data, or a bound with --eb"
        )
    if goal.psnr is not None:
        eb = tuning.find_bound(sample, psnr=goal.psnr, **options).eb
        return tuning.rounded(eb, _DIGITS) if eb else eb, f"for a PSNR of {goal.psnr:g} dB on samples; {values}"
    if goal.ratio is not None:
        try:
            eb = tuning.find_bound(sample, ratio=goal.ratio, **options).eb
        except tuning.OutOfReachError as error:
            raise _NoBoundError(str(error)) from None
        return tuning.rounded(eb, _DIGITS, up=True), f"for a ratio of {goal.ratio:g} on samples; {values}"
    relative = RELATIVE if goal.relative is None else goal.relative
    if not 0 < relative < math.inf:
        raise ParameterError(f"relative is {relative}; it must be finite and above 0")
    return tuning.rounded(absolute_bound(relative, low, high), _DIGITS), f"{relative:g} of {values}, rounded down"


def print_proposals(proposals: Sequence[Proposal], file: TextIO) -> None:
    """Prints what is in a run, what some bounds would give, and what is proposed."""
    rows = [("variable", "type", "shape", "steps", "blocks", "value range", "from")]
    table = [["variable", *(f"{bound:g}" for bound in BOUNDS), "chosen"]]
    changes = [["variable", "bound", "become 0", "change sign", "off by > 1%", "off by > 10%"]]
    for proposal in proposals:
        own = proposal.variable
        values = ("", "")
        if proposal.shown:
            low, high = proposal.value_range
            values = (f"{low:.4g} to {high:.4g}", "statistics" if own.has_statistics else "samples")
            chosen = f"{_bound(proposal)}: {_estimate(proposal.outcome)}" if proposal.outcome else ""
            table.append([own.name, *map(_estimate, proposal.shown), chosen])
        elif own.is_exact and proposal.eb is not None:
            table.append([own.name, *[""] * len(BOUNDS), f"exact: {own.packed_ratio:.3g}"])
        if proposal.outcome:
            changes.append([own.name, _bound(proposal), *map(tuning.percent, proposal.outcome.effects)])
        shape = extents(own.shape) or ("single value" if own.is_single else "local")
        rows.append((own.name, own.type, shape, str(own.steps), str(own.blocks or ""), *values))
    print_table(rows, file=file)
    if len(table) > 1:
        print("\nratio / PSNR, estimated, with bounds of these fractions of the value range:", file=file)
        print_table(table, file=file)
    if len(changes) > 1:
        print("\nwhat the chosen bounds do to values that are not 0, estimated:", file=file)
        print_table(changes, file=file)
    remarks = [f"note  {proposal.variable.name}: {proposal.remark}" for proposal in proposals if proposal.remark]
    print("\n".join(["", *remarks]), file=file)


def _bound(proposal: Proposal) -> str:
    assert proposal.eb is not None
    return f"{proposal.eb:g}" + {"abs": "", "rel": " of the range", "pw_rel": " of each"}.get(proposal.mode, "")


def _estimate(outcome: tuning.Outcome) -> str:
    return f"{outcome.ratio:.3g} / {outcome.psnr:.0f}"
