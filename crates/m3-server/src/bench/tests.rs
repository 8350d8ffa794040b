//! Figures of samples that are made up, so that the right ones are known; and options at their limits.

use super::client::Sample;
use super::drive::Outcome;
use super::options::{BenchOptions, Goal, Trace};
use super::workload::{Counts, Random, conversations};
use super::*;
use crate::args::parse;

fn options(flags: &str) -> Result<BenchOptions, crate::args::ArgError> {
    let words: Vec<String> = format!("bench {flags}").split_whitespace().map(str::to_owned).collect();
    BenchOptions::read(&parse(&words)?)
}

fn sample(packets: &[f64], end: f64, output_tokens: u32) -> Sample {
    Sample { packets: packets.to_vec(), end, prompt_tokens: 10, output_tokens, ..Sample::default() }
}

fn outcome() -> Outcome {
    let failed = Sample { failure: Some("500: <broken>".to_owned()), ..Sample::default() };
    let samples = vec![sample(&[0.1, 0.2, 0.4], 0.5, 4), sample(&[0.3], 0.3, 1), failed];
    Outcome { samples, seconds: 2.0, cpu_seconds: 0.5 }
}

#[test]
fn figures_are_those_of_the_samples() {
    let options = options("--goodput ttft:200 tpot:150").unwrap();
    let run = stats::summary(&outcome(), 8, &options);
    assert_eq!((run.completed, run.failed, run.concurrency), (2, 1, 8));
    assert_eq!((run.total_input_tokens, run.total_output_tokens), (20, 5));
    assert_eq!((run.request_throughput, run.output_throughput, run.total_token_throughput), (1.0, 2.5, 12.5));
    assert!((run.ttft_ms.p50 - 200.0).abs() < 1e-9 && (run.ttft_ms.max - 300.0).abs() < 1e-9);
    // 300 ms from first packet to last, three tokens after the first.
    assert!((run.tpot_ms.mean - 100.0).abs() < 1e-9, "{:?}", run.tpot_ms);
    assert!((run.itl_ms.mean - 150.0).abs() < 1e-9 && (run.itl_ms.max - 200.0).abs() < 1e-9);
    assert!((run.goodput_share.unwrap() - 1.0 / 3.0).abs() < 1e-9, "the second was late, the third failed");
    assert_eq!(run.goodput_per_second, Some(0.5));
    assert_eq!(run.failures, [("500: <broken>".to_owned(), 1)]);
    assert_eq!(run.client_cpus, 0.25);
}

#[test]
fn percentiles_lie_between_neighbours() {
    let values: Vec<f64> = (1..=5).map(f64::from).collect();
    assert_eq!([0.0, 0.5, 0.9, 1.0].map(|share| stats::percentile(&values, share)), [1.0, 3.0, 4.6, 5.0]);
    assert_eq!(stats::percentile(&[], 0.5), 0.0);
}

#[test]
fn the_page_stands_alone_and_runs_nothing() {
    let options = options("http://h/<b> --concurrency 1,8 --goodput e2e:400").unwrap();
    let runs = [1, 8].map(|at_once| stats::summary(&outcome(), at_once, &options)).to_vec();
    let report = Report::new(&options, "<script>model".to_owned(), 1_796_000_000, runs);
    let page = html::page(&report);
    for part in
        ["2026-11-30", "&lt;script&gt;model", "500: &lt;broken&gt;", "33.3 %", "http://h/&lt;b&gt;/v1/chat"]
    {
        assert!(page.contains(part), "{part}");
    }
    for part in ["<script", "src=", "href=", "NaN", "inf,"] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!(page.matches("role=\"img\"").count(), 6);
    let table = report::table(&report);
    assert!(table.contains("8 at once: 2 answered, 1 failed") && table.contains("1 x 500"), "{table}");
}

#[test]
fn the_report_never_holds_the_key() {
    let options = options("--api-key very-secret --model m").unwrap();
    assert_eq!(options.key.as_deref(), Some("very-secret"));
    let report = Report::new(&options, "m".to_owned(), 0, Vec::new());
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains("very-secret") && json.contains("--api-key KEY"), "{json}");
}

#[test]
fn traces_have_the_lengths_and_the_beginnings_that_were_asked_for() {
    let counts = Counts { base: 20.0, per_word: 2.0 };
    let words = |text: &str| text.split(' ').count();
    let of = |flags: &str| conversations(&options(flags).unwrap(), &counts);
    let random = of("--num-prompts 10 --input-len 120 --output-len 7");
    assert_eq!(random.len(), 10);
    assert!(
        random
            .iter()
            .all(|one| one.turns.len() == 1 && words(&one.turns[0].text) == 50 && one.turns[0].output == 7)
    );
    assert_ne!(random[0].turns[0].text, random[1].turns[0].text);
    let shared =
        of("--trace shared-prefix --prefix-groups 2 --prefix-len 200 --input-len 120 --num-prompts 20");
    let beginnings: std::collections::BTreeSet<String> = shared
        .iter()
        .map(|one| one.turns[0].text.split(' ').take(100).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(beginnings.len(), 2);
    let talks = of("--trace conversation --turns 3 --num-prompts 8 --input-len 120");
    assert_eq!(talks.iter().map(|one| one.turns.len()).collect::<Vec<_>>(), [3, 3, 2]);
    assert_eq!(words(&talks[0].turns[1].text), 60, "the template's share is in the first turn");
    let ranged = of("--num-prompts 200 --output-len 100 --range-ratio 0.5");
    let lengths: Vec<usize> = ranged.iter().map(|one| one.turns[0].output).collect();
    assert!(lengths.iter().all(|length| (50..=100).contains(length)) && lengths.iter().min() < Some(&60));
    assert_eq!(format!("{:?}", of("--random-seed 3")), format!("{:?}", of("--random-seed 3")));
}

#[test]
fn arrivals_have_the_rate_that_was_asked_for() {
    let mut random = Random::new(7);
    let waits: Vec<f64> = (0..20_000).map(|_| random.wait(4.0)).collect();
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    assert!((mean - 0.25).abs() < 0.005, "{mean}");
    // Exponential: as much spread as mean.
    let variance = waits.iter().map(|wait| (wait - mean).powi(2)).sum::<f64>() / waits.len() as f64;
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.05);
}

#[test]
fn options_have_limits_and_say_them() {
    let default = options("").unwrap();
    assert_eq!(
        (default.url.as_str(), default.chat, default.trace),
        ("http://127.0.0.1:30000", true, Trace::Random)
    );
    assert_eq!(options("http://h:1/v1/").unwrap().url, "http://h:1");
    assert_eq!(options("--request-rate inf").unwrap().rate, None);
    assert_eq!(options("--concurrency 1,8,64").unwrap().concurrency, [1, 8, 64]);
    let goal = options("--goodput ttft:500 --goodput e2el:9").unwrap().goal;
    assert_eq!(goal, Goal { ttft: Some(500.0), tpot: None, e2e: Some(9.0) });
    for (flags, part) in [
        ("h:1", "an address such as http://"),
        ("--concurrency 0", "counts from 1 to 65536"),
        ("--concurrency 4,", "counts from 1 to 65536"),
        ("--request-rate -1", "a number from 0.001"),
        ("--trace sharegpt", "random or shared-prefix or conversation"),
        ("--goodput ttft", "ttft:MS"),
        ("--goodput ttft:-5", "ttft:MS"),
        ("--extra-body []", "a JSON object"),
        ("--num-prompts 0", "a whole number from 1"),
    ] {
        let sentence = options(flags).unwrap_err().to_string();
        assert!(sentence.contains(part), "{flags}: {sentence}");
    }
}
