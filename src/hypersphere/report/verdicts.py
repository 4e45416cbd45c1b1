"""The claims' part of RESULTS.md: what they came to, and each with its test."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hypersphere.config import Config
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol
from hypersphere.paper.claims import CLAIMS
from hypersphere.paper.state import Estimate, Evidence
from hypersphere.paper.tables import BYOL, TABLES, UNI
from hypersphere.paper.verdict import Claim, Verdict, judge
from hypersphere.report.pipes import pipes

RULE = """## Claims

Differences of runs with the same seed, the 95 % t-interval of their mean. *Reproduced* if it excludes 0 in the claimed
direction; else *not reproduced* if it excludes the published effect (or, where the paper has no number, if it lies on
the other side); *undecided* otherwise, as of one seed always; *diverged* where no seed has an end. So a smaller effect
than the published one is reproduced. Where something is said to matter little, the bound is half a point, or 5 % of the
time, and what lies beyond it is not reproduced. Times are of runs with the same version, which had the same device to
themselves. Each interval stands for itself: of forty claims without any effect, one would be expected to be reproduced
by chance.

The rule was fixed before the runs that it judges, but for two cases: that without a published number came when one seed
of the circle and of tuned BYOL had run; that of what matters little was mended where the paper has a number, before any
such claim had two seeds. Some claims were written down after runs of theirs: those of the circle and of G2 over
training after the first seed, that without BatchNorm features are less uniform and that powers hardly matter after all
that is here. One was taken away: that uniformity loss improves k-NN accuracy, of which the paper says nothing (see
Neighbours and uniformity).
"""
OF_BATCH = """*{protocol}* sees {seen} images at once where the paper has {published}, and uniformity loss depends on
it. The paper's own tab:batch has BYOL + Uni {there:+.2f} from BYOL at {published} and {here:+.2f} at {seen}, where it
averages the gradients of several such batches{ours}.
What is found of uniformity loss here is of {seen}.
"""
WORDS = ("reproduced", "not reproduced", "undecided", "diverged", "not tested")
Judged = tuple[Claim, Verdict]


def judged(evidence: Evidence, protocol: Protocol) -> list[Judged]:
    """All claims by the paper's protocol; by others, those that could be tested."""
    found = [(claim, judge(claim, evidence, protocol)) for claim in CLAIMS if _is_of(claim, protocol)]
    return [one for one in found if protocol == AS_WRITTEN or one[1].word != "not tested"]


def _is_of(claim: Claim, protocol: Protocol) -> bool:
    return protocol == AS_WRITTEN or all(map(protocol.changes, claim.cells))


def in_short(evidence: Evidence, protocols: Sequence[Protocol]) -> str:
    """Counts, and all that has an interval."""
    parts = ["## In short\n"]
    for protocol in protocols:
        found = judged(evidence, protocol)
        several = [one for one in found if one[1].effect is not None and one[1].effect.n > 1]
        lines = (
            f"- {_sentence(*one, protocol)}\n" for one in sorted(several, key=lambda one: WORDS.index(one[1].word))
        )
        told = f"Of more than one seed:\n\n{''.join(lines)}" if several else "No claim has more than one seed.\n"
        parts.append(f"{str(protocol).capitalize()}: {_counted(found)}. {told}")
    return "\n".join(parts)


def _sentence(claim: Claim, verdict: Verdict, protocol: Protocol) -> str:
    at = f", at {protocol.config(BYOL, 0).batch} images at once (see Claims)" if _is_of_batch(claim, protocol) else ""
    published = "" if claim.published is None else f"; the paper has {claim.published:+.2f}"
    sentence = claim.sentence.removesuffix(".")
    return f"*{verdict.word}*{at}: {sentence}: {claim.metric} {_signed(verdict.effect)}{published}."


def _counted(found: Sequence[Judged]) -> str:
    counts = Counter(verdict.word for _, verdict in found)
    return f"of {len(found)} claims {', '.join(f'{counts[word]} {word}' for word in WORDS if counts[word])}"


def claims(evidence: Evidence, protocol: Protocol) -> str:
    found = judged(evidence, protocol)
    tested = [one for one in found if one[1].word != "not tested"]
    lines = [f"### {str(protocol).capitalize()}", "", f"{_counted(found).capitalize()}.", ""]
    lines += [_of_batch(evidence, protocol)] * any(_is_of_batch(claim, protocol) for claim, _ in tested)
    header = ("claim", "test", "published effect", "our effect", "verdict")
    lines += [*pipes(header, (_row(*one) for one in tested)), ""] if tested else []
    if len(tested) < len(found):
        rest = (
            (claim.sentence, claim.test, _published(claim)) for claim, verdict in found if verdict.word == "not tested"
        )
        lines += [f"<details><summary>Not tested: {len(found) - len(tested)}</summary>", ""]
        lines += [*pipes(header[:3], rest), "", "</details>", ""]
    return "\n".join(lines)


def _row(claim: Claim, verdict: Verdict) -> Iterable[str]:
    yield claim.sentence
    yield claim.test
    yield _published(claim)
    yield _signed(verdict.effect)
    yield verdict.word + (f", {verdict.diverged} diverged" if verdict.diverged and verdict.effect else "")


def _published(claim: Claim) -> str:
    return "" if claim.published is None else f"{claim.published:+.2f}"


def _signed(effect: Estimate | None) -> str:
    return "" if effect is None else f"{effect.mean:+z.2f}" + str(effect).removeprefix(f"{effect.mean:z.2f}")


def _is_of_batch(claim: Claim, protocol: Protocol) -> bool:
    """Whether it speaks of a loss that depends on the batch, by a protocol with another batch than the paper's."""
    ours, written = (_configs(claim.cells, of) for of in (protocol, AS_WRITTEN))
    return any(config.uniformity > 0 for config in ours) and [c.batch for c in ours] != [c.batch for c in written]


def _configs(cells: Sequence[Cell], protocol: Protocol) -> list[Config]:
    return [protocol.config(cell, 0) for cell in cells]


def _of_batch(evidence: Evidence, protocol: Protocol) -> str:
    accuracy = {row.labels: row.published["top-1"] for row in TABLES["tab:batch"].rows}
    published, seen = (of.config(BYOL, 0).batch for of in (AS_WRITTEN, protocol))
    there, here = (accuracy["BYOL + Uni", f"{n}"] - accuracy["BYOL", f"{n}"] for n in (published, seen))
    found = judge(Claim("", "top-1", UNI, BYOL, here), evidence, protocol).effect
    told = ""
    if found is not None and found.half_width is not None:
        told = f"; our interval {'contains' if abs(found.mean - here) <= found.half_width else 'excludes'} the latter"
    name = str(protocol).capitalize()
    return OF_BATCH.format(protocol=name, published=published, seen=seen, there=there, here=here, ours=told)
