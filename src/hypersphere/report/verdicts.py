"""The tables of claims in RESULTS.md: verdicts, effects of the factorial, and the verdicts of version 1."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hypersphere.paper.cells import AS_WRITTEN, Protocol, Table
from hypersphere.paper.claim import Claim
from hypersphere.paper.claims import CLAIMS, NETWORKS, factorial, interactions
from hypersphere.paper.history import VERSION_1
from hypersphere.paper.tables import BYOL, TABLES, UNI
from hypersphere.paper.verdict import WORDS, Judge, Verdict
from hypersphere.report.markdown_blocks import folded, pipe_table

Judged = tuple[Claim, Verdict]


def untested(judge: Judge, protocols: Sequence[Protocol]) -> str:
    """Claims without runs in any protocol."""
    rest = [c for c in CLAIMS if all(judge(c, p).word == "not tested" for p in (AS_WRITTEN, *protocols))]
    rows = ((claim.sentence, claim.test, published(claim)) for claim in rest)
    return folded(f"Claims without runs: {len(rest)}", pipe_table(("claim", "test", "published effect"), rows))


def verdicts(judge: Judge, protocol: Protocol) -> str:
    """Verdicts on all claims by a protocol; empty if none has been tested."""
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


def factorial_table(judge: Judge, protocols: Sequence[Protocol]) -> str:
    """Main effects and interactions of the networks in tab:sections."""
    table = TABLES["tab:sections"]
    effects = [*_effects_of(table)]
    found = {p: [judge.effect(claim, p) for _, claim in effects] for p in protocols}
    shown = {p: of for p, of in found.items() if any(effect is not None for effect in of)}
    header = ("effect", "published", *(f"ours {protocol}" for protocol in shown))
    columns = [[str(effect or "") for effect in of] for of in shown.values()]
    rows = ([name, published(claim), *(c[at] for c in columns)] for at, (name, claim) in enumerate(effects))
    return "\n".join(pipe_table(header, rows))


def _effects_of(table: Table) -> Iterable[tuple[str, Claim]]:
    letters = dict(zip(NETWORKS, "fgq", strict=True))
    for network in NETWORKS:
        yield letters[network], Claim("", "top-1", factorial(table, network))
    for claim in interactions(table):
        names = claim.sentence.removeprefix("Interaction of ").split(" × ")
        yield " × ".join(letters[name] for name in names), claim


def version_1_table(judge: Judge) -> str:
    """Verdicts of version 1 of the rule beside those of version 2."""
    by_sentence = {claim.sentence: claim for claim in CLAIMS}
    rows = []
    for sentence, protocol, effect, word in VERSION_1:
        now = judge(by_sentence[sentence], protocol)
        rows.append((sentence, str(protocol), effect, word, str(now.effect or ""), now.description))
    header = ("claim", "protocol", "effect, version 1", "verdict, version 1", "effect now", "verdict now")
    return "\n".join(pipe_table(header, rows))


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
