//! A recipe and the table of hardware, as text for people and as JSON for programs.

use serde_json::{Value, json};

use super::hardware::{HARDWARE, Weights};
use super::plan::{self, GIB};
use super::roofline::Layout;
use super::simulate::Prediction;
use super::{Recipe, Wanted};

/// Every kind of GPU, with what fits on its usual number.
pub(super) fn table() -> String {
    let mut text = format!(
        "{:<8} {:<18} {:<7} {:>4} {:>8} {:>9} {:>9} {:>8}  {}\n",
        "name", "GPU", "backend", "node", "GiB", "bf16 TF/s", "fp8 TF/s", "TB/s", "fits on the usual number"
    );
    for row in HARDWARE {
        text.push_str(&format!(
            "{:<8} {:<18} {:<7} {:>4} {:>8} {:>9} {:>9} {:>8}  {} x {}\n",
            row.name,
            row.title,
            row.backend,
            row.node,
            row.memory_gib,
            row.bf16,
            row.fp8,
            row.bandwidth,
            row.usual,
            fitting(row.name)
        ));
    }
    text.push_str("\nm3 recipe --hardware NAME [--gpus N] [--weights bf16|mxfp8] [--strategy latency|balanced|throughput]\n");
    text
}

/// The weights that fit on the usual number of GPUs.
fn fitting(name: &str) -> String {
    let fits = |weights: &Weights| {
        super::hardware::hardware(name).is_some_and(|hardware| {
            plan::memory(&Layout { hardware, tp: hardware.usual, weights: *weights, kv_bytes: 2.0 }).is_some()
        })
    };
    let names: Vec<&str> = Weights::ALL
        .into_iter()
        .filter(|each| each.refused().is_none())
        .filter(fits)
        .map(Weights::name)
        .collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(" or ") }
}

pub(super) fn table_json() -> String {
    let rows: Vec<Value> = HARDWARE
        .iter()
        .map(|row| {
            json!({
                "name": row.name, "title": row.title, "backend": row.backend, "has_kernels": row.has_kernels(), "gpus_per_node": row.node,
                "usual_gpus": row.usual, "memory_gib": row.memory_gib, "bf16_tflops": row.bf16,
                "fp8_tflops": row.fp8, "bandwidth_tb_per_s": row.bandwidth, "native_mxfp8": row.native_mxfp8,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "hardware": rows }))
}

pub(super) fn text(recipe: &Recipe) -> String {
    let (wanted, memory) = (&recipe.wanted, &recipe.memory);
    let gib = |bytes: f64| format!("{:>7.1} GiB", bytes / GIB);
    let verified =
        if recipe.evidence.verified { "verified" } else { "not verified: nobody has recorded a run of it" };
    let mut text = format!(
        "{} x {}, {} weights, {}: {verified}\n\n  {}\n\n",
        wanted.gpus,
        wanted.hardware.title,
        wanted.weights.name(),
        wanted.strategy,
        recipe.command
    );
    if !wanted.hardware.has_kernels() {
        text.push_str(&format!(
            "This version's {} plugin has no kernels yet: the command is refused at the start.\n\n",
            wanted.hardware.backend
        ));
    }
    text.push_str(&format!("The checkpoint is {}. Each GPU:\n", wanted.weights.checkpoint()));
    text.push_str(&format!("  weights   {}\n", gib(memory.weights)));
    text.push_str(&format!("  pages     {}  {} tokens\n", gib(memory.pages), memory.tokens));
    text.push_str(&format!("  left free {}  driver, workspaces, graphs (estimate)\n", gib(memory.reserved)));
    text.push_str(&format!("  in all    {}\n", gib(memory.total)));
    text.push_str(&format!("Contexts up to {} tokens.\n\n", recipe.context));
    text.push_str(&format!(
        "Predicted for {} tokens in and {} out, at best (roofline at rates seen in practice; no engine meets it):\n",
        wanted.input, wanted.output
    ));
    text.push_str(&line(1, &recipe.alone));
    text.push_str(&line(wanted.concurrency, &recipe.prediction));
    text.push_str("\nMeasured:\n");
    if recipe.evidence.lines.is_empty() {
        text.push_str("  nothing on this hardware\n");
    }
    recipe.evidence.lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text.push_str(&warning(wanted));
    text
}

fn line(concurrency: u64, prediction: &Prediction) -> String {
    format!(
        "  {concurrency:>4} at once: first token {:.0} ms, each token {:.2} ms, {:.0} tokens/s written in all\n",
        prediction.first_token * 1e3,
        prediction.each_token * 1e3,
        prediction.output_per_second
    )
}

/// What the arithmetic does not know.
fn warning(wanted: &Wanted) -> String {
    format!(
        "\nWhether the {} plugin here serves this layout is for `m3 doctor` to say, on the machine itself.\n",
        wanted.hardware.backend
    )
}

pub(super) fn json(recipe: &Recipe) -> String {
    let (wanted, memory) = (&recipe.wanted, &recipe.memory);
    let prediction = |concurrency: u64, each: &Prediction| {
        json!({
            "concurrency": concurrency, "ttft_ms": each.first_token * 1e3, "tpot_ms": each.each_token * 1e3,
            "output_tokens_per_s": each.output_per_second,
        })
    };
    let value = json!({
        "hardware": wanted.hardware.name, "gpus": wanted.gpus, "weights": wanted.weights.name(),
        "strategy": wanted.strategy, "command": recipe.command, "checkpoint": wanted.weights.checkpoint(),
        "memory_per_gpu_bytes": {
            "total": memory.total, "weights": memory.weights, "pages": memory.pages, "free": memory.reserved,
        },
        "page_tokens": memory.tokens, "context_length": recipe.context,
        "input_len": wanted.input, "output_len": wanted.output,
        "predicted_at_best": [prediction(1, &recipe.alone), prediction(wanted.concurrency, &recipe.prediction)],
        "verified": recipe.evidence.verified, "measured": recipe.evidence.lines,
    });
    format!("{value:#}\n")
}
