"""IPSeg: image posterior and semantics decoupling (section 3 of the paper), each part switchable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.data.batch import Batch, BatchPlan, StepBatch, join
from ipseg.methods.base import NO_STEP, ParameterGroup, Prediction
from ipseg.methods.ipseg_config import IPSegConfig
from ipseg.methods.ipseg_inference import Branches, answer, pixel_scores
from ipseg.methods.labels import (
    NEITHER,
    class_labels,
    classes_present,
    coupled_labels,
    permanent_labels,
    temporary_labels,
    where_unlabelled,
)
from ipseg.methods.losses import image_bce, pixel_bce
from ipseg.methods.replay import rehearsed
from ipseg.methods.views import Views
from ipseg.model.freezing import freeze_norms, frozen_copy, switch, trainable
from ipseg.model.heads import PURE_BACKGROUND, UNKNOWN, Head
from ipseg.model.moments import Moments
from ipseg.model.network import Features, Network, logits_of
from ipseg.model.posterior import Posterior
from ipseg.scenario.split import IGNORE, Step


class IPSeg:
    """Heads that grow, a posterior that realigns them, and two kinds of semantics taught apart."""

    def __init__(self, config: IPSegConfig, network: Network) -> None:
        self.config, self.network = config, network
        self.step = NO_STEP
        self._previous: Branches | None = None
        self._views: Views | None = None

    # ---- the life of a step -------------------------------------------------------------------------------------

    def begin_step(self, step: Step) -> None:
        """Keep what f_{t-1} needs, freeze what it shares with us, and add the step's head."""
        network = self.network
        self.step = step
        self._previous, self._views = _previous_of(network) if step.index > 0 else None, None
        extra = 2 if self.config.decoupling else 0
        head = network.grow(extra + len(step.new), len(step.new))
        if self._previous is None:
            return
        rows = [UNKNOWN, PURE_BACKGROUND][:extra] + [UNKNOWN] * len(step.new)  # c_f is in the same row as c'_u
        head.start_from(self._begun_as(), rows)
        network.freeze_the_past()
        if self.config.norm_weights == "frozen":
            freeze_norms(network)

    def _begun_as(self) -> Head:
        """What a new head begins as a copy of."""
        network = self.network
        known = self.config.decoupling and self.config.new_head == "base"
        return cast("Head", network.temporary[0]) if known else network.permanent

    def train_mode(self) -> None:
        """After the base step batch statistics stay as they are, everywhere; only the posterior has dropout then."""
        network, base = self.network, self._previous is None
        network.training = base
        for part in network.children():
            switch(part, training=base or part is network.posterior)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Base: everything, the backbone slower. Later: newest head, posterior, and slowly the permanent branch."""
        network, config, base = self.network, self.config, self._previous is None
        groups = [
            ParameterGroup(trainable(network.encoder.backbone), config.backbone_lr),
            ParameterGroup(trainable(network.encoder.decoder) + trainable(network.temporary), 1.0),
            ParameterGroup(trainable(network.permanent), 1.0 if base else config.permanent_lr),
        ]
        if network.posterior is not None:
            groups.append(ParameterGroup(trainable(network.posterior), config.posterior_lr))
        return [group for group in groups if group.parameters]

    def plan(self, batch_size: int, memory: int) -> BatchPlan:
        """Half of a batch rehearses; the posterior sees current pictures in the proportion of their classes."""
        posterior = self.config.trains_posterior
        if not memory or self._previous is None:
            return BatchPlan(batch_size, image_level=batch_size if posterior else 0)
        replayed = rehearsed(batch_size, self.config.rehearsal)
        current = batch_size - replayed
        if not posterior:
            return BatchPlan(current, replayed)
        judged = min(self._posterior_current(batch_size), current)
        wholes = max(batch_size, 2) - judged  # a batch of one has a remembered picture beside it
        return BatchPlan(current, replayed, wholes if self._views is None else 0, judged)

    def _posterior_current(self, batch_size: int) -> int:
        if self.config.posterior_current is not None:
            return max(1, round(batch_size * self.config.posterior_current))
        return max(1, batch_size * len(self.step.new) // len(self.step.seen))

    @torch.no_grad()
    def prepare(self, batches: Iterable[StepBatch]) -> None:
        """With fixed views: what the encoder says of remembered pictures, which does not change any more."""
        if self.config.posterior_views == "random" or not self.config.trains_posterior or self._previous is None:
            return
        switch(self.network, training=False)
        asked = self.config.pseudo_labels_on == "everywhere"
        seen = [self._seen(batch.wholes, asked=asked) for batch in batches if batch.wholes is not None]
        if seen:
            pooled, labels = (torch.cat(parts) for parts in zip(*seen, strict=True))
            self._views = Views(pooled, labels, len(seen[0][0]))

    def _seen(self, pictures: Batch, *, asked: bool) -> tuple[Tensor, Tensor]:
        """The posterior's view of pictures, and which classes they hold; the previous heads are asked too, or not."""
        features = self.network.encoder(pictures.images, pictures.boxes, decoded=len(pictures) if asked else 1)
        past = self._past_scores(features, self._past(features)) if asked else None
        return features.pooled, self._image_labels(pictures, past)

    @torch.no_grad()
    def end_step(self, batches: Iterable[StepBatch]) -> None:
        """A posterior of moments learns here, from the labels of `image_labels`; one that is trained has done so."""
        if isinstance(self.network.posterior, Moments):
            switch(self.network, training=False)
            asked = self.config.image_labels == "pseudo"
            self.network.posterior.learn(self._seen(batch.crops, asked=asked) for batch in batches)

    # ---- learning -----------------------------------------------------------------------------------------------

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Eq. 7: L_IP + lambda_1 L_current + lambda_2 L_p, on one pass over all pictures of the batch."""
        crops, pictures = batch.crops, batch.crops if batch.wholes is None else join([batch.crops, batch.wholes])
        asked = len(pictures) if self.config.pseudo_labels_on == "everywhere" else batch.image_level
        with torch.set_grad_enabled(self._previous is None):
            features = self.network.encoder(pictures.images, pictures.boxes, decoded=max(len(crops), asked))
        of_crops = features[: len(crops)]
        past = self._past(of_crops)
        teach = self._decoupled if self.config.decoupling else self._coupled
        parts = teach(of_crops, crops, self._old_classes(past, crops.labels))
        if isinstance(self.network.posterior, Posterior):
            labels = self._image_labels(pictures, self._past_scores(features[:asked], past))
            pooled, labels = (_first_and_wholes(x, batch) for x in (features.pooled, labels))
            if self._views is not None:
                pooled, labels = self._views.join(pooled, labels)
            parts["image"] = image_bce(self.network.posterior(pooled).float(), labels)
        return parts

    def _decoupled(self, features: Features, crops: Batch, old_class: Tensor) -> dict[str, Tensor]:
        """Eq. 6: each branch learns its own semantics."""
        y, salient = crops.labels, crops.salient
        current = logits_of(self.network.temporary[-1], features)
        permanent = logits_of(self.network.permanent, features)
        first = 1 + len(self.step.old)
        loss_current = pixel_bce(current, temporary_labels(y, salient, first))
        known = NEITHER if self.config.known_classes == "negative" else IGNORE
        loss_permanent = pixel_bce(permanent, permanent_labels(y, old_class > 0, salient, known))
        if self.config.class_loss == "twice":
            loss_permanent = loss_permanent + pixel_bce(current[:, PURE_BACKGROUND + 1 :], class_labels(y, first))
        return {
            "current": self.config.lambda_current * loss_current,
            "permanent": self.config.lambda_permanent * loss_permanent,
        }

    def _coupled(self, features: Features, crops: Batch, old_class: Tensor) -> dict[str, Tensor]:
        """Without decoupling: one binary cross-entropy over unknown, background and all classes, as SSUL."""
        heads = [self.network.permanent, *self.network.temporary]
        logits = torch.cat([logits_of(head, features) for head in heads], dim=1)
        weight = self.config.lambda_current + self.config.lambda_permanent
        return {"segmentation": weight * pixel_bce(logits, coupled_labels(crops.labels, old_class, crops.salient))}

    def _image_labels(self, pictures: Batch, past: Tensor | None) -> Tensor:
        """Y~ of Eq. 2: ground truth after the crop, or the stored label, and the previous heads' pseudo-labels.

        past: (b, 1 + C_old, H, W), the scores that give pseudo-labels, in the first pictures.
        """
        classes = pictures.stored.shape[1]
        if self.config.image_labels == "full":
            assert pictures.full is not None
            return classes_present(pictures.full, classes)
        labels = classes_present(pictures.labels, classes) | pictures.stored
        if past is not None:
            found, y = past.max(1).indices, pictures.labels[: len(past)]
            everywhere = self.config.pseudo_labels_on == "everywhere"
            seen = self.image_classes(found.where(y != IGNORE, IGNORE) if everywhere else where_unlabelled(found, y))
            labels[: len(seen), : len(self.step.old)] |= seen[:, : len(self.step.old)]
        return labels

    def image_classes(self, labels: Tensor) -> Tensor:
        """Classes that have more than the smallest share of the picture."""
        return classes_present(labels, len(self.step.seen), self.config.pseudo_min_share)

    # ---- the previous model -------------------------------------------------------------------------------------

    @torch.no_grad()
    def _past(self, features: Features) -> Prediction | None:
        """What f_{t-1} answers; nothing in the base step.

        For SSUL unknown and background are rivals here, and join at inference only.
        """
        previous = self._previous
        return None if previous is None else answer(previous, features, self.config, rivals=not self.config.decoupling)

    @torch.no_grad()
    def _past_scores(self, features: Features, past: Prediction | None) -> Tensor | None:
        """What gives image-level pseudo-labels, if they are wanted: every old head, or f_{t-1}.

        The heads without the posterior, which must not confirm itself.

        past: what f_{t-1} answers, of these pictures or of others after them too.
        """
        if past is None or self._previous is None or self.config.image_labels != "pseudo":
            return None
        wanted = len(features.decoded)
        if self.config.pseudo_labels_by == "model":
            whole = past if wanted <= len(past.scores) else self._past(features)
            return None if whole is None else whole.scores[:wanted]
        if past.pixel is not None and wanted <= len(past.pixel):
            return past.pixel[:wanted]
        return pixel_scores(self._previous, features, self.config)

    def _old_classes(self, past: Prediction | None, like: Tensor) -> Tensor:
        """(B, H, W): the class that f_{t-1} sees, where it is sure; 0 elsewhere."""
        if past is None:
            return torch.zeros_like(like)
        best, winner = past.scores.max(1)
        if self.config.threshold == 0:
            return winner
        prior = 1.0 if past.posterior is None else _of_winner(past.posterior, self.config.alpha_bc, winner)
        return winner.where(best >= self.config.threshold * prior, 0)

    @torch.no_grad()
    def previous_classes(self, images: Tensor, boxes: Tensor | None = None) -> Tensor:
        """(B, H, W): where f_{t-1}, the model as it stood after the last step, sees an old class; 0 elsewhere."""
        switch(self.network, training=False)
        past = self._past(self.network.encoder(images, boxes))
        return self._old_classes(past, images[:, 0].long())

    # ---- inference ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Eq. 3, 4, 8 and 9."""
        network = self.network
        switch(network, training=False)
        today = Branches(network.permanent, list(network.temporary), network.posterior)
        return answer(today, network.encoder(images, boxes), self.config)


def _previous_of(network: Network) -> Branches:
    """f_{t-1}: the model as it stands before a step begins.

    It shares the encoder and the old heads, which no longer change; the permanent branch and the posterior go on
    learning, so they are copies.
    """
    posterior = None if network.posterior is None else frozen_copy(network.posterior)
    return Branches(frozen_copy(network.permanent), list(network.temporary), posterior)


def _first_and_wholes(x: Tensor, batch: StepBatch) -> Tensor:
    """The rows of the pictures of Eq. 2: some current crops and whole remembered pictures."""
    return torch.cat([x[: batch.image_level], x[len(batch.crops) :]])


def _of_winner(posterior: Tensor, alpha_bc: float, winner: Tensor) -> Tensor:
    """What Eq. 3 multiplied the winner's score by, in every pixel."""
    prior = F.pad(posterior, (1, 0), value=alpha_bc)
    return prior.gather(1, winner.flatten(1)).view_as(winner)
