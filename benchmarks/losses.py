"""Losses forward and backward on random batches, compared with plain broadcast versions of the same formulas.

    python benchmarks/losses.py [--sizes 128 512 1024] [--peer DIR] [--only SW-HS]

The plain versions are direct translations of the formulas: every pair of items, or every window, is an axis of a
tensor. `--peer` is a folder with clones of `ladderloss` (cdluminate), `Listwise_ITR` (AAA-Zheng),
`semantic_adaptive_margin` (AndresPMD) and `Beyond-Binary-Supervision-CVPR19` (tjddus9597). Their loss classes are
extracted from their files and run as released. The one exception is SAM's CIDEr, which the release computes in Python
at every step: it is read from the labels.

Values and gradients are compared with relabel's before times are measured, except those of S-NDCG and SAM as
released, which depart from their papers (docs/deviations.md). SAM as released is compared with `form="released"`. The
two versions of a pair run alternately. Times are CPU seconds; a peer that needs more than `--memory` GiB is left out.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Table, alternate, options
from torch import Tensor

from relabel_train import losses as families

Loss = Callable[[Tensor, Tensor], Tensor]


def both_directions(query: Loss) -> Loss:
    """Add the losses of both directions."""
    return lambda s, r: query(s, r) + query(s.T, r.T)


def off_diagonal(s: Tensor) -> Tensor:
    return ~torch.eye(len(s), dtype=torch.bool)


def hardest(s: Tensor, _: Tensor) -> Tensor:
    return (0.2 + s - s.diagonal()[:, None]).clamp(min=0).masked_fill(~off_diagonal(s), 0).amax(dim=1).sum()


def soft(s: Tensor, r: Tensor) -> Tensor:
    masked = (50 * s).masked_fill(r >= 1 - 1e-6, -torch.inf)
    return (masked.logsumexp(dim=1) / 50 - s.diagonal() + 0.2).clamp(min=0).sum()


def kendall(s: Tensor, r: Tensor) -> Tensor:
    counted = r[:, :, None] > r[:, None, :] + (0.2 + 1e-6)
    return ((s[:, None, :] - s[:, :, None]).clamp(min=0) * counted).sum()


def sliding(s: Tensor, r: Tensor) -> Tensor:
    low = (-1 + 0.1 * torch.arange(1, 19))[:, None, None]
    above, below = r >= low + (0.2 - 1e-6), r < low - 1e-6
    least = s.masked_fill(~above, torch.inf).amin(dim=2)
    return (s.masked_fill(~below, -torch.inf).amax(dim=2) - least).clamp(min=0).sum() / 18


def ladder(s: Tensor, r: Tensor, total: bool = False) -> Tensor:
    similar, lower = (r >= 0.63 - 1e-6) & off_diagonal(s), r < 0.63 - 1e-6
    if total:
        first = (0.2 + s - s.diagonal()[:, None]).clamp(min=0).masked_fill(~off_diagonal(s), 0).sum()
        pairs = (0.01 + s[:, None, :] - s[:, :, None]).clamp(min=0)
        return first + 0.25 * (pairs * (similar[:, :, None] & lower[:, None, :])).sum()
    least, most = s.masked_fill(~similar, torch.inf).amin(dim=1), s.masked_fill(~lower, -torch.inf).amax(dim=1)
    return hardest(s, r) + 0.25 * (0.01 - least + most).clamp(min=0).sum()


def sam(s: Tensor, r: Tensor) -> Tensor:
    hardest_items = s.masked_fill(~off_diagonal(s), -torch.inf).argmax(dim=1)
    margin = (r.diagonal() - r.gather(1, hardest_items[:, None])[:, 0]) / 3
    return (margin + s.gather(1, hardest_items[:, None])[:, 0] - s.diagonal()).clamp(min=0).sum()


def ndcg(s: Tensor, r: Tensor) -> Tensor:
    unit = (1 + r) / 2
    gains = 2**unit - 1
    best = 1 + (unit[:, None, :] > unit[:, :, None]).sum(dim=2)
    ranks = 0.5 + torch.sigmoid((s[:, None, :] - s[:, :, None]) / 0.01).sum(dim=2)
    ideal = (gains / torch.log2(1.0 + best)).sum(dim=1)
    return (1 - (gains / torch.log2(1 + ranks)).sum(dim=1) / ideal).mean()


def soft_target(s: Tensor, r: Tensor) -> Tensor:
    target = torch.softmax(r, dim=1)
    return torch.nn.functional.kl_div(torch.log_softmax(s / 0.45, dim=1), target, reduction="batchmean") / 2


def infonce(s: Tensor, _: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(s / 0.07, torch.arange(len(s))) / 2


def graded_sigmoid(s: Tensor, r: Tensor) -> Tensor:
    logits, unit = 10 * s - 10, (1 + r) / 2
    loss = -unit * torch.nn.functional.logsigmoid(logits) - (1 - unit) * torch.nn.functional.logsigmoid(-logits)
    return loss.sum(dim=1).mean() / 2


def squared_distances(f: Tensor) -> Tensor:
    return ((f[:, None, :] - f[None, :, :]) ** 2).sum(dim=2)


def ordered(y: Tensor) -> Tensor:
    """Mark the pairs (A, i, j) in which i is nearer to the anchor than j, and neither is the anchor."""
    used = off_diagonal(y)
    return (y[:, :, None] < y[:, None, :]) & used[:, :, None] & used[:, None, :]


def log_ratio(f: Tensor, y: Tensor) -> Tensor:
    x = torch.log(squared_distances(f) + 1e-6) - torch.log(y + 1e-6)
    pairs = ordered(y)
    return (((x[:, :, None] - x[:, None, :]) ** 2 * pairs).sum(dim=(1, 2)) / pairs.sum(dim=(1, 2))).mean()


def dense_triplet(f: Tensor, y: Tensor) -> Tensor:
    x = squared_distances(torch.nn.functional.normalize(f, dim=1))
    pairs = ordered(y)
    hinges = (x[:, :, None] - x[:, None, :] + 0.03).clamp(min=0) * pairs
    return (hinges.sum(dim=(1, 2)) / pairs.sum(dim=(1, 2))).mean()


# Relabel's loss, the plain version, and the number of tensors of B^3 floats that the plain version holds.
OURS_AND_PLAIN: dict[str, tuple[Loss, Loss, float]] = {
    "triplet, hardest": (families.TripletLoss(), both_directions(hardest), 0),
    "triplet, soft": (families.TripletLoss(negatives="soft"), both_directions(soft), 0),
    "Kendall": (families.KendallLoss(), both_directions(kendall), 4),
    "SW-HS": (families.SlidingWindowKendallLoss(), both_directions(sliding), 0),
    "ladder, hard": (families.LadderLoss(), both_directions(ladder), 0),
    "ladder, sum": (families.LadderLoss(contrast="sum"), both_directions(lambda s, r: ladder(s, r, True)), 4),
    "SAM": (families.SAMLoss(sampling="hard", margin_of="query"), both_directions(sam), 0),
    "S-NDCG": (families.SmoothNDCGLoss(), both_directions(ndcg), 4),
    "soft targets": (families.SoftTargetLoss(), both_directions(soft_target), 0),
    "InfoNCE": (families.MultiPositiveInfoNCE(), both_directions(infonce), 0),
    "graded sigmoid": (families.GradedSigmoidLoss(labels="cosine"), both_directions(graded_sigmoid), 0),
    "log-ratio": (families.LogRatioLoss(), log_ratio, 4),
    "dense triplet": (families.DenseTripletLoss(), dense_triplet, 4),
}


UNEQUAL = {("S-NDCG + triplet", "released"), ("SAM", "released")}
"""Released code that departs from its paper, whose values are not those of relabel's loss: see docs/deviations.md."""


def load_definitions(path: Path, names: set[str], scope: dict[str, Any]) -> dict[str, Any]:
    """Execute the named definitions of a released file in `scope`, without its imports and other code."""
    if not path.is_file():
        raise SystemExit(f"{path} does not exist. Clone the repository into that folder.")
    definitions = [
        n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name in names
    ]
    exec(compile(ast.Module(definitions, []), str(path), "exec"), scope)
    return scope


def released(folder: Path, scores: Tensor, relevance: Tensor) -> dict[str, tuple[Loss, Loss, float]]:
    """Return relabel's loss, the released code, and the number of its tensors of B^3 floats, by name."""
    # Released losses take embeddings. With the identity as captions, scores are the embeddings of images.
    size = len(scores)
    eye = torch.eye(size)
    path = folder / "ladderloss" / "Code" / "ladderloss.py"
    ladder_class = load_definitions(path, {"LadderLoss"}, {"th": torch, "np": np})["LadderLoss"]
    labels = relevance.numpy()
    theirs = ladder_class([0.2, 0.01], thresholds=[0.63], betas=[0.25], reldeg=lambda _: labels)
    ladder_loss = families.LadderLoss(sets="cumulative", fillers=True)
    pairs: dict[str, tuple[Loss, Loss, float]] = {
        "ladder, hard": (ladder_loss, lambda s, _: theirs(s, eye, None, None), 0)
    }
    names = {"TripletSNDCGLoss", "cosine_sim", "l2norm_3d", "sigmoid"}
    scope = {"torch": torch, "nn": torch.nn}
    ndcg_class = load_definitions(folder / "Listwise_ITR" / "model.py", names, scope)["TripletSNDCGLoss"]
    # The released code moves every tensor to a GPU.
    Tensor.cuda = lambda self, *_: self  # type: ignore[method-assign]
    peer = ndcg_class(types.SimpleNamespace(margin=0.2, tau=0.01, sndcg_weight=0.5, batch_size=size))
    ours = families.SmoothNDCGTripletLoss(weight=0.5, directions="mean")
    # The loss computes its labels as cosines of caption embeddings: these vectors have cosines close to the labels.
    values, vectors = torch.linalg.eigh((relevance.double() + relevance.double().T) / 2)
    texts = (vectors * values.clamp(min=0).sqrt()).float()
    five = texts[:, None].expand(-1, 5, -1)
    cosines = torch.nn.functional.normalize(texts, dim=1) @ torch.nn.functional.normalize(texts, dim=1).T
    pairs["S-NDCG + triplet"] = (
        lambda s, _: ours(s, cosines.fill_diagonal_(1)),
        lambda s, _: peer(s, eye, five, texts)[0],
        10,
    )
    released_form, sam_peer = families.SAMLoss(sampling="hard", form="released", clamp=1.0), released_sam(folder, eye)
    compare(f"SAM, {size}, form='released'", released_form, sam_peer, scores, relevance * 3)
    pairs["SAM"] = (families.SAMLoss(sampling="hard", clamp=1.0), sam_peer, 0)
    pairs["log-ratio, one anchor"] = (
        lambda f, y: families.LogRatioLoss(squared=False, ties=True, root_eps=1e-4 / f.shape[1])(f, y[:1]),
        released_log_ratio(folder),
        0,
    )
    return pairs


def released_sam(folder: Path, eye: Tensor) -> Loss:
    """Return SAM as released, with a metric that reads the labels in place of CIDEr, one Python step per caption."""
    path = folder / "semantic_adaptive_margin" / "model_CVSE.py"
    names, scope = {"ContrastiveLoss", "ContrastiveLossMetric"}, {"torch": torch, "nn": torch.nn, "np": np}
    sam_class = load_definitions(path, names, scope | {"Variable": lambda x: x})["ContrastiveLossMetric"]
    # Without its constructor, which loads CIDEr's document frequencies.
    peer = sam_class.__new__(sam_class)
    torch.nn.Module.__init__(peer)
    peer.metric_name, peer.metric_samples, peer.metric_div = "cider", "soft", 3.0
    peer.sim = lambda images, texts: images @ texts.T

    def loss(s: Tensor, r: Tensor) -> Tensor:
        values = r.numpy()

        def compute_score(images: dict[int, int], captions: list[dict[str, Any]]) -> tuple[None, Any]:
            scores = (values[images[c["image_id"]], int(c["caption"][0])] for c in captions)
            return None, np.fromiter(scores, np.float32, len(captions))

        peer.metric = types.SimpleNamespace(compute_score=compute_score)
        value: Tensor = peer(s, eye, list(range(len(s))), [str(i) for i in range(len(s))])
        return value

    return loss


def released_log_ratio(folder: Path) -> Loss:
    """Return the log-ratio loss of one anchor as released; it pairs items by position, so they must be sorted."""
    code = folder / "Beyond-Binary-Supervision-CVPR19" / "code"
    plain = {"torch": torch, "Function": object}
    distance = load_definitions(code / "utils.py", {"L2dist"}, dict(plain))["L2dist"]
    scope = plain | {"L2dist": distance}
    peer = load_definitions(code / "LogRatioLoss.py", {"LogRatioLoss"}, scope)["LogRatioLoss"]()
    return lambda f, y: peer.forward(f, y[0, 1:])


def step(loss: Loss, scores: Tensor, relevance: Tensor) -> tuple[float, Tensor]:
    """Return the value of a loss and its gradient."""
    leaf = scores.detach().requires_grad_()
    value = loss(leaf, relevance)
    value.backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return value.item(), leaf.grad


def compare(name: str, ours: Loss, theirs: Loss, scores: Tensor, relevance: Tensor) -> None:
    """Stop if value or gradient differ."""
    (value, gradient), (other, slope) = step(ours, scores, relevance), step(theirs, scores, relevance)
    worst = float((gradient - slope).abs().max() / slope.abs().max().clamp(min=1e-12))
    if abs(value - other) > 1e-4 * max(1.0, abs(other)) or worst > 1e-2:
        message = f"relabel gives {value}, its peer {other}; gradients differ by {worst:.2g} of the largest gradient"
        raise SystemExit(f"{name}: {message}")


def batch(size: int, name: str) -> tuple[Tensor, Tensor]:
    """Return random scores and labels, or embeddings and label distances."""
    generator = torch.Generator().manual_seed(size)
    if name.startswith("log-ratio") or name == "dense triplet":
        distances = torch.rand(size, size, generator=generator)
        distances[0] = distances[0].sort().values
        return torch.randn(size, 128, generator=generator), distances
    scores = torch.rand(size, size, generator=generator) * 0.6 - 0.1
    # Cosines of random pairs under MiniLM: mean 0.09, standard deviation 0.12; a few pairs are much closer.
    relevance = (torch.randn(size, size, generator=generator) * 0.12 + 0.09).clamp(-0.9, 0.95)
    relevance[torch.rand(size, size, generator=generator) < 0.02] += 0.6
    return scores, ((relevance + relevance.T) / 2).clamp(max=0.99).fill_diagonal_(1)


def main() -> None:
    args = options(__doc__, sizes=[128, 512, 1024], memory=4.0, only=[""], threads=1, repeats=7)
    torch.set_num_threads(args.threads)
    table = Table(f"Losses forward and backward, {args.threads} threads")
    for size in args.sizes:
        works = [(name, "broadcast", *losses) for name, losses in OURS_AND_PLAIN.items()]
        if args.peer:
            works += [(n, "released", *losses) for n, losses in released(args.peer, *batch(size, "")).items()]
        for name, peer, ours, theirs, cubes in works:
            if args.only != [""] and name not in args.only:
                continue
            scores, relevance = batch(size, name)
            pair = {"relabel": lambda o=ours, s=scores, r=relevance: step(o, s, r)}
            if cubes * size**3 * 4 / 2**30 <= args.memory:
                pair[peer] = lambda t=theirs, s=scores, r=relevance: step(t, s, r)
                if (name, peer) not in UNEQUAL:
                    compare(f"{name}, {size}, {peer}", ours, theirs, scores, relevance)
            once = sum(cost.cpu for cost in alternate(pair, 1).values())
            repeats = max(args.repeats, int(1 / once))  # a second of quick losses
            cpu = [cost.cpu * 1e3 for cost in alternate(pair, repeats).values()]
            table.add(f"{size} {name}", "ms", cpu[0], peer, *cpu[1:])
    table.end("losses", args.save, "numpy", "torch")


if __name__ == "__main__":
    main()
