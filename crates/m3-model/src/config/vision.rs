//! Reads the vision tower's and projector's part of a config.
//!
//! The projector's settings stand beside `vision_config`, at the top level. Image preprocessing has its own file
//! (`preprocessor_config.json`) and is not read here.

use serde_json::json;

use super::VisionConfig;
use super::section::{Section, agreed, required};

/// Frames that attend to each other when the file does not say: the published video processor's value.
const DEFAULT_SEGMENT_FRAMES: usize = 4;

const IGNORED: [&str; 8] = [
    "initializer_factor",
    "initializer_range",
    "vocab_size",
    "image_size",
    "attention_dropout",
    "dtype",
    "torch_dtype",
    "architectures",
];

/// `None` when there is no vision part, or when it is wrong (then the notes hold why).
pub(super) fn read(root: &Section<'_>, text_hidden_size: Option<usize>) -> Option<VisionConfig> {
    let section = root.section("vision_config");
    check_projector(root);
    let root_compression = compression(root);
    let root_projector = root.count("projector_hidden_size");
    if !section.is_present() {
        return None;
    }
    let config = read_tower(&section, root_compression, root_projector);
    if let (Some(width), Some(hidden)) = (section.count("projection_dim"), text_hidden_size)
        && width != hidden
    {
        root.notes.problem(section.name("projection_dim"), width, format!("hidden_size, {hidden}"));
    }
    section.finish();
    config
}

fn check_projector(root: &Section<'_>) {
    root.only("projector_hidden_act", &[json!("gelu")]);
    root.only("multimodal_projector_bias", &[json!(true)]);
    root.only("vision_feature_layer", &[json!(-1)]);
    root.only("vision_feature_select_strategy", &[json!("full")]);
    root.only("process_image_mode", &[json!("dynamic_res")]);
    root.ignore(&["image_seq_length", "image_grid_pinpoints"]);
}

/// Spatial merge size and temporal patch size of an `img_token_compression_config`.
fn compression(parent: &Section<'_>) -> (Option<usize>, Option<usize>) {
    let section = parent.section("img_token_compression_config");
    section.only("image_token_compression_method", &[json!("patch_merge")]);
    let sizes = (merge_size(&section), temporal_size(&section));
    section.finish();
    sizes
}

fn merge_size(section: &Section<'_>) -> Option<usize> {
    section.whole("spatial_merge_size", 1, 64)
}

fn temporal_size(section: &Section<'_>) -> Option<usize> {
    section.whole("temporal_patch_size", 1, 64)
}

fn read_tower(
    section: &Section<'_>,
    root_compression: (Option<usize>, Option<usize>),
    projector_hidden_size: Option<usize>,
) -> Option<VisionConfig> {
    let notes = section.notes;
    section.only("model_type", &[json!("clip_vision_model"), json!("minimax_m3_vl_vision")]);
    section.only("hidden_act", &[json!("gelu")]);
    section.only("position_embedding_type", &[json!("rope")]);
    section.only("rope_mode", &[json!("3d")]);
    section.ignore(&IGNORED);
    let need = |key: &str| required(notes, &section.name(key), &[section.count(key)]);
    let own_compression = compression(section);
    let merge = [merge_size(section), own_compression.0, root_compression.0];
    let temporal = [temporal_size(section), own_compression.1, root_compression.1];
    let parameters = section.section("rope_parameters");
    parameters.only("rope_type", &[json!("axial")]);
    let theta = [section.positive("rope_theta"), parameters.positive("rope_theta")];
    parameters.finish();
    let eps = section.positive("layer_norm_eps");
    let segment = agreed(
        notes,
        &section.name("vision_segment_max_frames"),
        &[section.count("vision_segment_max_frames")],
    );
    let hidden_size = need("hidden_size");
    let num_layers = section.whole("num_hidden_layers", 1, 1024);
    let num_layers = required(notes, &section.name("num_hidden_layers"), &[num_layers]);
    let num_heads =
        required(notes, &section.name("num_attention_heads"), &[section.head("num_attention_heads")]);
    let intermediate_size = need("intermediate_size");
    let patch_size = required(notes, &section.name("patch_size"), &[section.whole("patch_size", 1, 1024)]);
    let num_channels =
        required(notes, &section.name("num_channels"), &[section.whole("num_channels", 1, 16)]);
    let merge_size = required(notes, &section.name("spatial_merge_size"), &merge);
    let temporal_patch_size = required(notes, &section.name("temporal_patch_size"), &temporal);
    let rope_theta = required(notes, &section.name("rope_theta"), &theta);
    let layer_norm_eps = required(notes, &section.name("layer_norm_eps"), &[eps]);
    let projector = required(notes, "projector_hidden_size", &[projector_hidden_size]);
    let config = VisionConfig {
        hidden_size: hidden_size?,
        num_layers: num_layers?,
        num_heads: num_heads?,
        intermediate_size: intermediate_size?,
        patch_size: patch_size?,
        temporal_patch_size: temporal_patch_size?,
        merge_size: merge_size?,
        num_channels: num_channels?,
        layer_norm_eps: layer_norm_eps? as f32,
        rope_theta: rope_theta?,
        segment_max_frames: segment.unwrap_or(DEFAULT_SEGMENT_FRAMES),
        projector_hidden_size: projector?,
    };
    check_relations(section, &config);
    Some(config)
}

fn check_relations(section: &Section<'_>, vision: &VisionConfig) {
    if !vision.hidden_size.is_multiple_of(2 * vision.num_heads) {
        section.notes.problem(
            section.name("hidden_size"),
            vision.hidden_size,
            format!("an even head size for {} heads", vision.num_heads),
        );
    }
    if vision.num_channels != 3 {
        section.notes.problem(section.name("num_channels"), vision.num_channels, "3");
    }
}
