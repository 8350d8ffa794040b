//! What `kernels/compile.py` writes: rows, shapes, and one record for each compiled function.

use anyhow::{Context, Result, ensure};
use m3_gpu::pack::{Dims, MapShape};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The manifest as the compile driver understood it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Description {
    pub(crate) target: String,
    /// Package and version of every tool, as `kernels/requirements.txt` pins them.
    pub(crate) toolchain: BTreeMap<String, String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) shapes: Vec<m3_gpu::pack::Shape>,
}

/// A description and what came of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Index {
    #[serde(flatten)]
    pub(crate) description: Description,
    pub(crate) instances: Vec<Instance>,
}

/// One `[[kernel]]`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) function: String,
    pub(crate) arguments: Vec<Argument>,
    /// Empty tables stand for "no variants".
    pub(crate) variants: Vec<Map<String, Value>>,
    pub(crate) constexprs: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Argument {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) multiple: u64,
    pub(crate) nullable: bool,
}

/// One compiled function.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Instance {
    pub(crate) kernel: String,
    pub(crate) variant: u32,
    /// Names of shapes.
    pub(crate) shapes: Vec<String>,
    pub(crate) cubin: PathBuf,
    pub(crate) symbol: String,
    pub(crate) threads: u32,
    pub(crate) shared: u32,
    pub(crate) static_shared: u32,
    pub(crate) trailing_pointers: u32,
    pub(crate) dependent: bool,
    pub(crate) maps: Vec<MapShape>,
}

impl Row {
    /// Names of the variants; empty when the row has none.
    pub(crate) fn variant_names(&self) -> Result<Vec<String>> {
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
    pub(crate) fn contract(&self) -> Result<String> {
        let arguments: Vec<String> = self.arguments.iter().map(Argument::text).collect();
        let variants = self.variant_names()?;
        let variants =
            if variants.is_empty() { String::new() } else { format!(" as {}", variants.join(" | ")) };
        Ok(format!("{}({}){variants}", self.name, arguments.join(", ")))
    }

    /// A letter per argument, as the launcher compares it.
    pub(crate) fn layout(&self) -> Result<String> {
        self.arguments.iter().map(|argument| argument.letter(&self.name)).collect()
    }

    /// Dims of a shape that this row is compiled for.
    pub(crate) fn compiled_dims(&self) -> impl Iterator<Item = &str> {
        let values =
            self.constexprs.values().chain(self.variants.iter().flat_map(|variant| variant.values()));
        values.filter_map(|value| value.as_str()?.strip_prefix('$'))
    }
}

impl Argument {
    pub(crate) fn text(&self) -> String {
        let multiple = if self.multiple > 1 { format!(" @{}", self.multiple) } else { String::new() };
        let null = if self.nullable { " null" } else { "" };
        format!("{}: {}{multiple}{null}", self.name, self.kind)
    }

    pub(crate) fn is_matrix(&self) -> bool {
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
pub(crate) fn camel(name: &str) -> String {
    let part = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_uppercase() + &rest.to_lowercase()
    };
    name.split('_').map(part).collect()
}

/// Reads what the compile driver left.
pub(crate) fn read(path: &std::path::Path) -> Result<Index> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} does not parse", path.display()))
}

/// Dims of every kernel, each once, in order.
pub(crate) fn compiled_dims(rows: &[Row]) -> Vec<String> {
    let mut names: Vec<String> = rows.iter().flat_map(Row::compiled_dims).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// Shapes have all the dims that kernels ask for; the manifest's reader saw to it, and this holds it to that.
pub(crate) fn check_dims(dims: &Dims, wanted: &[String], shape: &str) -> Result<()> {
    for name in wanted {
        ensure!(dims.contains_key(name), "shape {shape} has no {name}");
    }
    Ok(())
}
