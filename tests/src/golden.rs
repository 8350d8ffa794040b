//! The golden checkpoints and answers: small random models of ours with outputs from an independent implementation.

use anyhow::{Context, Result, bail, ensure};
use m3_model::checkpoint::Checkpoint;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::sync::Arc;

pub use m3_testdata::find_golden as find;

/// Values of a golden file; ids too, which are exact in `f32`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f32>,
}

impl Array {
    /// Row `index` of the first dim.
    pub fn row(&self, index: usize) -> &[f32] {
        let width = self.data.len() / self.shape[0].max(1);
        &self.data[index * width..][..width]
    }

    pub fn ids(&self) -> Vec<u32> {
        self.data.iter().map(|&value| value as u32).collect()
    }
}

/// One golden file.
pub struct Case {
    /// `checkpoint/case`.
    pub name: String,
    arrays: HashMap<String, Array>,
}

/// Whether a case and its checkpoint are there; the large ones are not committed.
pub fn is_there(checkpoint: &str, case: &str) -> bool {
    find(&format!("ckpt/{checkpoint}")).is_some()
        && find(&format!("golden/{checkpoint}/{case}.safetensors")).is_some()
}

pub fn checkpoint(name: &str) -> Result<Arc<Checkpoint>> {
    let path =
        find(&format!("ckpt/{name}")).with_context(|| format!("golden checkpoint {name} is not there"))?;
    let opened = Checkpoint::open(&path).with_context(|| format!("golden checkpoint {}", path.display()))?;
    Ok(Arc::new(opened))
}

impl Case {
    pub fn load(checkpoint: &str, case: &str) -> Result<Self> {
        let relative = format!("golden/{checkpoint}/{case}.safetensors");
        let path = find(&relative).with_context(|| format!("{relative} is not there"))?;
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = SafeTensors::deserialize(&bytes)?;
        let mut arrays = HashMap::new();
        for (name, view) in file.tensors() {
            arrays.insert(
                name,
                Array { shape: view.shape().to_vec(), data: values(view.dtype(), view.data())? },
            );
        }
        Ok(Case { name: format!("{checkpoint}/{case}"), arrays })
    }

    pub fn array(&self, name: &str) -> Result<&Array> {
        self.arrays.get(name).with_context(|| format!("golden {} has no `{name}`", self.name))
    }

    pub fn get(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name)
    }

    /// Golden logits of every position. A large file holds those of a few positions and the hidden values of all; the head
    /// is its checkpoint's.
    pub fn all_logits(&self) -> Result<Array> {
        let hidden = self.array("hidden")?;
        if self.logits_positions()?.len() == hidden.shape[0] {
            return Ok(self.array("logits")?.clone());
        }
        let (name, _) = self.name.split_once('/').context("a case is named CHECKPOINT/CASE")?;
        let head = checkpoint(name)?;
        let head = head.tensor("language_model.lm_head.weight")?;
        let weights = values(Dtype::BF16, head.data)?;
        let width = hidden.shape[1];
        let vocab = weights.len() / width;
        let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
        let logits = |x| weights.chunks_exact(width).map(move |w| dot(x, w));
        let data = hidden.data.chunks_exact(width).flat_map(logits).collect();
        Ok(Array { shape: vec![hidden.shape[0], vocab], data })
    }

    /// Positions whose logits the file holds: all, unless it says which.
    pub fn logits_positions(&self) -> Result<Vec<usize>> {
        match self.get("positions") {
            Some(positions) => Ok(positions.ids().iter().map(|&position| position as usize).collect()),
            None => Ok((0..self.array("input_ids")?.data.len()).collect()),
        }
    }
}

fn values(dtype: Dtype, bytes: &[u8]) -> Result<Vec<f32>> {
    let size = match dtype {
        Dtype::F32 | Dtype::I32 => 4,
        Dtype::I16 | Dtype::BF16 => 2,
        Dtype::U8 => 1,
        other => bail!("golden files hold no {other:?}"),
    };
    ensure!(bytes.len().is_multiple_of(size), "{} bytes are no whole number of values", bytes.len());
    let value = |raw: &[u8]| match dtype {
        Dtype::F32 => f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]),
        Dtype::I32 => i32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]) as f32,
        Dtype::I16 => f32::from(i16::from_le_bytes([raw[0], raw[1]])),
        Dtype::BF16 => f32::from_bits(u32::from(u16::from_le_bytes([raw[0], raw[1]])) << 16),
        _ => f32::from(raw[0]),
    };
    Ok(bytes.chunks_exact(size).map(value).collect())
}
