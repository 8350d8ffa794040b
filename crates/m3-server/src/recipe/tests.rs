//! Recipes for every kind of GPU: their commands start this program, their refusals say what would do.

use super::*;
use crate::args::{Options, parse};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn recipe(flags: &str) -> anyhow::Result<Recipe> {
    cook(Wanted::read(&parse(&words(&format!("recipe {flags}"))).unwrap())?)
}

#[track_caller]
fn refusal(flags: &str) -> String {
    crate::error::sentence(&recipe(flags).unwrap_err())
}

#[test]
fn every_recipe_is_a_command_that_this_program_takes() {
    for row in hardware::HARDWARE {
        for (strategy, _) in Strategy::ALL {
            let recipe = recipe(&format!("--hardware {} --strategy {strategy}", row.name)).unwrap();
            let typed = words(&recipe.command);
            assert_eq!(typed[0], "m3");
            let options = Options::read(&parse(&typed[1..]).unwrap()).unwrap();
            assert_eq!((options.backend.tp, options.backend.backend.as_str()), (row.usual, row.backend));
            assert!(options.backend.memory_share.unwrap() < 1.0);
            let text = print::text(&recipe);
            assert!(text.contains(&recipe.command) && text.contains("not verified"), "{text}");
            assert_eq!(text.contains("plugin has no kernels yet"), row.backend != "sm90", "{text}");
            let json: serde_json::Value = serde_json::from_str(&print::json(&recipe)).unwrap();
            assert_eq!(json["verified"], false);
            assert!(json["predicted_at_best"][1]["ttft_ms"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn throughput_trades_gaps_for_tokens() {
    let of =
        |strategy: &str| recipe(&format!("--hardware h200 --weights mxfp8 --strategy {strategy}")).unwrap();
    let (fast, full) = (of("latency").prediction, of("throughput").prediction);
    assert!(full.output_per_second > 2.0 * fast.output_per_second && full.each_token > fast.each_token);
}

#[test]
fn what_was_measured_stands_beside_the_prediction() {
    let text = print::text(&recipe("--hardware h200 --weights mxfp8").unwrap());
    assert!(text.contains("bench/sm90-serve.json") && text.contains("one rank of eight alone"), "{text}");
    let text = print::text(&recipe("--hardware mi300x").unwrap());
    assert!(text.contains("nothing on this hardware"), "{text}");
}

#[test]
fn refusals_name_the_value_and_what_would_do() {
    for (flags, parts) in [
        ("--hardware rtx", vec!["\"rtx\"", "h200", "mi355x"]),
        ("--hardware h200 --gpus 3", vec!["\"3\"", "1, 2, 4, 8"]),
        ("--hardware gb200 --gpus 8", vec!["\"8\"", "from 1 to 4"]),
        ("--hardware h200 --gpus 4 --weights bf16", vec!["cannot hold bf16", "--gpus 8", "--weights mxfp8"]),
        ("--hardware b200 --weights nvfp4", vec!["nvfp4", "reads bf16 and MXFP8"]),
        ("--hardware b200 --weights int4", vec!["\"int4\"", "bf16, mxfp8 or nvfp4"]),
        ("--hardware h200 --strategy fast", vec!["\"fast\"", "latency, balanced or throughput"]),
        ("--hardware h200 --weights bf16 --concurrency 4096", vec!["4096 requests", "--concurrency "]),
        ("--hardware h200 --context-length 2M", vec!["2097152", "at most"]),
    ] {
        let text = refusal(flags);
        assert!(parts.iter().all(|part| text.contains(part)), "{flags}: {text}");
    }
}

#[test]
fn the_table_has_every_gpu() {
    let (text, json) = (print::table(), print::table_json());
    for row in hardware::HARDWARE {
        assert!(text.contains(row.title) && json.contains(row.title));
    }
}
