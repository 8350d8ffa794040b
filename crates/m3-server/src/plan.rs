//! The memory of a rank before any of it is taken: what weights and pages will need, what is left, and, when it cannot
//! be enough, which flag to change and to what.
//!
//! Workspace is the backend's own affair and is known only after loading; until then a share is kept free for it.

use m3_abi::ProbeReport;
use m3_core::load::{LoadError, LoadOptions};
use m3_core::model::config::ModelConfig;
use m3_core::model::names::expected_tensors;
use m3_core::model::pages::PageLayout;
use m3_core::model::shard::ShardPlan;

/// The smallest chunk that a start falls back to.
const LEAST_STEP_TOKENS: u32 = 256;
const MIB: u64 = 1 << 20;

/// Bytes of one rank, and of the device under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// 0 = the backend does not say.
    pub device_total: u64,
    pub device_free: u64,
    /// Ranks that share one device.
    pub ranks_of_device: u64,
    pub weights: u64,
    pub page_bytes: u64,
    pub page_tokens: u64,
    /// Asked for; 0 = what is left.
    pub pages: u64,
    /// Most bytes of encoded images and videos that are kept; 0 where there are none.
    pub media_cache: u64,
}

impl MemoryPlan {
    /// Of the rank that needs most; `media_cache` is what it may keep of encoded media, in bytes.
    pub fn new(
        config: &ModelConfig,
        report: &ProbeReport,
        options: &LoadOptions,
        media_cache: u64,
    ) -> anyhow::Result<Self> {
        let (tp, ep) = (options.tp as usize, options.ep as usize);
        let shards = ShardPlan::new(config, tp, ep)?;
        let specs = expected_tensors(config);
        let weights = (0..tp).map(|rank| shards.rank_bytes(rank, &specs)).max().unwrap_or(0);
        let page_tokens = config.text.sparse.block_size;
        let layout = PageLayout::new(&config.text, tp, options.kv_dtype, page_tokens)?;
        let ranks = if options.solo.is_some() { 1 } else { options.tp };
        Ok(MemoryPlan {
            device_total: report.memory_total_bytes,
            device_free: report.memory_free_bytes,
            ranks_of_device: u64::from(ranks.div_ceil(report.num_devices.max(1))),
            weights,
            page_bytes: layout.page_bytes() as u64,
            page_tokens: page_tokens as u64,
            pages: options.page_memory_bytes,
            media_cache,
        })
    }

    /// What the log says before anything is taken.
    pub fn lines(&self) -> Vec<String> {
        let mib = |bytes: u64| format!("{:>9} MiB", bytes / MIB);
        let tokens = |bytes: u64| bytes / self.page_bytes.max(1) * self.page_tokens;
        let pages = match self.pages {
            0 => "what is left, less workspace".to_owned(),
            bytes => format!("{} for {} tokens", mib(bytes).trim_start(), tokens(bytes)),
        };
        let mut lines = vec![
            format!("memory plan of a rank: weights {}", mib(self.weights).trim_start()),
            format!(
                "memory plan of a rank: pages {pages}; {} bytes for {} tokens",
                self.page_bytes, self.page_tokens
            ),
        ];
        if self.media_cache > 0 {
            let most = mib(self.media_cache);
            lines.push(format!("memory plan of a rank: encoded media, at most {}", most.trim_start()));
        }
        if self.device_total > 0 {
            let left = self.share().saturating_sub(self.weights + self.pages + self.media_cache);
            lines.push(format!(
                "memory plan of a rank: device {}, {} free, {} ranks on it; {} left for {}",
                mib(self.device_total).trim_start(),
                mib(self.device_free).trim_start(),
                self.ranks_of_device,
                mib(left).trim_start(),
                if self.pages == 0 { "pages and workspace" } else { "workspace and head-room" }
            ));
        }
        lines
    }

    /// A sentence when it cannot be enough, with the flag to change and its value.
    pub fn refusal(&self, tp: u32, page_flag: &str) -> Option<String> {
        let share = self.share();
        if self.device_total == 0
            || self.weights + self.pages.max(self.page_bytes) + self.media_cache <= share
        {
            return None;
        }
        let mib = |bytes: u64| bytes / MIB;
        if self.weights + self.page_bytes <= share && self.pages == 0 {
            return Some(format!(
                "encoded media may take {} MiB beside {} MiB of weights, and {} MiB are free for a rank: give \
                 --media-cache-bytes {}M",
                mib(self.media_cache),
                mib(self.weights),
                mib(share),
                (share - self.weights - self.page_bytes) / MIB * 9 / 10
            ));
        }
        if self.weights + self.page_bytes > share {
            let needed = (self.weights * u64::from(tp)).div_ceil((share - share / 10).max(1));
            let next = (needed as u32).max(tp + 1).next_power_of_two();
            return Some(format!(
                "weights take {} MiB of each rank and {} MiB are free for it: give --tp {next} on as many devices, a \
                 checkpoint in fewer bytes, or free the device",
                mib(self.weights),
                mib(share)
            ));
        }
        let room = share.saturating_sub(self.weights + self.media_cache) / MIB * 9 / 10;
        let media = match self.media_cache {
            0 => String::new(),
            bytes => format!(" and {} MiB of encoded media (--media-cache-bytes)", mib(bytes)),
        };
        Some(format!(
            "{page_flag} asks for {} MiB of pages beside {} MiB of weights{media}, and {} MiB are free for a rank: give \
             --kv-cache-memory-bytes {room}M, which holds {} tokens",
            mib(self.pages),
            mib(self.weights),
            mib(share),
            room * MIB / self.page_bytes.max(1) * self.page_tokens
        ))
    }

    /// Free memory of one rank.
    fn share(&self) -> u64 {
        self.device_free / self.ranks_of_device.max(1)
    }
}

/// What to try next when loading failed for want of memory: a smaller step, which needs less workspace, and half of the
/// pages where their size was asked for. `None` when that was not why, or nothing is left to give up.
pub fn smaller(options: &LoadOptions, error: &LoadError) -> Option<LoadOptions> {
    let for_want_of_memory = match error {
        LoadError::NoPages { .. } => true,
        LoadError::Rank { reason, .. } => reason.contains("memory"),
        _ => false,
    };
    let tokens = options.max_step_tokens;
    let next = LoadOptions {
        max_step_tokens: if tokens > LEAST_STEP_TOKENS {
            (tokens / 2).max(LEAST_STEP_TOKENS)
        } else {
            tokens
        },
        page_memory_bytes: match error {
            LoadError::NoPages { .. } => options.page_memory_bytes,
            _ => options.page_memory_bytes / 2,
        },
        ..options.clone()
    };
    let changed = next.max_step_tokens != tokens || next.page_memory_bytes != options.page_memory_bytes;
    let sensible = next.page_memory_bytes == options.page_memory_bytes || next.page_memory_bytes >= MIB;
    (for_want_of_memory && changed && sensible).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn plan(weights: u64, pages: u64) -> MemoryPlan {
        MemoryPlan {
            device_total: 150 * GIB,
            device_free: 140 * GIB,
            ranks_of_device: 1,
            weights: weights * GIB,
            page_bytes: 4 << 20,
            page_tokens: 128,
            pages: pages * GIB,
            media_cache: 0,
        }
    }

    #[test]
    fn encoded_media_have_their_place_in_the_plan() {
        let with = |pages| MemoryPlan { media_cache: 4 * GIB, ..plan(100, pages) };
        let lines = with(20).lines();
        assert!(lines[2].ends_with("encoded media, at most 4096 MiB"), "{lines:?}");
        assert!(lines[3].contains("16384 MiB left"), "{lines:?}");
        assert_eq!(with(36).refusal(4, "--mem-fraction-static"), None);
        let pages = with(37).refusal(4, "--mem-fraction-static").unwrap();
        assert!(pages.contains("102400 MiB of weights and 4096 MiB of encoded media"), "{pages}");
        assert!(pages.contains("--kv-cache-memory-bytes 33177M"), "{pages}");
        let alone = MemoryPlan { media_cache: 50 * GIB, ..plan(100, 0) };
        let sentence = alone.refusal(4, "").unwrap();
        assert!(sentence.starts_with("encoded media may take 51200 MiB"), "{sentence}");
        assert!(sentence.contains("--media-cache-bytes 36860M"), "{sentence}");
    }

    #[test]
    fn a_plan_that_fits_is_told_and_not_refused() {
        assert_eq!(plan(100, 20).refusal(4, "--kv-cache-memory-bytes"), None);
        assert_eq!(plan(100, 0).refusal(4, "--kv-cache-memory-bytes"), None);
        let silent = MemoryPlan { device_total: 0, ..plan(900, 0) };
        assert_eq!(silent.refusal(1, ""), None, "nothing is known of the device");
        let lines = plan(100, 20).lines();
        assert!(lines[0].ends_with("weights 102400 MiB") && lines[2].contains("20480 MiB left"), "{lines:?}");
        assert!(lines[1].contains("20480 MiB for 655360 tokens"), "{lines:?}");
    }

    #[test]
    fn a_plan_that_does_not_fit_names_the_flag_and_the_value() {
        let weights = plan(427, 0).refusal(2, "").unwrap();
        assert!(weights.contains("--tp 8 "), "{weights}");
        let pages = plan(100, 60).refusal(4, "--mem-fraction-static").unwrap();
        assert!(pages.starts_with("--mem-fraction-static asks for 61440 MiB"), "{pages}");
        assert!(pages.contains("--kv-cache-memory-bytes 36864M"), "{pages}");
        let shared = MemoryPlan { ranks_of_device: 2, ..plan(80, 0) };
        assert!(shared.refusal(2, "").is_some(), "two ranks share what is free");
    }

    #[test]
    fn a_start_gives_up_steps_and_pages_before_it_gives_up() {
        let out = LoadError::Rank {
            rank: 0,
            action: "get ready".into(),
            reason: "the arena needs 9 bytes of device memory; device 0 has 1 of 2 free".into(),
        };
        let mut options =
            LoadOptions { max_step_tokens: 2048, page_memory_bytes: 4 << 20, ..LoadOptions::default() };
        let mut tried = Vec::new();
        while let Some(next) = smaller(&options, &out) {
            tried.push((next.max_step_tokens, next.page_memory_bytes >> 20));
            options = next;
        }
        assert_eq!(tried, [(1024, 2), (512, 1)]);
        let other = LoadError::Zero { name: "tp", value: 0 };
        assert!(smaller(&LoadOptions::default(), &other).is_none());
        let none = LoadError::NoPages { rank: 0, page_bytes: 9 };
        assert_eq!(smaller(&LoadOptions::default(), &none).unwrap().max_step_tokens, 4096);
    }
}
