//! The engine's and the device's series: pages in tokens, memory, why the cache missed, what the plugin took.

use m3_core::metrics::EngineStats;

use super::text::{Page, escape};
use crate::app::Serving;
use crate::info::generation_rate;

/// A gibibyte; SGLang's series say "gb" and mean that.
const GB: f64 = (1u64 << 30) as f64;

pub(super) fn write(page: &mut Page, serving: &Serving, stats: &EngineStats) {
    tokens(page, serving, stats);
    misses(page, stats);
    memory(page, serving);
    plugin(page, serving, stats);
}

/// Pages counted in tokens, and the limits of the engine.
fn tokens(page: &mut Page, serving: &Serving, stats: &EngineStats) {
    let info = &serving.info;
    let tokens = |pages: usize| (pages * info.page_tokens) as f64;
    let used = ["m3_used_tokens", "sglang:num_used_tokens", "sglang:kv_used_tokens"];
    page.gauges(&used, "room for tokens that requests hold", tokens(stats.pages.leased));
    page.gauge("sglang:kv_available_tokens", "room for tokens that is free", tokens(stats.pages.free));
    let help = "room for tokens that is cached and can be given up";
    page.gauge("sglang:kv_evictable_tokens", help, tokens(stats.pages.cached));
    let capacity = ["m3_capacity_tokens", "sglang:max_total_num_tokens"];
    page.gauges(&capacity, "room for tokens in all", tokens(stats.pages.total));
    page.gauge("sglang:page_size", "tokens of a page", info.page_tokens as f64);
    page.gauge("sglang:num_pages", "pages in all", stats.pages.total as f64);
    let context = ["m3_context_tokens", "sglang:context_len"];
    page.gauges(&context, "longest context", serving.model.max_context as f64);
    let rate = ["m3_generation_tokens_per_second", "sglang:gen_throughput"];
    page.gauges(&rate, "tokens a second of the last step", generation_rate(stats));
    let share = stats.running as f64 / info.max_running.max(1) as f64;
    page.gauges(&["m3_utilization", "sglang:utilization"], "running requests as a share of the most", share);
    let evicted = (stats.counters.evicted_pages as usize * info.page_tokens) as u64;
    page.counter("sglang:evicted_tokens_total", "tokens whose cached pages were given up", evicted);
    let reason = [("reason", "capacity", stats.waiting as f64)];
    let name = "vllm:num_requests_waiting_by_reason";
    page.labelled(name, "requests that wait, by why", "gauge", &reason);
    page.head("vllm:cache_config_info", "the cache's settings as labels", "gauge");
    let labels = format!(
        ",block_size=\"{}\",num_gpu_blocks=\"{}\",enable_prefix_caching=\"{}\"",
        info.page_tokens,
        stats.pages.total,
        if info.prefix_cache { "True" } else { "False" }
    );
    page.sample("vllm:cache_config_info", &labels, 1.0);
}

fn misses(page: &mut Page, stats: &EngineStats) {
    let misses = &stats.counters.misses;
    let reasons = [
        ("off", misses.off),
        ("short", misses.short),
        ("new", misses.new),
        ("diverged", misses.diverged),
        ("evicted", misses.evicted),
    ];
    let samples = reasons.map(|(reason, count)| ("reason", reason, count as f64));
    let help = "requests that found less in the prefix cache than it could have held";
    page.labelled("m3_prefix_misses_total", help, "counter", &samples);
}

/// Of the rank that needs most.
fn memory(page: &mut Page, serving: &Serving) {
    let memory = &serving.info.memory;
    let pages = memory.page_bytes * serving.info.num_pages as u64;
    let kinds = [("weights", memory.weight_bytes), ("pages", pages), ("workspace", memory.workspace_bytes)];
    let samples = kinds.map(|(kind, bytes)| ("kind", kind, bytes as f64));
    page.labelled("m3_memory_bytes", "memory of a rank by use", "gauge", &samples);
    let weights = memory.weight_bytes as f64 / GB;
    page.gauge("sglang:weight_memory_usage_gb", "memory of a rank's weights", weights);
    page.gauge("sglang:kv_cache_memory_usage_gb", "memory of a rank's pages", pages as f64 / GB);
    let load = ["m3_load_seconds", "sglang:weight_load_duration_seconds"];
    page.gauges(&load, "how long loading onto the devices took", memory.load_seconds);
    let start = ["m3_startup_seconds", "sglang:startup_time_seconds"];
    page.gauges(&start, "how long start-up took", memory.startup_seconds);
}

fn plugin(page: &mut Page, serving: &Serving, stats: &EngineStats) {
    let computer = &serving.info.computer;
    page.head("m3_backend_info", "what computes", "gauge");
    let labels =
        format!(",backend=\"{}\",device=\"{}\"", escape(&computer.backend), escape(&computer.device));
    page.sample("m3_backend_info", &labels, 1.0);
    let seconds = |us: u64| us as f64 / 1e6;
    let counters = &stats.counters;
    for (name, help, us) in [
        ("m3_backend_step_seconds_total", "steps from submission to completion", counters.steps_us),
        (
            "m3_backend_device_seconds_total",
            "steps as the backend's device measures them",
            counters.device_us,
        ),
    ] {
        page.head(name, help, "counter");
        page.sample(name, "", seconds(us));
    }
    let faults = u64::from(stats.fatal.is_some());
    page.counter("m3_backend_faults_total", "faults that ended the engine", faults);
}
