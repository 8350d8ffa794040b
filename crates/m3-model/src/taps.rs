//! Names of the readable points of the model, one list for every backend.
//!
//! A tap is read after the step it belongs to, as `f32`, row-major. `T` is the number of tokens of the step in batch
//! order, `P` of its logits positions; `i` is a layer. Ids are exact in `f32`. Conformance reads them in the order
//! of [`all`] and reports the first that differs.
//!
//! | name | shape | what |
//! | --- | --- | --- |
//! | `block_score.i` | [index heads, T, blocks] | unscaled greatest index dot product per block; -inf where nothing is visible. Sparse layers. `blocks` is that of the longest sequence in the step |
//! | `selected.i` | [index heads, T, topk blocks] | chosen block ids ascending, -1 at the end. Sparse layers |
//! | `router_score.i` | [T, experts] | sigmoid of the router logits, without bias. MoE layers |
//! | `routed.i` | [T, experts per token] | chosen expert ids ascending. MoE layers |
//! | `routed_weights.i` | [T, experts per token] | their weights in that order, sum 1 (before the routed scaling factor) |
//! | `layer_out.i` | [T, hidden] | residual stream after layer i, pending sum included |
//! | `hidden` | [P, hidden] | after the final norm |
//! | `logits` | [P, vocabulary] | before bias, penalties and masks |
//! | `tower_out` | [patches, vision hidden] | after the vision tower's last layer. Of an encode, not of a step |
//! | `features` | [rows, hidden] | what an encoded medium puts in place of embeddings. Of an encode, not of a step |
//!
//! Under tensor parallelism every rank shows whole values, except that `block_score` and `selected` have the rank's
//! own index heads.

use std::fmt;

use crate::config::{AttentionKind, FfnKind, TextConfig};

/// A named point of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TapPoint {
    BlockScore(usize),
    Selected(usize),
    RouterScore(usize),
    Routed(usize),
    RoutedWeights(usize),
    LayerOut(usize),
    Hidden,
    Logits,
    TowerOut,
    Features,
}

impl fmt::Display for TapPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TapPoint::BlockScore(layer) => write!(formatter, "block_score.{layer}"),
            TapPoint::Selected(layer) => write!(formatter, "selected.{layer}"),
            TapPoint::RouterScore(layer) => write!(formatter, "router_score.{layer}"),
            TapPoint::Routed(layer) => write!(formatter, "routed.{layer}"),
            TapPoint::RoutedWeights(layer) => write!(formatter, "routed_weights.{layer}"),
            TapPoint::LayerOut(layer) => write!(formatter, "layer_out.{layer}"),
            TapPoint::Hidden => formatter.write_str("hidden"),
            TapPoint::Logits => formatter.write_str("logits"),
            TapPoint::TowerOut => formatter.write_str("tower_out"),
            TapPoint::Features => formatter.write_str("features"),
        }
    }
}

impl TapPoint {
    /// The point of a name; `None` when there is no such name. Whether the layer has it is up to the config.
    pub fn parse(name: &str) -> Option<Self> {
        let Some((kind, layer)) = name.split_once('.') else {
            return match name {
                "hidden" => Some(TapPoint::Hidden),
                "logits" => Some(TapPoint::Logits),
                "tower_out" => Some(TapPoint::TowerOut),
                "features" => Some(TapPoint::Features),
                _ => None,
            };
        };
        let layer = layer.parse().ok()?;
        match kind {
            "block_score" => Some(TapPoint::BlockScore(layer)),
            "selected" => Some(TapPoint::Selected(layer)),
            "router_score" => Some(TapPoint::RouterScore(layer)),
            "routed" => Some(TapPoint::Routed(layer)),
            "routed_weights" => Some(TapPoint::RoutedWeights(layer)),
            "layer_out" => Some(TapPoint::LayerOut(layer)),
            _ => None,
        }
    }
}

/// Every tap of a step, in the order in which the forward pass reaches them.
pub fn all(config: &TextConfig) -> Vec<TapPoint> {
    let mut points = Vec::new();
    for (layer, plan) in config.layers.iter().enumerate() {
        if plan.attention == AttentionKind::Sparse {
            points.extend([TapPoint::BlockScore(layer), TapPoint::Selected(layer)]);
        }
        if plan.ffn == FfnKind::Moe {
            points.extend([
                TapPoint::RouterScore(layer),
                TapPoint::Routed(layer),
                TapPoint::RoutedWeights(layer),
            ]);
        }
        points.push(TapPoint::LayerOut(layer));
    }
    points.extend([TapPoint::Hidden, TapPoint::Logits]);
    points
}

#[cfg(test)]
mod tests {
    use super::TapPoint;

    #[test]
    fn names_round_trip() {
        let points = [
            TapPoint::BlockScore(3),
            TapPoint::Selected(59),
            TapPoint::RouterScore(4),
            TapPoint::Routed(0),
            TapPoint::RoutedWeights(12),
            TapPoint::LayerOut(7),
            TapPoint::Hidden,
            TapPoint::Logits,
            TapPoint::TowerOut,
            TapPoint::Features,
        ];
        for point in points {
            assert_eq!(TapPoint::parse(&point.to_string()), Some(point));
        }
        for wrong in ["", "hidden.1", "layer_out", "layer_out.", "layer_out.x", "scores.3"] {
            assert_eq!(TapPoint::parse(wrong), None, "{wrong}");
        }
    }
}
