//! What was measured, as recorded under `bench/`. A recipe is "verified" only when a record here is of the whole of it:
//! these GPUs, this many, these weights, end to end. The records are read, not retold, so that they cannot drift apart.

use serde_json::Value;

use super::hardware::Weights;

/// One file of `bench/`.
struct Record {
    file: &'static str,
    text: &'static str,
    hardware: &'static str,
    weights: Weights,
    /// GPUs that took part, and ranks of the layout that was measured.
    gpus: u32,
    tp: u32,
    /// What a reader must know about it.
    caveat: &'static str,
}

const ONE_RANK: &str = "one rank of eight alone on one GPU, sums over ranks left out, made-up weights that draw fewer experts \
                        than trained ones";

const SERVED: (&str, &str) = ("bench/sm90-serve.json", include_str!("../../../../bench/sm90-serve.json"));
const STEPS: (&str, &str) = ("bench/sm90-tp8.json", include_str!("../../../../bench/sm90-tp8.json"));

const RECORDS: &[Record] = &[
    one_of_eight_h200(SERVED, Weights::Mxfp8),
    one_of_eight_h200(STEPS, Weights::Mxfp8),
    one_of_eight_h200(STEPS, Weights::Bf16),
];

const fn one_of_eight_h200((file, text): (&'static str, &'static str), weights: Weights) -> Record {
    Record { file, text, hardware: "h200", weights, gpus: 1, tp: 8, caveat: ONE_RANK }
}

/// What is known of a recipe by measurement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Evidence {
    /// The whole of it was served and measured.
    pub verified: bool,
    /// For each record a line that names it and says what it is of, then its figures.
    pub lines: Vec<String>,
}

/// Looks the records through.
pub(super) fn evidence(hardware: &str, gpus: u32, weights: Weights) -> Evidence {
    let mut found = Evidence { verified: false, lines: Vec::new() };
    let about =
        |record: &&Record| record.hardware == hardware && record.weights == weights && record.tp == gpus;
    for record in RECORDS.iter().filter(about) {
        // Shipped with the program; a test reads every one.
        let Ok(value) = serde_json::from_str::<Value>(record.text) else { continue };
        found.verified |= record.gpus == gpus && value["serve"].is_array();
        let date = value["date"].as_str().unwrap_or("undated");
        found.lines.push(format!("{}, {date}: {}", record.file, record.caveat));
        let lines = serve_lines(&value).chain(step_lines(&value, weights));
        found.lines.extend(lines.map(|line| format!("  {line}")));
    }
    found
}

/// Of a load on a server.
fn serve_lines(value: &Value) -> impl Iterator<Item = String> {
    let rows = value["serve"].as_array().into_iter().flatten();
    rows.filter_map(|row| {
        let median = |name: &str| row[name]["median"].as_f64();
        Some(format!(
            "served {} at once, {} in, {} out: first token {:.0} ms, each token {:.1} ms",
            row["concurrency"],
            row["input"],
            row["output"],
            median("ttft_ms")?,
            median("tpot_ms")?
        ))
    })
}

/// Of single steps.
fn step_lines(value: &Value, weights: Weights) -> impl Iterator<Item = String> {
    let models = value["models"].as_array().into_iter().flatten();
    let of_weights =
        move |model: &&Value| model["name"].as_str().is_some_and(|name| name.ends_with(weights.name()));
    let rows = models.filter(of_weights).flat_map(|model| model["decode"].as_array().into_iter().flatten());
    rows.filter_map(|row| {
        let milliseconds = row["device_us"]["median"].as_f64()? / 1e3;
        Some(format!("step of {} at context {}: {milliseconds:.2} ms", row["batch"], row["context"]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_read_and_says_something() {
        for record in RECORDS {
            let found = evidence(record.hardware, record.tp, record.weights);
            let at = found.lines.iter().position(|line| line.starts_with(record.file));
            let next = &found.lines[at.unwrap_or_else(|| panic!("{}: {:?}", record.file, found.lines)) + 1];
            assert!(next.starts_with("  s") && next.ends_with(" ms"), "{next}");
            assert!(!found.lines.iter().any(|line| line.contains("undated")));
        }
    }

    #[test]
    fn a_part_of_a_recipe_verifies_nothing() {
        assert!(!evidence("h200", 8, Weights::Mxfp8).verified, "one GPU was measured, not eight");
        assert_eq!(evidence("b200", 8, Weights::Mxfp8), Evidence { verified: false, lines: Vec::new() });
    }
}
