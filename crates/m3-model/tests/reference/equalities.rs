//! What must not change an answer: chunk sizes, page ids, cached pages, moved pages, company in the batch.
//!
//! In the reference a token's arithmetic does not depend on its batch, so everything here is equal to the last bit.

use m3_abi::Backend;
use m3_abi::types::{DTYPE_BF16, PageCopy};
use m3_model::reference::QuantMode;

use super::golden::case;
use super::run::{Part, Run, greedy};

/// A run of `checkpoint` and the first `len` prompt tokens of one of its cases.
fn open(checkpoint: &str, name: &str, len: usize) -> Option<(Run, Vec<u32>)> {
    let (folder, golden) = case(checkpoint, name)?;
    let tokens = golden.ids("input_ids")[..len].to_vec();
    Some((Run::open(&folder, QuantMode::WeightOnly, 256), tokens))
}

/// (checkpoint, case, tokens): blocks of 128 and of 16, the latter with blocks dropped from token 65 on.
const PROMPTS: [(&str, &str, usize); 2] = [("text", "text_200", 200), ("long16", "text_1000", 200)];

#[test]
fn chunked_equals_whole() {
    for (checkpoint, name, len) in PROMPTS {
        for chunk in [1, 3, 16, 127, 128, 129] {
            let Some((mut run, tokens)) = open(checkpoint, name, len) else { return };
            let whole = run.prefill(0, &tokens, len);
            let chunked = run.prefill(1, &tokens, chunk);
            assert!(whole == chunked, "{checkpoint}: chunks of {chunk}");
        }
    }
}

#[test]
fn cached_prefix_equals_cold() {
    for (checkpoint, name, len) in PROMPTS {
        let Some((mut run, tokens)) = open(checkpoint, name, len) else { return };
        let size = run.page_tokens as usize;
        let own = run.take_pages(run.pages_for(len));
        let cold = run.prefill_on(0, &tokens, 0, len, own.clone());
        let width = run.config.vocab_size;
        for cached_pages in 1..=len / size {
            let fresh = run.take_pages(own.len() - cached_pages);
            let pages = own[..cached_pages].iter().chain(&fresh).copied().collect();
            let cached = cached_pages * size;
            let warm = run.prefill_on(1, &tokens, cached, 50, pages);
            assert!(warm == cold[cached * width..], "{checkpoint}: {cached} tokens cached");
            run.step(&[], &[1]);
        }
    }
}

#[test]
fn page_ids_do_not_matter() {
    let Some((mut run, tokens)) = open("long16", "text_1000", 200) else { return };
    let ordered = run.prefill(0, &tokens, 200);
    let mut pages = run.take_pages(run.pages_for(200));
    pages.reverse();
    pages.rotate_left(5);
    assert!(ordered == run.prefill_on(1, &tokens, 0, 200, pages));
}

#[test]
fn pages_survive_leaving_and_moving() {
    let Some((mut run, tokens)) = open("long16", "text_1000", 160) else { return };
    let own = run.take_pages(10);
    let cold = run.prefill_on(0, &tokens, 0, 160, own.clone());
    let mut bytes = Vec::new();
    run.backend.read_pages(&own[..9], &mut bytes).unwrap();

    let Some((mut other, _)) = open("long16", "text_1000", 160) else { return };
    let away: Vec<u32> = (100..109).collect();
    other.backend.write_pages(&away, &bytes).unwrap();
    let copies: Vec<PageCopy> = away.iter().map(|&from| PageCopy { from, to: from + 50 }).collect();
    other.backend.copy_pages(&copies).unwrap();
    other.backend.write_pages(&away, &vec![0xFF; bytes.len()]).unwrap();
    let moved = other.prefill_on(0, &tokens, 144, 16, (150..160).collect());
    assert!(moved == cold[144 * run.config.vocab_size..]);
}

#[test]
fn company_in_the_batch_does_not_matter() {
    let Some((mut run, tokens)) = open("long16", "text_1000", 200) else { return };
    let alone = run.prefill(0, &tokens, 200);
    let width = run.config.vocab_size;
    let [first, second, third] = [0; 3].map(|_| run.take_pages(13));
    let part = |row: u32, from: usize, to: usize, pages: Option<Vec<u32>>| Part {
        row,
        first_position: from as u32,
        tokens: tokens[from..to].to_vec(),
        num_logits: 1,
        bind: pages.is_some().then(|| greedy(row)),
        pages: pages.map(|pages| (0, pages)),
        ..Part::default()
    };
    run.step(&[part(1, 0, 99, Some(first)), part(2, 0, 30, Some(second))], &[0]);
    // A decode row, the rest of a chunked prompt, and a new prompt under the number that was just given back.
    let output =
        run.step(&[part(1, 99, 100, None), part(2, 30, 180, None), part(0, 0, 41, Some(third))], &[]);
    let together = run.tap("logits").data;
    for (index, end) in [100, 180, 41].into_iter().enumerate() {
        assert!(together[index * width..][..width] == alone[(end - 1) * width..][..width], "prefix of {end}");
        assert_eq!(output.faults[index], 0);
    }
}

/// A sparse layer that drops nothing is a dense layer; one that drops blocks is not.
#[test]
fn sparse_equals_dense_while_every_block_fits() {
    for (checkpoint, name, same) in [("text", "text_200", 200), ("long16", "text_1000", 64)] {
        let Some((folder, golden)) = case(checkpoint, name) else { return };
        let tokens = golden.ids("input_ids")[..200].to_vec();
        let mut sparse = Run::open(&folder, QuantMode::WeightOnly, 16);
        let mut dense = Run::open_with(&folder, QuantMode::WeightOnly, 16, |request| {
            let mut config: serde_json::Value = serde_json::from_slice(&request.config).unwrap();
            let frequency = &mut config["text_config"]["sparse_attention_config"]["sparse_attention_freq"];
            frequency.as_array_mut().unwrap().fill(0.into());
            request.config = serde_json::to_vec(&config).unwrap();
        });
        let (sparse_logits, dense_logits) = (sparse.prefill(0, &tokens, 200), dense.prefill(0, &tokens, 200));
        let at = same * sparse.config.vocab_size;
        assert!(sparse_logits[..at] == dense_logits[..at], "{checkpoint}: the first {same} positions");
        assert_eq!(
            same < 200,
            sparse_logits[at..] != dense_logits[at..],
            "{checkpoint}: positions from {same} on"
        );
    }
}

#[test]
fn bf16_pages_are_half_the_size_and_close() {
    let Some((folder, golden)) = case("text", "text_200") else { return };
    let tokens = golden.ids("input_ids");
    let mut run = Run::open_with(&folder, QuantMode::WeightOnly, 4, |request| request.kv_dtype = DTYPE_BF16);
    let logits = run.prefill(0, &tokens, 200);
    let error = super::answers::relative_rms(&logits, &golden.array("logits").values);
    assert!((1e-5..0.02).contains(&error), "{error}");
    let (mut bytes, mut again) = (Vec::new(), Vec::new());
    run.backend.read_pages(&[0, 1], &mut bytes).unwrap();
    let sparse_layers = run.config.layers.len() - 3;
    let heads = 2 * run.config.num_kv_heads * run.config.head_dim * run.config.layers.len();
    assert_eq!(bytes.len(), 2 * 2 * 128 * (heads + run.config.sparse.index_dim * sparse_layers));
    run.backend.write_pages(&[2, 3], &bytes).unwrap();
    run.backend.read_pages(&[2, 3], &mut again).unwrap();
    assert!(bytes == again);
    let error = run.backend.write_pages(&[2], &bytes).unwrap_err();
    assert!(error.to_string().contains("are not 1 pages of"), "{error}");
    assert!(run.backend.read_pages(&[4], &mut again).unwrap_err().to_string().contains("4 reserved"));
}
