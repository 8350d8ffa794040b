//! Offline conversion of a bf16 checkpoint to MXFP8, as `m3 convert` does it: what the released MXFP8 build quantises is
//! quantised, with the ceil rule of [`crate::formats`], and everything else is copied.
//!
//! Tensors stream from the mapped files, one shard in memory at a time. Nothing is converted back.

use std::path::{Path, PathBuf};

use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Map, Value, json};

use crate::checkpoint::{Checkpoint, TensorData};
use crate::config::{FfnKind, Quantization};
use crate::error::ModelError;
use crate::formats::{Format, MX_GROUP, WeightRows, quantise_mx};
use crate::names::{TensorSpec, expected_tensors};

/// Bytes of tensors in one file, unless a single tensor is larger.
const SHARD_BYTES: u64 = 4 << 30;

/// Why a conversion was not done.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("the checkpoint in {} is MXFP8 already", .0.display())]
    AlreadyMxfp8(PathBuf),
    #[error("{} is not empty; the converted checkpoint needs a folder of its own", .0.display())]
    NotEmpty(PathBuf),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}: {source}", path.display())]
    File { path: PathBuf, source: safetensors::SafeTensorError },
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Tensors that are MXFP8 now.
    pub quantised: usize,
    /// Tensors that were copied.
    pub copied: usize,
    /// Bytes of values and scales.
    pub bytes: u64,
    pub files: usize,
}

struct Stored {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Writes the MXFP8 twin of `checkpoint` into `out`, a new or empty folder, under the released names.
pub fn to_mxfp8(checkpoint: &Checkpoint, out: &Path) -> Result<Converted, ConvertError> {
    if checkpoint.config().quantization == Quantization::Mxfp8 {
        return Err(ConvertError::AlreadyMxfp8(checkpoint.path().to_owned()));
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ConvertError::Write { path, source }
    };
    std::fs::create_dir_all(out).map_err(failed(out))?;
    if std::fs::read_dir(out).map_err(failed(out))?.next().is_some() {
        return Err(ConvertError::NotEmpty(out.to_owned()));
    }
    let mut config = checkpoint.config().clone();
    config.quantization = Quantization::Mxfp8;
    let specs = expected_tensors(&config);
    let shards = split(&specs);
    let mut done = Converted { quantised: 0, copied: 0, bytes: 0, files: shards.len() };
    let mut index = Map::new();
    for (at, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", at + 1),
        };
        write_shard(checkpoint, shard, &out.join(&name), &mut done, |tensor| {
            index.insert(tensor.to_owned(), json!(name));
        })?;
    }
    if shards.len() > 1 {
        let text = json!({"metadata": {"total_size": done.bytes}, "weight_map": index}).to_string();
        let path = out.join("model.safetensors.index.json");
        std::fs::write(&path, text).map_err(failed(&path))?;
    }
    let path = out.join("config.json");
    std::fs::write(&path, config_json(checkpoint)?).map_err(failed(&path))?;
    copy_other_files(checkpoint.path(), out)?;
    Ok(done)
}

/// Runs of specs of about [`SHARD_BYTES`] each.
fn split(specs: &[TensorSpec]) -> Vec<&[TensorSpec]> {
    let (mut shards, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, spec) in specs.iter().enumerate() {
        let size = spec.value_bytes() + spec.scale_bytes();
        if bytes > 0 && bytes + size > SHARD_BYTES {
            shards.push(&specs[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    shards.push(&specs[start..]);
    shards
}

fn write_shard(
    checkpoint: &Checkpoint,
    specs: &[TensorSpec],
    path: &Path,
    done: &mut Converted,
    mut wrote: impl FnMut(&str),
) -> Result<(), ConvertError> {
    let mut stored = Vec::new();
    for spec in specs {
        let tensor = checkpoint.tensor(&spec.name)?;
        if spec.format == Format::Mxfp8 {
            stored.extend(quantised(&tensor));
            done.quantised += 1;
        } else {
            stored.push(copied(&tensor));
            done.copied += 1;
        }
    }
    // The writer makes its file for the owner alone; others serve from it, as far as the process's mask lets them.
    let written = |source| ConvertError::Write { path: path.to_owned(), source };
    let rights = std::fs::File::create(path).and_then(|file| file.metadata()).map_err(written)?.permissions();
    let failed = |source| ConvertError::File { path: path.to_owned(), source };
    let mut views = Vec::with_capacity(stored.len());
    for tensor in &stored {
        done.bytes += tensor.bytes.len() as u64;
        wrote(&tensor.name);
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).map_err(failed)?;
        views.push((tensor.name.as_str(), view));
    }
    safetensors::serialize_to_file(views, None, path).map_err(failed)?;
    std::fs::set_permissions(path, rights).map_err(written)
}

fn shape(tensor: &TensorData<'_>) -> Vec<usize> {
    tensor.shape().iter().map(|&size| size as usize).collect()
}

fn copied(tensor: &TensorData<'_>) -> Stored {
    let dtype = if tensor.spec.format == Format::F32 { Dtype::F32 } else { Dtype::BF16 };
    Stored { name: tensor.spec.name.clone(), dtype, shape: shape(tensor), bytes: tensor.data.to_vec() }
}

/// Codes `[rows, columns]` and scales `[rows, columns / 32]` of a linear weight.
fn quantised(tensor: &TensorData<'_>) -> [Stored; 2] {
    let shape = shape(tensor);
    let (rows, columns) = (shape[0], shape[1]);
    let groups = columns.div_ceil(MX_GROUP);
    let source = WeightRows {
        format: tensor.spec.format,
        data: tensor.data,
        rows,
        columns,
        row_stride: columns,
        scale: &[],
        scale_stride: 0,
        group_offset: 0,
    };
    let (mut codes, mut scales) = (vec![0; rows * columns], vec![0; rows * groups]);
    let mut values = vec![0.0; columns];
    let both = codes.chunks_mut(columns).zip(scales.chunks_mut(groups));
    for (row, (codes, scales)) in both.enumerate() {
        source.read_row(row, &mut values);
        quantise_mx(&values, columns, codes, scales);
    }
    let name = &tensor.spec.name;
    [
        Stored { name: name.clone(), dtype: Dtype::F8_E4M3, shape, bytes: codes },
        Stored {
            name: format!("{name}_scale_inv"),
            dtype: Dtype::U8,
            shape: vec![rows, groups],
            bytes: scales,
        },
    ]
}

/// The source's config with the released build's `quantization_config`.
fn config_json(checkpoint: &Checkpoint) -> Result<String, ModelError> {
    let failed = |source| ModelError::Json { what: "config.json".to_owned(), source };
    let mut config: Value = serde_json::from_slice(checkpoint.config_json()).map_err(failed)?;
    let mut ignored: Vec<String> =
        ["lm_head", "model.embed_tokens", "vision_tower", "multi_modal_projector", "patch_merge_mlp"]
            .map(str::to_owned)
            .to_vec();
    let layers = checkpoint.config().text.layers.iter().enumerate();
    let routed = layers.filter(|(_, layer)| layer.ffn == FfnKind::Moe);
    ignored.extend(
        routed.map(|(layer, _)| format!("language_model.model.layers.{layer}.block_sparse_moe.gate")),
    );
    config["quantization_config"] = json!({
        "quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": [1, MX_GROUP],
        "ignored_layers": ignored,
    });
    serde_json::to_string_pretty(&config).map_err(failed)
}

/// Tokenizer, template and settings; weights, their index and the config are the converter's own.
fn copy_other_files(from: &Path, to: &Path) -> Result<(), ConvertError> {
    let unreadable = |source| ModelError::Io { path: from.to_owned(), source };
    for entry in std::fs::read_dir(from).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name == "config.json" || name.contains(".safetensors") || !path.is_file() {
            continue;
        }
        let target = to.join(name);
        std::fs::copy(&path, &target)
            .map_err(|source| ConvertError::Write { path: target.clone(), source })?;
    }
    Ok(())
}
