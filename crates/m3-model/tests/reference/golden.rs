//! Reads golden files; where they lie is `m3_testdata`'s to know.

use std::path::{Path, PathBuf};

use half::bf16;
use m3_testdata::golden;
use safetensors::{Dtype, SafeTensors};

/// Checkpoint folder and answers of a case, or a loud line.
pub(crate) fn case(checkpoint: &str, name: &str) -> Option<(PathBuf, Golden)> {
    let folder = golden(&format!("ckpt/{checkpoint}"))?;
    let answers = golden(&format!("golden/{checkpoint}/{name}.safetensors"))?;
    Some((folder, Golden::read(&answers)))
}

/// One file of answers.
pub(crate) struct Golden {
    bytes: Vec<u8>,
}

/// An array of answers; integers are exact.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

impl Golden {
    pub(crate) fn read(path: &Path) -> Self {
        Golden { bytes: std::fs::read(path).unwrap() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Array> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = file.tensor(name).ok()?;
        let data = tensor.data();
        let values = match tensor.dtype() {
            Dtype::F32 => data.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect(),
            Dtype::I32 => {
                data.chunks(4).map(|four| i32::from_le_bytes(four.try_into().unwrap()) as f32).collect()
            }
            Dtype::I16 => {
                data.chunks(2).map(|two| f32::from(i16::from_le_bytes(two.try_into().unwrap()))).collect()
            }
            Dtype::BF16 => {
                data.chunks(2).map(|two| bf16::from_le_bytes(two.try_into().unwrap()).to_f32()).collect()
            }
            Dtype::U8 => data.iter().map(|&byte| f32::from(byte)).collect(),
            other => panic!("{name} has dtype {other:?}"),
        };
        Some(Array { shape: tensor.shape().to_vec(), values })
    }

    pub(crate) fn array(&self, name: &str) -> Array {
        self.get(name).unwrap_or_else(|| panic!("the golden file has no {name}"))
    }

    pub(crate) fn ids(&self, name: &str) -> Vec<u32> {
        self.array(name).values.iter().map(|&id| id as u32).collect()
    }
}
