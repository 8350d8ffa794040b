//! Generates a backend's `kernels.rs`: a struct of arguments, the variants and a checked `launch` for each kernel.

use super::index::{Argument, Description, Row, camel};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const KEYWORDS: [&str; 12] =
    ["as", "box", "fn", "for", "in", "loop", "match", "mod", "move", "ref", "type", "where"];

/// The whole file, formatted.
pub(super) fn generate(root: &Path, description: &Description) -> Result<String> {
    let mut text = head(description)?;
    for row in &description.rows {
        kernel(&mut text, row)?;
    }
    format(root, &text)
}

fn head(description: &Description) -> Result<String> {
    let target = &description.target;
    let mut text = format!(
        "//! Launch stubs of every kernel in `kernels/manifest.toml`. Generated: do not edit.\n\
         //!\n\
         //! This file is the lock of the kernels' arguments: `cargo xtask build --backend {target}` fails when it would\n\
         //! write another one, and writes it with `--bless`. Which kernel is launched when is not decided here.\n\n\
         use m3_gpu::arguments::{{ArgumentList, Matrix}};\n\
         use m3_gpu::kernels::{{Contract, KernelSet, Loader, Queue}};\n\
         use m3_gpu::launch::{{DevicePointer, LaunchError, Launcher, MapElement}};\n\
         use m3_gpu::pack::Pack;\n\n\
         /// The target whose packs fit these stubs.\n\
         pub const TARGET: &str = \"{target}\";\n\n"
    );
    if !description.rows.iter().any(|row| row.arguments.iter().any(Argument::is_matrix)) {
        text = text.replace("ArgumentList, Matrix", "ArgumentList").replace(", MapElement", "");
    }
    let tools: Vec<String> =
        description.toolchain.iter().map(|(name, version)| format!("({name:?}, {version:?})")).collect();
    write!(
        text,
        "/// The tools that a pack must have been made with.\n\
         pub const TOOLCHAIN: &[(&str, &str)] = &[{}];\n\n\
         /// What each stub expects of a pack, for `m3_gpu::kernels::check`.\n\
         pub const CONTRACTS: &[Contract] = &[{}];\n\n\
         /// Every kernel, loaded for one shape on one device.\n\
         #[derive(Clone, Debug)]\npub struct Kernels {{\n",
        tools.join(", "),
        list(description, |row| format!("{}::CONTRACT", camel(&row.name)), ", ")
    )?;
    text.insert_str(text.find("/// What each stub expects").unwrap_or(text.len()), &shapes(description)?);
    write!(
        text,
        "{}}}\n\nimpl Kernels {{\n\
         /// Loads what the pack holds for a shape; `shape` is what `Pack::covers` answered.\n\
         pub fn load(launcher: &dyn Launcher, pack: &Pack<'_>, shape: usize) -> Result<Self, LaunchError> {{\n\
         let mut loader = Loader::new(launcher, pack, shape)?;\n\
         Ok(Kernels {{ {} }})\n}}\n}}\n\n",
        list(description, |row| format!("pub {}: {},\n", row.name, camel(&row.name)), ""),
        list(
            description,
            |row| {
                let kind = camel(&row.name);
                format!("{}: {kind}(KernelSet::load(&mut loader, {kind}::CONTRACT)?)", row.name)
            },
            ", "
        ),
    )?;
    Ok(text)
}

/// The manifest's shapes, so that tests can hold real configs against them.
fn shapes(description: &Description) -> Result<String> {
    let mut text =
        "/// Shapes that kernels are compiled for, and their dims.\npub const SHAPES: &[(&str, &[(&str, i64)])] = &["
            .to_owned();
    for shape in &description.shapes {
        let dims: Vec<String> =
            shape.dims.iter().map(|(name, value)| format!("({name:?}, {value})")).collect();
        write!(text, "({:?}, &[{}]),", shape.name, dims.join(", "))?;
    }
    text.push_str("];\n\n");
    Ok(text)
}

fn list(description: &Description, each: impl Fn(&Row) -> String, between: &str) -> String {
    description.rows.iter().map(each).collect::<Vec<_>>().join(between)
}

fn kernel(text: &mut String, row: &Row) -> Result<()> {
    let kind = camel(&row.name);
    let variants = row.variant_names()?;
    writeln!(
        text,
        "/// Arguments of [`{kind}`].\n#[derive(Clone, Copy, Debug)]\npub struct {kind}Arguments {{"
    )?;
    for argument in &row.arguments {
        let null = if argument.nullable { ", or null" } else { "" };
        let multiple = match argument.multiple {
            1 => String::new(),
            multiple => format!(", a multiple of {multiple}"),
        };
        let (field, rust) = (field(argument), rust_type(argument));
        writeln!(text, "/// `{}`{multiple}{null}.\npub {field}: {rust},", argument.kind)?;
    }
    text.push_str("}\n\n");
    if !variants.is_empty() {
        variant_enum(text, row, &kind, &variants)?;
    }
    implementation(text, row, &kind, &variants)
}

/// The variants, and for each key that all of them set, its value.
fn variant_enum(text: &mut String, row: &Row, kind: &str, names: &[String]) -> Result<()> {
    let full: Vec<String> = names.iter().map(|name| format!("Self::{name}")).collect();
    write!(
        text,
        "/// What [`{kind}`] was compiled as.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\npub enum {kind}Variant {{ {} }}\n\n\
         impl {kind}Variant {{\n/// In the manifest's order.\npub const ALL: [Self; {}] = [{}];\n",
        names.join(", "),
        names.len(),
        full.join(", ")
    )?;
    for key in row.variants[0].keys().filter(|key| *key != "name") {
        let values: Option<Vec<&Value>> = row.variants.iter().map(|variant| variant.get(key)).collect();
        let Some(values) = values else { continue };
        let literals: Option<Vec<(&str, String)>> = values.into_iter().map(constant).collect();
        let Some(literals) = literals else { continue };
        let kind = literals[0].0;
        ensure!(
            literals.iter().all(|(other, _)| *other == kind),
            "kernel {}: {key} has values of several types",
            row.name
        );
        writeln!(text, "\n#[must_use]\npub const fn {}(self) -> {kind} {{", key.to_lowercase())?;
        let first = &literals[0].1;
        if literals.iter().all(|(_, value)| value == first) {
            writeln!(text, "{first}\n}}")?;
            continue;
        }
        text.push_str("match self {\n");
        for (name, (_, value)) in full.iter().zip(&literals) {
            writeln!(text, "{name} => {value},")?;
        }
        text.push_str("}\n}\n");
    }
    text.push_str("}\n\n");
    Ok(())
}

fn implementation(text: &mut String, row: &Row, kind: &str, variants: &[String]) -> Result<()> {
    let names: Vec<String> = variants.iter().map(|name| format!("{name:?}")).collect();
    write!(
        text,
        "/// `kernels/{}`, function `{}`.\n#[derive(Clone, Debug)]\npub struct {kind}(KernelSet);\n\nimpl {kind} {{\n\
         /// Arguments and variants as the pack must have them.\n\
         pub const CONTRACT: Contract = Contract {{ kernel: {:?}, text: {:?}, variants: &[{}] }};\n\n",
        row.source,
        row.function,
        row.name,
        row.contract()?,
        names.join(", ")
    )?;
    for (key, value) in &row.constexprs {
        // A variant may say otherwise; then the variant is asked.
        if let Some((rust, value)) =
            constant(value).filter(|_| !row.variants.iter().any(|v| v.contains_key(key)))
        {
            writeln!(text, "/// Compiled in.\npub const {}: {rust} = {value};", key.to_uppercase())?;
        }
    }
    let (parameter, index) = match variants.len() {
        0 => (String::new(), "0"),
        _ => (format!("variant: {kind}Variant, "), "variant as usize"),
    };
    write!(
        text,
        "\n/// Whether it was compiled for the loaded shape.\n#[must_use]\n\
         pub fn is_loaded(&self{}) -> bool {{ self.0.has({index}) }}\n\n\
         /// Checks the arguments and puts one launch into the queue.\n\
         pub fn launch(&self, queue: &Queue<'_>, grid: [u32; 3], {parameter}arguments: &{kind}Arguments) \
         -> Result<(), LaunchError> {{\nlet mut list = ArgumentList::new({:?});\n",
        if parameter.is_empty() { String::new() } else { format!(", variant: {kind}Variant") },
        row.name
    )?;
    for argument in &row.arguments {
        writeln!(text, "list.{}?;", put(argument))?;
    }
    writeln!(text, "self.0.launch(queue, grid, {index}, &mut list)\n}}\n}}\n")?;
    Ok(())
}

fn field(argument: &Argument) -> String {
    let name = argument.name.to_lowercase();
    if KEYWORDS.contains(&name.as_str()) { format!("r#{name}") } else { name }
}

fn rust_type(argument: &Argument) -> &str {
    match argument.kind.as_str() {
        kind if kind.starts_with('*') => "DevicePointer",
        _ if argument.is_matrix() => "Matrix",
        scalar => scalar,
    }
}

/// The call that checks and appends one argument.
fn put(argument: &Argument) -> String {
    let (name, field, multiple) = (&argument.name, field(argument), argument.multiple);
    match argument.kind.as_str() {
        kind if kind.starts_with('*') => {
            let nullable = if argument.nullable { "nullable_" } else { "" };
            format!("{nullable}pointer({name:?}, arguments.{field}, {multiple})")
        }
        kind if argument.is_matrix() => {
            let element = match kind {
                kind if kind.contains("<bf16>") => "Bf16",
                kind if kind.contains("<f32>") => "F32",
                _ => "U8",
            };
            format!("matrix({name:?}, arguments.{field}, MapElement::{element})")
        }
        "f32" => format!("f32(arguments.{field})"),
        scalar => format!("{scalar}({name:?}, arguments.{field}, {multiple})"),
    }
}

/// Type and literal of a value that Rust code can use.
fn constant(value: &Value) -> Option<(&'static str, String)> {
    match value {
        Value::Bool(value) => Some(("bool", value.to_string())),
        Value::Number(number) if number.is_u64() => Some(("u32", number.to_string())),
        Value::Number(number) if number.is_i64() => Some(("i64", number.to_string())),
        Value::Number(number) => Some(("f64", format!("{:?}", number.as_f64()?))),
        _ => None,
    }
}

fn format(root: &Path, text: &str) -> Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start `rustfmt`; run rustup component add rustfmt")?;
    let mut input = child.stdin.take().context("rustfmt has no input")?;
    let bytes = text.to_owned().into_bytes();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("writing to rustfmt failed"))??;
    ensure!(output.status.success(), "rustfmt refuses the generated stubs");
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests;
