"""The claims' part of RESULTS.md: the rule, each claim with its test, and what the rule before it said."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hypersphere.config import Config
from hypersphere.paper.cells import AS_WRITTEN, Cell, Protocol, Table
from hypersphere.paper.claim import Claim, difference
from hypersphere.paper.claims import CLAIMS, NETWORKS, factorial, interactions
from hypersphere.paper.history import REASONS, VERSION_1
from hypersphere.paper.tables import BYOL, TABLES, UNI
from hypersphere.paper.verdict import WORDS, Judge, Verdict
from hypersphere.report.pipes import pipes

RULE = """## Claims

**The rule, version 2.** An effect is a difference, or another combination, of cells' means over all of their seeds;
seeds are not paired. A seed that diverged counts as the worst result. The standard error comes from one variance,
pooled over all cells of a protocol, dataset and encoder: cells with two seeds or more whose variances Bartlett's test
finds equal at 5 %. A claim with another cell, and every claim about time, has Welch's error. Claims of one family (all
of tab:sections against BYOL, say) are judged together: by Dunnett if they share a control, else by Bonferroni, so that
in 95 % of all cases none of them is decided by chance.

- *Reproduced*: the family's interval lies on the claimed side of 0, or of the bound if something is said to hardly
  matter.
- *Smaller than published*: reproduced, but the claim's own 95 % interval lies below the published effect.
- *Opposite*: the family's interval lies on the other side.
- *No effect*: the claim's own 95 % interval lies inside ± 0.5 points (main effects: ± 0.3) and does not contain the
  published effect.
- *Undecided*: everything else, and every claim with a cell of one seed. *Could have seen* is the effect that would have
  been found with 80 % probability.

A published effect most likely is one run on 5,000 images for each cell: all 29 accuracies of the CIFAR-10 ablations end
in an even hundredth. Its interval is that of the binomial error. Two claims of +0.06 (BYOL + Uni over BYOL-MHE on
CIFAR-10 and CIFAR-100) were dropped: 213 seeds would be needed. Times are of runs of the same code that had the same
device to themselves. `docs/reproduce.md` says how often the rule errs, by simulation.
"""
BEFORE = """### Version 1 of the rule

{reasons}

"""
FACTORIAL = """### tab:sections as one model

Main effects of regularizing the encoder (f), the projector (g) and the predictor (q), and their interactions: each uses
all runs of the eight cells. An interaction of two is half of how much one changes the effect of the other. Points of
linear accuracy.

"""
OF_BATCH = """*{protocol}* sees {seen} images at once where the paper has {published}, and uniformity loss depends on
it. The paper's own tab:batch has BYOL + Uni {there:+.2f} from BYOL at {published} and {here:+.2f} at {seen}, where it
averages the gradients of several such batches{ours}. What is found of uniformity loss here is of {seen}.
"""
Judged = tuple[Claim, Verdict]


def claims_part(judge: Judge, protocols: Sequence[Protocol]) -> list[str]:
    parts = [RULE, *(_claims(judge, protocol) for protocol in protocols)]
    return [*parts, _factorial(judge, protocols), _version_1(judge)]


def untested(judge: Judge, protocols: Sequence[Protocol]) -> str:
    """Claims that no protocol has runs of."""
    rest = [c for c in CLAIMS if all(judge(c, p).word == "not tested" for p in (AS_WRITTEN, *protocols))]
    rows = ((claim.sentence, claim.test, published(claim)) for claim in rest)
    return folded(f"Claims without runs: {len(rest)}", pipes(("claim", "test", "published effect"), rows))


def folded(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"<details><summary>{title}</summary>", "", *lines, "", "</details>", ""])


def _claims(judge: Judge, protocol: Protocol) -> str:
    found = [(claim, judge(claim, protocol)) for claim in CLAIMS]
    tested = [one for one in found if one[1].word != "not tested"]
    if not tested:
        return ""
    tested.sort(key=lambda one: WORDS.index(one[1].word))
    lines = [f"### {str(protocol).capitalize()}", "", f"{_counted(tested)}.", ""]
    lines += [_of_batch(judge, protocol)] * any(_depends_on_batch(claim, protocol) for claim, _ in tested)
    header = ("claim", "test", "published effect", "our effect", "verdict")
    known = [one for one in tested if one[1].effect is not None and one[1].effect.spread]
    single = [one for one in tested if one not in known]
    lines += [*pipes(header, (_row(*one) for one in known)), ""] if known else []
    if single:
        rows = ((*_row(*one),)[:-1] for one in single)
        lines += [folded(f"Undecided, a cell has one seed: {len(single)}", pipes(header[:-1], rows))]
    return "\n".join(lines)


def _counted(found: Sequence[Judged]) -> str:
    counts = Counter(verdict.word for _, verdict in found)
    told = ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])
    return f"Of {len(found)} claims {told}"


def _row(claim: Claim, verdict: Verdict) -> Iterable[str]:
    yield claim.sentence
    yield claim.test
    yield published(claim)
    yield "" if verdict.effect is None else str(verdict.effect)
    yield verdict.told


def published(claim: Claim) -> str:
    if claim.published is None:
        return ""
    return f"{claim.published:+.2f} ± {claim.published_half_width:.2f}"


def _factorial(judge: Judge, protocols: Sequence[Protocol]) -> str:
    table = TABLES["tab:sections"]
    effects = [*_effects_of(table)]
    found = {p: [judge.effect(claim, p) for _, claim in effects] for p in protocols}
    shown = {p: of for p, of in found.items() if any(effect is not None for effect in of)}
    header = ("effect", "published", *(f"ours {protocol}" for protocol in shown))
    columns = [[str(effect or "") for effect in of] for of in shown.values()]
    rows = ([name, published(claim), *(c[at] for c in columns)] for at, (name, claim) in enumerate(effects))
    return FACTORIAL + "\n".join([*pipes(header, rows), ""])


def _effects_of(table: Table) -> Iterable[tuple[str, Claim]]:
    letters = dict(zip(NETWORKS, "fgq", strict=True))
    for network in NETWORKS:
        yield letters[network], Claim("", "top-1", factorial(table, network))
    for claim in interactions(table):
        names = claim.sentence.removeprefix("Interaction of ").split(" × ")
        yield " × ".join(letters[name] for name in names), claim


def _version_1(judge: Judge) -> str:
    by_sentence = {claim.sentence: claim for claim in CLAIMS}
    rows = []
    for sentence, protocol, effect, word in VERSION_1:
        now = judge(by_sentence[sentence], protocol)
        rows.append((sentence, str(protocol), effect, word, str(now.effect or ""), now.told))
    header = ("claim", "protocol", "effect, version 1", "verdict, version 1", "effect now", "verdict now")
    return BEFORE.format(reasons=REASONS) + "\n".join([*pipes(header, rows), ""])


def _depends_on_batch(claim: Claim, protocol: Protocol) -> bool:
    """Whether it speaks of a loss that depends on the batch, by a protocol with another batch than the paper's."""
    ours, written = (_configs(claim.cells, of) for of in (protocol, AS_WRITTEN))
    return any(config.uniformity > 0 for config in ours) and [c.batch for c in ours] != [c.batch for c in written]


def _configs(cells: Sequence[Cell], protocol: Protocol) -> list[Config]:
    return [protocol.config(cell, 0) for cell in cells]


def _of_batch(judge: Judge, protocol: Protocol) -> str:
    accuracy = {row.labels[:2]: row.published["top-1"] for row in TABLES["tab:batch"].rows}
    written, seen = (of.config(BYOL, 0).batch for of in (AS_WRITTEN, protocol))
    there, here = (accuracy["BYOL + Uni", f"{n}"] - accuracy["BYOL", f"{n}"] for n in (written, seen))
    found = judge.effect(Claim("", "top-1", difference(UNI, BYOL)), protocol)
    told = ""
    if found is not None and found.half_width is not None:
        told = f"; our interval {'contains' if abs(found.mean - here) <= found.half_width else 'excludes'} the latter"
    name = str(protocol).capitalize()
    return OF_BATCH.format(protocol=name, published=written, seen=seen, there=there, here=here, ours=told)
