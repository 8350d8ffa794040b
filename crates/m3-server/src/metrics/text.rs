//! The text of `/metrics`: the engine's snapshot and the HTTP side's own series, under each name they go by.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use m3_core::metrics::EngineStats;

use super::{ServerMetrics, engine};
use crate::app::{App, State};

/// Everything, also before the model is there.
pub fn render(app: &App) -> String {
    let mut page = Page { out: String::new(), model: escape(&app.model_name) };
    let state = app.state();
    let phase = app.phase.get();
    page.gauge("m3_ready", "1 when requests are served", f64::from(u8::from(state == State::Ready)));
    page.gauge("m3_load_percent", "start-up progress", f64::from(phase.percent));
    if let Some(serving) = app.loaded() {
        let stats = serving.engine.stats();
        load(&mut page, &stats);
        pages(&mut page, &stats);
        media(&mut page, &stats);
        counters(&mut page, &stats);
        engine::write(&mut page, serving, &stats);
        page.gauge(
            "m3_engine_dead",
            "1 when the engine has stopped",
            f64::from(u8::from(stats.fatal.is_some())),
        );
    }
    histograms(&mut page, &app.metrics);
    errors(&mut page, &app.metrics);
    http(&mut page, &app.metrics);
    page.out
}

pub(super) struct Page {
    out: String,
    model: String,
}

impl Page {
    pub(super) fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// `more` is empty or further labels with a comma before each.
    pub(super) fn sample(&mut self, name: &str, more: &str, value: f64) {
        let labels = self.labels(name);
        let _ = writeln!(self.out, "{name}{{{labels}{more}}} {value}");
    }

    /// The labels that dashboards of the name's origin select by.
    fn labels(&self, name: &str) -> String {
        let more = match name.split_once(':') {
            Some(("sglang", _)) => ",engine_type=\"unified\"",
            Some(("vllm", _)) => ",engine=\"0\"",
            _ => "",
        };
        format!("model_name=\"{}\"{more}", self.model)
    }

    /// One measure with a label of its own.
    pub(super) fn labelled(&mut self, name: &str, help: &str, kind: &str, samples: &[(&str, &str, f64)]) {
        self.head(name, help, kind);
        for (label, value, number) in samples {
            self.sample(name, &format!(",{label}=\"{}\"", escape(value)), *number);
        }
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.sample(name, "", value);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        self.sample(name, "", value as f64);
    }

    /// One measure under several names.
    pub(super) fn gauges(&mut self, names: &[&str], help: &str, value: f64) {
        names.iter().for_each(|name| self.gauge(name, help, value));
    }

    pub(super) fn counters(&mut self, names: &[&str], help: &str, value: u64) {
        names.iter().for_each(|name| self.counter(name, help, value));
    }
}

fn load(page: &mut Page, stats: &EngineStats) {
    let running = ["m3_requests_running", "sglang:num_running_reqs", "vllm:num_requests_running"];
    page.gauges(&running, "requests that hold a table row", stats.running as f64);
    let waiting = ["m3_requests_waiting", "sglang:num_queue_reqs", "vllm:num_requests_waiting"];
    page.gauges(&waiting, "requests that wait for a row or pages", stats.waiting as f64);
    page.gauge("m3_steps_in_flight", "steps submitted and not finished", stats.steps_in_flight as f64);
    page.gauge(
        "m3_oldest_step_seconds",
        "age of the oldest step in flight",
        stats.oldest_step_us as f64 / 1e6,
    );
    let step = &stats.last_step;
    page.gauge(
        "m3_last_step_seconds",
        "submission to completion of the last step",
        step.wall_us as f64 / 1e6,
    );
    page.gauge("m3_last_step_tokens", "tokens of the last step", step.num_tokens as f64);
    page.gauge("m3_last_step_sequences", "sequences of the last step", step.num_seqs as f64);
}

fn pages(page: &mut Page, stats: &EngineStats) {
    let pages = &stats.pages;
    page.head("m3_pages", "cache pages by state", "gauge");
    for (state, count) in [("free", pages.free), ("leased", pages.leased), ("cached", pages.cached)] {
        page.sample("m3_pages", &format!(",state=\"{state}\""), count as f64);
    }
    page.gauge("m3_pages_total", "cache pages in all", pages.total as f64);
    // As in the originals: what running requests hold; evictable pages are not in use.
    let share = pages.leased as f64 / pages.total.max(1) as f64;
    let names = [
        "m3_page_usage",
        "sglang:token_usage",
        "sglang:full_token_usage",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
    ];
    page.gauges(&names, "share of pages that requests hold, 0 to 1", share);
}

/// Images, and the pieces in which videos are encoded.
fn media(page: &mut Page, stats: &EngineStats) {
    let (counters, media) = (&stats.counters, &stats.media);
    page.counter("m3_media_encodes_total", "images and pieces of videos encoded", counters.media_encodes);
    page.counter("m3_media_patches_total", "patches of images and videos encoded", counters.media_patches);
    page.counter("m3_media_cache_hits_total", "media found encoded already", counters.media_hits);
    page.counter("m3_media_cache_misses_total", "media not found encoded", counters.media_misses);
    page.counter("m3_media_cache_evictions_total", "encoded media given up", counters.media_evictions);
    page.gauge("m3_media_cache_bytes", "device bytes of encoded media", media.bytes as f64);
    page.gauge("m3_media_cache_budget_bytes", "most bytes of encoded media", media.budget_bytes as f64);
    page.gauge("m3_media_cache_held", "encoded media that requests use now", media.held as f64);
}

fn counters(page: &mut Page, stats: &EngineStats) {
    let counters = &stats.counters;
    let names = ["m3_prompt_tokens_total", "sglang:prompt_tokens_total", "vllm:prompt_tokens_total"];
    page.counters(&names, "tokens of prompts that started to run", counters.prompt_tokens);
    let names =
        ["m3_generation_tokens_total", "sglang:generation_tokens_total", "vllm:generation_tokens_total"];
    page.counters(&names, "sampled tokens", counters.generated_tokens);
    let names = [
        "m3_cached_tokens_total",
        "sglang:cached_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:prompt_tokens_cached_total",
        "vllm:gpu_prefix_cache_hits_total",
    ];
    page.counters(&names, "prompt tokens found in the prefix cache", counters.cached_tokens);
    let help = "prompt tokens looked up in the prefix cache";
    let names = ["vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"];
    page.counters(&names, help, counters.prompt_tokens);
    let rate = counters.cached_tokens as f64 / counters.prompt_tokens.max(1) as f64;
    page.gauges(
        &["m3_cache_hit_rate", "sglang:cache_hit_rate"],
        "cached share of prompt tokens since start",
        rate,
    );
    page.counters(&["m3_requests_total", "sglang:num_requests_total"], "requests admitted", counters.arrived);
    let aborted = ["m3_requests_aborted_total", "sglang:num_aborted_requests_total"];
    page.counters(&aborted, "requests aborted", counters.finished_aborted);
    let preempted = ["m3_preemptions_total", "vllm:num_preemptions_total"];
    page.counters(&preempted, "times a request's pages were taken back", counters.preemptions);
    for name in ["m3_requests_finished_total", "vllm:request_success_total"] {
        page.head(name, "requests by how they ended", "counter");
        for (reason, count) in
            finished(stats).into_iter().filter(|(reason, _)| name.starts_with("m3") || *reason != "error")
        {
            page.sample(name, &format!(",finished_reason=\"{reason}\""), count as f64);
        }
    }
    page.counter("m3_steps_total", "steps", counters.steps);
    page.counter("m3_computed_tokens_total", "tokens passed through the model", counters.computed_tokens);
    page.counter("m3_overrun_tokens_total", "tokens computed past a stop", counters.overrun_tokens);
    page.counter("m3_evicted_pages_total", "cached pages given up", counters.evicted_pages);
}

fn finished(stats: &EngineStats) -> [(&'static str, u64); 4] {
    let counters = &stats.counters;
    [
        ("stop", counters.finished_stop),
        ("length", counters.finished_length),
        ("abort", counters.finished_aborted),
        ("error", counters.finished_error),
    ]
}

fn histograms(page: &mut Page, metrics: &ServerMetrics) {
    let mut write = |histogram: &super::Histogram, names: &[&str], help: &str| {
        for name in names {
            let labels = page.labels(name);
            histogram.write(&mut page.out, name, help, &labels);
        }
    };
    for (histogram, help, names) in super::names::HISTOGRAMS {
        write(histogram(metrics), names, help);
    }
}

fn errors(page: &mut Page, metrics: &ServerMetrics) {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let classes = ["4xx", "5xx", "429"].into_iter().zip(&metrics.errors);
    let samples: Vec<_> = classes.map(|(class, counter)| ("status", class, count(counter))).collect();
    page.labelled("m3_http_errors_total", "responses with an error status", "counter", &samples);
    let results = ["ok", "failed"].into_iter().zip(&metrics.idle_probes);
    let samples: Vec<_> = results.map(|(result, counter)| ("result", result, count(counter))).collect();
    page.labelled("m3_idle_probes_total", "tokens that an idle engine was asked for", "counter", &samples);
    let faults = metrics.fault_totals();
    let samples: Vec<_> = faults.iter().map(|(kind, count)| ("kind", *kind, *count as f64)).collect();
    page.labelled("m3_parser_faults_total", "repairs and drops of the output parser", "counter", &samples);
}

/// What was asked over HTTP, in SGLang's names and ours.
fn http(page: &mut Page, metrics: &ServerMetrics) {
    let counts = metrics.http.snapshot();
    let active = ["m3_http_requests_active", "sglang:http_requests_active"];
    page.gauges(&active, "requests whose answer is not yet out", metrics.http.active() as f64);
    for name in ["m3_http_requests_total", "sglang:http_requests_total"] {
        page.head(name, "requests by route", "counter");
        for ((route, method), count) in &counts.requests {
            page.sample(name, &format!(",endpoint=\"{route}\",method=\"{method}\""), *count as f64);
        }
    }
    for name in ["m3_http_responses_total", "sglang:http_responses_total"] {
        page.head(name, "answers by route and status", "counter");
        for ((route, method, status), count) in &counts.responses {
            let labels = format!(",endpoint=\"{route}\",status_code=\"{status}\",method=\"{method}\"");
            page.sample(name, &labels, *count as f64);
        }
    }
    let refusals: Vec<_> =
        counts.refusals.iter().map(|(code, count)| ("code", *code, *count as f64)).collect();
    page.labelled("m3_refusals_total", "requests refused, by the error's code", "counter", &refusals);
    let full = ["queue_full", "rate_limit_exceeded", "concurrency_limit_exceeded"];
    let rejected = full.iter().filter_map(|code| counts.refusals.get(code)).sum();
    page.counter("vllm:admission_rejections_total", "requests refused because of load", rejected);
}

pub(super) fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
