"""The part of RESULTS.md about claims: the rule, each claim with its verdict, and the verdicts of the rule before."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hypersphere.paper.cells import AS_WRITTEN, Protocol, Table
from hypersphere.paper.claim import Claim
from hypersphere.paper.claims import CLAIMS, NETWORKS, factorial, interactions
from hypersphere.paper.history import REASONS, VERSION_1
from hypersphere.paper.tables import BYOL, TABLES, UNI
from hypersphere.paper.verdict import WORDS, Judge, Verdict
from hypersphere.report.markdown_blocks import folded, pipe_table

RULE = """## Claims

**The rule, version 2.** An effect is a difference, or another combination, of cells' means over all of their seeds;
seeds are not paired. A seed that diverged counts as the worst result. The standard error comes from one variance,
pooled over all cells of a protocol, dataset, encoder, normalization and optimizer: those with two seeds or more, none
diverged or collapsed, whose variances Bartlett's test finds equal at 5 %. If the error of the claim's own cells
(Welch's) is larger, that is taken. A claim with another cell, and every claim about time, has Welch's error. Claims of
one family (all of tab:sections against BYOL, say) have intervals that hold together, by Dunnett if they share a
control, else by Bonferroni: in 95 % of all cases no claim of the family is called reproduced or opposite by chance.
Each protocol is judged by itself.

- *Reproduced*: the family's interval lies on the claimed side of 0, or of the bound if something is said to hardly
  matter.
- *Smaller than published*: reproduced, but the published effect is larger by more than both errors explain.
- *Opposite*: the family's interval lies on the other side.
- *No effect*: the claim's own 95 % interval lies inside ± 0.5 points (main effects: ± 0.3) and does not contain the
  published value.
- *Undecided*: everything else, and every claim with a cell of one seed. *Could have seen* is the smallest
  effect (or distance from a bound) that these seeds would find with 80 % probability.

The text says that the ablations are averages of three runs. But all 29 accuracies of the CIFAR-10 ablations end in an
even hundredth, which averages of three would not, and single runs on 5,000 images do. So a published effect is taken
for one run on 5,000 images in each cell, with the binomial error of that (an upper bound if the images are the same).
Two claims of +0.06 (BYOL + Uni over BYOL-MHE on CIFAR-10 and CIFAR-100) were dropped: 213 seeds would be needed. Times
are of runs of the same code that had the same device to themselves. `docs/reproduce.md` says how often the rule errs,
by simulation.
"""
BEFORE = """### Version 1 of the rule

{reasons}

"""
FACTORIAL = """### tab:sections as one model

Main effects of regularizing the encoder (f), the projector (g) and the predictor (q), and their interactions: each uses
all runs of the eight cells. An interaction of two is half of how much one changes the effect of the other. Points of
linear accuracy.

"""
Judged = tuple[Claim, Verdict]


def claims_part(judge: Judge, protocols: Sequence[Protocol]) -> list[str]:
    """Paragraphs of the part."""
    parts = [RULE, *(_claims(judge, protocol) for protocol in protocols)]
    return [*parts, _factorial(judge, protocols), _version_1(judge)]


def untested(judge: Judge, protocols: Sequence[Protocol]) -> str:
    """Claims without runs in any protocol."""
    rest = [c for c in CLAIMS if all(judge(c, p).word == "not tested" for p in (AS_WRITTEN, *protocols))]
    rows = ((claim.sentence, claim.test, published(claim)) for claim in rest)
    return folded(f"Claims without runs: {len(rest)}", pipe_table(("claim", "test", "published effect"), rows))


def _claims(judge: Judge, protocol: Protocol) -> str:
    found = [(claim, judge(claim, protocol)) for claim in CLAIMS]
    tested = [one for one in found if one[1].word != "not tested"]
    if not tested:
        return ""
    tested.sort(key=lambda one: WORDS.index(one[1].word))
    lines = [f"### {str(protocol).capitalize()}", "", f"{_counted(tested)}.", ""]
    header = ("claim", "test", "published effect", "our effect", "family's interval", "verdict")
    known = [one for one in tested if one[1].effect is not None and one[1].effect.spread]
    single = [one for one in tested if one not in known]
    lines += [*pipe_table(header, (_row(*one, protocol) for one in known)), ""] if known else []
    if single:
        rows = ((*_row(*one, protocol),)[:-2] for one in single)
        lines += [folded(f"Undecided, a cell has one seed: {len(single)}", pipe_table(header[:-2], rows))]
    return "\n".join(lines)


def _counted(found: Sequence[Judged]) -> str:
    counts = Counter(verdict.word for _, verdict in found)
    if len(counts) == 1:
        return f"All {len(found)} claims are {next(iter(counts))}"
    words = ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])
    return f"Of {len(found)} claims {words}"


def _row(claim: Claim, verdict: Verdict, protocol: Protocol) -> Iterable[str]:
    yield claim.sentence
    yield claim.test
    yield published(claim)
    yield ("" if verdict.effect is None else str(verdict.effect)) + of_batch(claim, protocol)
    yield "" if verdict.half_width is None else f"± {verdict.half_width:.2f}"
    yield verdict.description


def published(claim: Claim) -> str:
    """The published effect with its interval; empty if nothing was published."""
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
    return FACTORIAL + "\n".join([*pipe_table(header, rows), ""])


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
        rows.append((sentence, str(protocol), effect, word, str(now.effect or ""), now.description))
    header = ("claim", "protocol", "effect, version 1", "verdict, version 1", "effect now", "verdict now")
    return BEFORE.format(reasons=REASONS) + "\n".join([*pipe_table(header, rows), ""])


def of_batch(claim: Claim, protocol: Protocol) -> str:
    """A remark on claims about the uniformity loss, which depends on the batch, if the protocol changes the batch.

    The remark says what the paper reports for that batch.
    """
    ours, written = ([of.config(cell, 0) for cell in claim.cells] for of in (protocol, AS_WRITTEN))
    if not any(config.uniformity > 0 for config in ours) or [c.batch for c in ours] == [c.batch for c in written]:
        return ""
    remark = f", at {ours[0].batch} images at once"
    if claim.cells == (UNI, BYOL) and claim.metric == "top-1":
        accuracy = {row.labels[:2]: row.published["top-1"] for row in TABLES["tab:batch"].rows}
        there = accuracy["BYOL + Uni", f"{ours[0].batch}"] - accuracy["BYOL", f"{ours[0].batch}"]
        remark += f", where the paper's tab:batch has {there:+.2f}"
    return remark
