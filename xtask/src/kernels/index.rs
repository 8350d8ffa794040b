//! What `kernels/compile.py` writes: rows, shapes, and one record for each compiled function.

use anyhow::{Context, Result, ensure};
use m3_gpu::pack::{Dims, MapShape};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The manifest as the compile driver understood it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Description {
    pub(super) target: String,
    /// Package and version of every tool, as `kernels/requirements.txt` pins them.
    pub(super) toolchain: BTreeMap<String, String>,
    pub(super) rows: Vec<Row>,
    pub(super) shapes: Vec<m3_gpu::pack::Shape>,
}

/// A description and what came of it.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    #[serde(flatten)]
    pub(super) description: Description,
    pub(super) instances: Vec<Instance>,
}

/// One `[[kernel]]`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) function: String,
    pub(super) arguments: Vec<Argument>,
    /// Empty tables stand for "no variants".
    pub(super) variants: Vec<Map<String, Value>>,
    pub(super) constexprs: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Argument {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) multiple: u64,
    pub(super) nullable: bool,
}

/// One compiled function.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Instance {
    pub(super) kernel: String,
    pub(super) variant: u32,
    /// Names of shapes.
    pub(super) shapes: Vec<String>,
    pub(super) cubin: PathBuf,
    pub(super) symbol: String,
    pub(super) threads: u32,
    pub(super) shared: u32,
    pub(super) trailing_pointers: u32,
    pub(super) dependent: bool,
    pub(super) maps: Vec<MapShape>,
}

impl Row {
    /// Names of the variants; empty when the row has none.
    pub(super) fn variant_names(&self) -> Result<Vec<String>> {
        if self.variants.len() == 1 && self.variants[0].is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = self.variants.iter().map(variant_name).collect();
        for (index, name) in names.iter().enumerate() {
            let kernel = &self.name;
            ensure!(!name.is_empty(), "kernel {kernel}: variant {index} says nothing");
            ensure!(!names[..index].contains(name), "kernel {kernel}: variant {name} is there twice");
        }
        Ok(names)
    }

    /// Arguments and variants in words: what pack and plugin must agree on.
    pub(super) fn contract(&self) -> Result<String> {
        let arguments: Vec<String> = self.arguments.iter().map(Argument::text).collect();
        let variants = self.variant_names()?;
        let variants =
            if variants.is_empty() { String::new() } else { format!(" as {}", variants.join(" | ")) };
        Ok(format!("{}({}){variants}", self.name, arguments.join(", ")))
    }

    /// A letter per argument, as the launcher compares it.
    pub(super) fn layout(&self) -> Result<String> {
        self.arguments.iter().map(|argument| argument.letter(&self.name)).collect()
    }

    /// Dims of a shape that this row is compiled for.
    pub(super) fn compiled_dims(&self) -> impl Iterator<Item = &str> {
        let values =
            self.constexprs.values().chain(self.variants.iter().flat_map(|variant| variant.values()));
        values.filter_map(|value| value.as_str()?.strip_prefix('$'))
    }
}

impl Argument {
    pub(super) fn text(&self) -> String {
        let multiple = if self.multiple > 1 { format!(" @{}", self.multiple) } else { String::new() };
        let null = if self.nullable { " null" } else { "" };
        format!("{}: {}{multiple}{null}", self.name, self.kind)
    }

    pub(super) fn is_matrix(&self) -> bool {
        self.kind.starts_with("tensor<")
    }

    fn letter(&self, kernel: &str) -> Result<char> {
        Ok(match self.kind.as_str() {
            pointer if pointer.starts_with('*') => 'p',
            _ if self.is_matrix() => 'm',
            "i32" => 'i',
            "u32" => 'u',
            "i64" => 'l',
            "u64" => 'q',
            "f32" => 'f',
            other => return Err(anyhow::anyhow!("kernel {kernel}: no argument has type {other}")),
        })
    }
}

/// `name` if the variant has one, else its keys and values: `BlockM16Warps4`.
fn variant_name(variant: &Map<String, Value>) -> String {
    if let Some(name) = variant.get("name").and_then(Value::as_str) {
        return camel(name);
    }
    variant
        .iter()
        .map(|(key, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            camel(&format!("{}_{}", key.trim_start_matches("num_"), value.replace(['$', '.', '-'], "_")))
        })
        .collect()
}

/// `add_norm` and `BLOCK_M_16` become `AddNorm` and `BlockM16`.
pub(super) fn camel(name: &str) -> String {
    let part = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_uppercase() + &rest.to_lowercase()
    };
    name.split('_').map(part).collect()
}

/// Reads what the compile driver left.
pub(super) fn read(path: &std::path::Path) -> Result<Index> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} does not parse", path.display()))
}

/// Dims of every kernel, each once, in order.
pub(super) fn compiled_dims(rows: &[Row]) -> Vec<String> {
    let mut names: Vec<String> = rows.iter().flat_map(Row::compiled_dims).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// Shapes have all the dims that kernels ask for; the manifest's reader saw to it, and this holds it to that.
pub(super) fn check_dims(dims: &Dims, wanted: &[String], shape: &str) -> Result<()> {
    for name in wanted {
        ensure!(dims.contains_key(name), "shape {shape} has no {name}");
    }
    Ok(())
}
