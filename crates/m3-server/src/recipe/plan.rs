//! Whether a layout fits, and what is left for pages; when it does not fit, what would.

use super::hardware::{HARDWARE, Hardware, Weights};
use super::roofline::{LONGEST, Layout, PAGE_TOKENS};

/// Bytes of each GPU that weights and pages leave free: the driver, workspaces, graphs. What the sm90 plugin leaves on
/// an H200 with eight ranks' shapes (bench/sm90-tp8.json); elsewhere assumed.
const RESERVED: f64 = 4.3 * GIB;
pub(super) const GIB: f64 = (1u64 << 30) as f64;

/// Bytes on each GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub total: f64,
    pub weights: f64,
    pub reserved: f64,
    pub pages: f64,
    /// Tokens that the pages hold.
    pub tokens: u64,
    /// For `--mem-fraction-static`: weights and pages together, in hundredths rounded down.
    pub fraction: f64,
}

/// The memory of a layout; `None` when its weights do not fit, or leave no page.
pub(super) fn memory(layout: &Layout) -> Option<Memory> {
    let (total, weights) = (layout.hardware.memory_gib * GIB, layout.weight_bytes());
    let fraction = ((total - RESERVED) / total * 100.0).floor() / 100.0;
    let pages = total * fraction - weights;
    let page_bytes = layout.token_bytes() * PAGE_TOKENS as f64;
    (pages >= page_bytes).then(|| Memory {
        total,
        weights,
        reserved: total - weights - pages,
        pages,
        tokens: (pages / page_bytes) as u64 * PAGE_TOKENS,
        fraction,
    })
}

/// Ranks that the model can be cut into on a node.
pub(super) fn cuts(hardware: &Hardware) -> impl Iterator<Item = u32> {
    let node = hardware.node;
    [1, 2, 4, 8].into_iter().filter(move |tp| *tp <= node)
}

/// Why it does not fit, and what would: more GPUs, smaller weights, other GPUs.
pub(super) fn misfit(layout: &Layout) -> String {
    let (hardware, gpus) = (layout.hardware, layout.tp);
    let mut text = format!(
        "{} x {} cannot hold {} weights: {:.1} GiB on each, {:.1} GiB are there and {:.1} GiB of them stay free for the \
         driver and workspaces",
        gpus,
        hardware.title,
        layout.weights.name(),
        layout.weight_bytes() / GIB,
        hardware.memory_gib,
        RESERVED / GIB
    );
    let with = |hardware: &'static Hardware, tp, weights| {
        memory(&Layout { hardware, tp, weights, ..*layout }).is_some()
    };
    let more = cuts(hardware).find(|tp| *tp > gpus && with(hardware, *tp, layout.weights));
    let smaller = Weights::ALL.into_iter().filter(|weights| {
        weights.refused().is_none()
            && weights.bytes() < layout.weights.bytes()
            && with(hardware, gpus, *weights)
    });
    let others = HARDWARE.iter().filter(|other| {
        other.name != hardware.name && other.node >= gpus && with(other, gpus, layout.weights)
    });
    let mut ways: Vec<String> = more.map(|tp| format!("--gpus {tp}")).into_iter().collect();
    ways.extend(smaller.map(|weights| format!("--weights {}", weights.name())));
    let others: Vec<&str> = others.map(|other| other.name).collect();
    if !others.is_empty() {
        ways.push(format!("--gpus {gpus} with --hardware {}", others.join(" or ")));
    }
    if !ways.is_empty() {
        text.push_str(&format!("; what fits: {}", ways.join(", ")));
    }
    text
}

/// Why the load does not fit into the pages, if so.
pub(super) fn too_much(memory: &Memory, concurrency: u64, each: u64, context: Option<u64>) -> Option<String> {
    let fit = memory.tokens;
    if let Some(context) = context.filter(|context| *context > fit.min(LONGEST)) {
        return Some(format!(
            "--context-length is {context}; the pages hold {fit} tokens and the model was made for {LONGEST}: at most \
             {} fit",
            fit.min(LONGEST)
        ));
    }
    let context = context.unwrap_or(fit.min(LONGEST));
    if each > context {
        return Some(format!("a request of {each} tokens is longer than the context of {context}"));
    }
    let each = in_pages(each);
    (concurrency * each > fit).then(|| {
        let most = at_once(memory, each);
        format!(
            "{concurrency} requests of {each} tokens need {} tokens of pages; {fit} fit: give --concurrency {most}, \
             --kv-cache-dtype fp8, or more GPUs",
            concurrency * each
        )
    })
}

/// Most requests of `each` tokens that the pages hold; at least one.
pub(super) fn at_once(memory: &Memory, each: u64) -> u64 {
    (memory.tokens / in_pages(each)).max(1)
}

/// Pages are taken whole.
fn in_pages(tokens: u64) -> u64 {
    tokens.div_ceil(PAGE_TOKENS) * PAGE_TOKENS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::hardware::hardware;

    fn layout(name: &str, tp: u32, weights: Weights) -> Layout {
        Layout { hardware: hardware(name).unwrap(), tp, weights, kv_bytes: 2.0 }
    }

    #[test]
    fn the_published_baselines_fit() {
        let known = [
            ("b200", 8, Weights::Mxfp8),
            ("b300", 4, Weights::Mxfp8),
            ("gb300", 4, Weights::Mxfp8),
            ("h200", 8, Weights::Bf16),
            ("mi355x", 8, Weights::Mxfp8),
            ("mi300x", 8, Weights::Mxfp8),
        ];
        for (name, tp, weights) in known {
            let memory = memory(&layout(name, tp, weights)).unwrap_or_else(|| panic!("{name}"));
            assert!(memory.tokens > 64 * 2304, "{name}: {}", memory.tokens);
            let sum = memory.weights + memory.pages + memory.reserved;
            assert!((sum - memory.total).abs() < 1.0 && memory.reserved >= RESERVED, "{memory:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        assert!(memory(&layout("h200", 4, Weights::Bf16)).is_none());
        let text = misfit(&layout("h200", 4, Weights::Bf16));
        for part in ["4 x NVIDIA H200", "198.7", "139.0 GiB", "--gpus 8", "--weights mxfp8", "b300", "mi355x"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = misfit(&layout("h100", 8, Weights::Bf16));
        assert!(!text.contains("--gpus 8,") && text.contains("--weights mxfp8"), "{text}");
    }

    #[test]
    fn a_load_beyond_the_pages_says_how_much_fits() {
        let memory = memory(&layout("h200", 8, Weights::Bf16)).unwrap();
        assert_eq!(too_much(&memory, 1, 2048, None), None);
        let text = too_much(&memory, 1 << 20, 2304, None).unwrap();
        assert!(text.contains(&format!("--concurrency {}", memory.tokens / 2304)), "{text}");
        assert!(too_much(&memory, 1, 1, Some(1 << 21)).unwrap().contains("at most"));
        assert!(too_much(&memory, 1, 9000, Some(8192)).unwrap().contains("longer than the context of 8192"));
    }
}
