//! `cargo xtask nano`: remakes `tests/data/random/m3-nano`, the tests' random checkpoint, bit for bit; `nano eval`
//! measures the trained one.
//!
//! The random one keeps every structural rule of M3 (a dense layer, then sparse ones with an index branch and routed
//! experts, a shared expert, partial rotary, blocks of 128 tokens with a small top-k, a vision tower) at a size that
//! ships with the source. Its weights are seeded; it does not talk sense. `models/m3-nano`, the bundled model, has the
//! same structure and is trained by `models/training`.

mod bpe;
mod config;
pub(crate) mod eval;
mod weights;

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Ships with the source, so it must stay small.
const MOST_BYTES: usize = 4 << 20;

const CHAT_TEMPLATE: &str = include_str!("chat_template.jinja");

/// Every file of the model as name and bytes, made from nothing but this source.
pub(crate) fn files() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let files = vec![
        ("config.json", config::model()),
        ("generation_config.json", config::generation()),
        ("preprocessor_config.json", config::preprocessor()),
        ("tokenizer_config.json", config::tokenizer()),
        ("tokenizer.json", bpe::tokenizer_json()?),
        ("chat_template.jinja", CHAT_TEMPLATE.as_bytes().to_vec()),
        ("model.safetensors", weights::safetensors()?),
    ];
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    ensure!(total <= MOST_BYTES, "the miniature has {total} bytes; at most {MOST_BYTES} may ship");
    Ok(files)
}

/// Writes the model, or with `check` only compares and names the first file that differs.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let folder = root.join("tests/data/random/m3-nano");
    for (name, bytes) in files()? {
        let path = folder.join(name);
        if check {
            let found = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(
                found == bytes,
                "{} differs from what the generator makes: run `cargo xtask nano`",
                path.display()
            );
        } else {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(&path, &bytes)?;
            println!("{:>10} bytes  {}", bytes.len(), path.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn committed_miniature_is_what_the_generator_makes() {
        super::run(&crate::root(), true).unwrap();
    }
}
