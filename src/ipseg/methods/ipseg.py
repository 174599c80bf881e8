"""IPSeg: image posterior and semantics decoupling (section 3 of the paper), each part switchable."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ipseg.data.batch import Batch, BatchPlan, StepBatch, join
from ipseg.methods.base import ParameterGroup, Prediction
from ipseg.methods.ipseg_config import IPSegConfig
from ipseg.methods.labels import NEITHER, classes_present, coupled_labels, permanent_labels, temporary_labels
from ipseg.methods.losses import image_bce, pixel_bce
from ipseg.model.fusion import filter_noise, fuse
from ipseg.model.heads import OTHER_FOREGROUND, PURE_BACKGROUND, UNKNOWN, Head
from ipseg.model.network import Features, Network, freeze, trainable
from ipseg.model.posterior import Posterior
from ipseg.scenario.split import IGNORE, Step


class IPSeg:
    """Heads that grow, a posterior that realigns them, and two kinds of semantics taught apart."""

    def __init__(self, config: IPSegConfig, network: Network) -> None:
        self.config, self.network = config, network
        self.step = Step(-1, (), (), ())  # none yet
        self._previous: _Previous | None = None

    # ---- the life of a step -------------------------------------------------------------------------------------

    def begin_step(self, step: Step) -> None:
        """Keep what f_{t-1} needs, freeze what it shares with us, and add the step's head."""
        network = self.network
        self.step = step
        self._previous = _Previous(network) if step.index > 0 else None
        extra = 2 if self.config.decoupling else 0
        head = network.grow(extra + len(step.new), len(step.new))
        if self._previous is None:
            return
        head.start_from(network.permanent, [UNKNOWN, PURE_BACKGROUND][:extra] + [UNKNOWN] * len(step.new))
        freeze(network.encoder)
        for old in network.temporary[:-1]:
            freeze(old)

    def train_mode(self) -> None:
        """After the base step batch statistics stay as they are, everywhere; only the posterior has dropout then."""
        self.network.train(self._previous is None)
        if self.network.posterior is not None:
            self.network.posterior.train()

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
        if not memory or self._previous is None:
            return BatchPlan(batch_size)
        rehearsed = min(int(batch_size * self.config.rehearsal), batch_size - 1)
        wholes = batch_size - self._posterior_current(batch_size) if self.config.image_posterior else 0
        return BatchPlan(batch_size - rehearsed, rehearsed, wholes)

    def _posterior_current(self, batch_size: int) -> int:
        if self.config.posterior_current is not None:
            return max(1, round(batch_size * self.config.posterior_current))
        return max(1, batch_size * len(self.step.new) // len(self.step.seen))

    # ---- learning -----------------------------------------------------------------------------------------------

    def loss(self, batch: StepBatch) -> Mapping[str, Tensor]:
        """Eq. 7: L_IP + lambda_1 L_current + lambda_2 L_p, on one pass over all pictures of the batch."""
        crops, pictures = batch.crops, batch.crops if batch.wholes is None else join([batch.crops, batch.wholes])
        with torch.set_grad_enabled(self._previous is None):
            features = self.network.encoder(pictures.images, pictures.boxes)
        everywhere = self.config.pseudo_labels_on == "everywhere"
        past = self._past(features if everywhere else features[: len(crops)])
        old_class = self._old_classes(features[: len(crops)], past)
        teach = self._decoupled if self.config.decoupling else self._coupled
        parts = teach(features[: len(crops)], crops, old_class)
        if self.network.posterior is not None:
            labels = self._image_labels(pictures, past)
            rows = self._posterior_rows(batch)
            parts["image"] = image_bce(self.network.posterior(features.pooled[rows]).float(), labels[rows])
        return parts

    def _decoupled(self, features: Features, crops: Batch, old_class: Tensor) -> dict[str, Tensor]:
        """Eq. 6: each branch learns its own semantics."""
        y, salient = crops.labels, crops.salient
        current = self._logits(self.network.temporary[-1], features)
        permanent = self._logits(self.network.permanent, features)
        loss_current = pixel_bce(current, temporary_labels(y, salient, first=1 + len(self.step.old)))
        known = NEITHER if self.config.known_classes == "negative" else IGNORE
        loss_permanent = pixel_bce(permanent, permanent_labels(y, old_class > 0, salient, known))
        return {
            "current": self.config.lambda_current * loss_current,
            "permanent": self.config.lambda_permanent * loss_permanent,
        }

    def _coupled(self, features: Features, crops: Batch, old_class: Tensor) -> dict[str, Tensor]:
        """Without decoupling: one binary cross-entropy over unknown, background and all classes, as SSUL."""
        heads = [self.network.permanent, *self.network.temporary]
        logits = torch.cat([self._logits(head, features) for head in heads], dim=1)
        weight = self.config.lambda_current + self.config.lambda_permanent
        return {"segmentation": weight * pixel_bce(logits, coupled_labels(crops.labels, old_class, crops.salient))}

    def _posterior_rows(self, batch: StepBatch) -> Tensor:
        """The pictures of Eq. 2: some current crops and whole remembered pictures; without those all current crops."""
        crops, device = len(batch.crops), batch.crops.labels.device
        if batch.wholes is None:
            return torch.arange(batch.current, device=device)
        current = min(self._posterior_current(crops), batch.current)
        return torch.cat([torch.arange(current), crops + torch.arange(len(batch.wholes))]).to(device)

    def _image_labels(self, pictures: Batch, past: list[Tensor] | None) -> Tensor:
        """Y~ of Eq. 2: ground truth after the crop, or the stored label, and the previous heads' pseudo-labels."""
        classes = pictures.stored.shape[1]
        if self.config.image_labels == "full":
            assert pictures.full is not None
            return classes_present(pictures.full, classes)
        labels = classes_present(pictures.labels, classes) | pictures.stored
        if past is not None and self.config.image_labels == "pseudo":
            found = self._pixel_scores(past).argmax(1)  # without the posterior, which must not confirm itself
            y = pictures.labels[: len(found)]
            if self.config.pseudo_labels_on == "unlabelled":
                found = found.where(y == 0, 0)  # what is annotated as new is not its old look-alike
            seen = self.image_classes(found.where(y != IGNORE, IGNORE))
            labels[: len(seen), : len(self.step.old)] |= seen[:, : len(self.step.old)]
        return labels

    def image_classes(self, labels: Tensor) -> Tensor:
        """Classes that have more than the smallest share of the picture."""
        return classes_present(labels, len(self.step.seen), self.config.pseudo_min_share)

    @torch.no_grad()
    def previous_classes(self, images: Tensor, boxes: Tensor | None = None) -> Tensor:
        """(B, H, W): where f_{t-1}, the model as it stood after the last step, sees an old class; 0 elsewhere."""
        self.network.eval()
        features = self.network.encoder(images, boxes)
        return self._old_classes(features, self._past(features))

    def _past(self, features: Features) -> list[Tensor] | None:
        """The previous heads' logits, enlarged; none in the base step."""
        return None if self._previous is None else self._previous.logits(features)

    @torch.no_grad()
    def _old_classes(self, features: Features, past: list[Tensor] | None) -> Tensor:
        """(B, H, W): f_{t-1}(x), the previous model's final prediction, where it is a class and sure; 0 elsewhere."""
        if past is None or self._previous is None:
            return torch.zeros(len(features.decoded), *features.size, dtype=torch.long, device=features.decoded.device)
        logits = [head[: len(features.decoded)] for head in past]
        pixel = self._pixel_scores(logits)
        if not self.config.decoupling:  # for SSUL unknown and background are rivals here, and join at inference only
            pixel = torch.cat([logits[0].sigmoid().amax(1, keepdim=True), pixel[:, 1:]], dim=1)
        winner = self._fused(pixel, self._seen(self._previous.posterior, features)).argmax(1)
        sure = pixel.gather(1, winner[:, None])[:, 0] >= self.config.threshold
        return winner.where(sure, 0)

    # ---- inference ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, images: Tensor, boxes: Tensor | None = None) -> Prediction:
        """Eq. 3, 4, 8 and 9."""
        self.network.eval()
        features = self.network.encoder(images, boxes)
        logits = [self._logits(head, features) for head in (self.network.permanent, *self.network.temporary)]
        pixel = self._pixel_scores(logits)
        seen = self._seen(self.network.posterior, features)
        return Prediction(self._fused(pixel, seen), pixel, seen, logits[0][:, UNKNOWN].sigmoid())

    def _logits(self, head: nn.Module, features: Features) -> Tensor:
        return features.enlarge(head(features.decoded, features.stages).float())

    def _pixel_scores(self, logits: list[Tensor]) -> Tensor:
        """Eq. 8: background from the permanent branch, which comes first, and classes from the temporary ones."""
        permanent = logits[0].sigmoid()
        background = permanent[:, PURE_BACKGROUND : PURE_BACKGROUND + 1]
        if self.config.unknown_is_background:
            background = background + permanent[:, UNKNOWN : UNKNOWN + 1]
        return torch.cat([background, *(self._class_scores(head) for head in logits[1:])], dim=1)

    def _class_scores(self, logits: Tensor) -> Tensor:
        """One head's classes, noise filtered (Eq. 9)."""
        if not self.config.decoupling:
            return logits.sigmoid()
        classes, other = logits[:, 2:], logits[:, OTHER_FOREGROUND : OTHER_FOREGROUND + 1]
        alpha = self.config.alpha_nf if self.config.noise_filtering else 1.0
        return filter_noise(classes.sigmoid(), classes, other, alpha)

    def _seen(self, posterior: Posterior | None, features: Features) -> Tensor | None:
        """(B, C) probabilities of the posterior given: today's, or the previous model's."""
        return None if posterior is None else posterior(features.pooled).float().sigmoid()

    def _fused(self, pixel: Tensor, seen: Tensor | None) -> Tensor:
        """Eq. 3, where there is a posterior."""
        return pixel if seen is None else fuse(pixel, seen, self.config.alpha_bc)


class _Previous:
    """f_{t-1}: the model as it stood after the last step.

    It shares the encoder and the old heads, which no longer change; the permanent branch and the posterior go on
    learning, so they are copies.
    """

    def __init__(self, network: Network) -> None:
        self.permanent: Head = copy.deepcopy(network.permanent)
        self.posterior: Posterior | None = copy.deepcopy(network.posterior)
        self.heads = list(network.temporary)
        for module in (self.permanent, self.posterior):
            if module is not None:
                freeze(module)

    @torch.no_grad()
    def logits(self, features: Features) -> list[Tensor]:
        """Of the permanent branch and of every old head, at the size of the pictures."""
        heads = (self.permanent, *self.heads)
        return [features.enlarge(head(features.decoded, features.stages).float()) for head in heads]
