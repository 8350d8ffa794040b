//! Pictures and videos: the vision tower against its goldens, and prompts with encoded media in place of embeddings.

use m3_abi::types::{MediaSpan, NONE, PageAppend, SEQ_CHAINED, Seq};
use m3_abi::{Backend, Error, Media, Output, Step};
use m3_model::reference::QuantMode;
use m3_testdata::golden;

use super::answers::{FEATURES, close, compare_taps};
use super::golden::{Golden, case};
use super::run::{Run, greedy};

const ROW_LEN: usize = 1176;

/// Patches and grid of one picture or video.
struct Patches {
    values: Vec<f32>,
    grid: [u32; 3],
}

/// The media of a golden file, in order. The vision part of `vl` and `vl_mxfp8` is the same, and so are the pictures.
fn media_of(file: &str) -> Option<(Golden, Vec<Patches>)> {
    let golden = Golden::read(&golden(&format!("golden/vl/{file}.safetensors"))?);
    let (patches, grids) = (golden.array("patches"), golden.ids("grid_thw"));
    let mut first = 0;
    let media = grids.chunks(3).map(|grid| {
        let len = grid.iter().product::<u32>() as usize * ROW_LEN;
        first += len;
        Patches { values: patches.values[first - len..first].to_vec(), grid: [grid[0], grid[1], grid[2]] }
    });
    let media = media.collect();
    Some((golden, media))
}

fn encode(run: &mut Run, media: &Patches) -> Media {
    run.backend.encode(&media.values, ROW_LEN, &[media.grid]).unwrap()
}

/// Tower and features of a whole file, encoded in one call and then one medium at a time.
fn check_tower(checkpoint: &str, file: &str) {
    let Some(folder) = golden(&format!("ckpt/{checkpoint}")) else { return };
    let Some((golden, media)) = media_of(file) else { return };
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 1);
    let values: Vec<f32> = media.iter().flat_map(|medium| medium.values.clone()).collect();
    let grids: Vec<[u32; 3]> = media.iter().map(|medium| medium.grid).collect();
    let encoded = run.backend.encode(&values, ROW_LEN, &grids).unwrap();
    run.backend.wait(encoded.ticket, &mut Output::default()).unwrap();
    let mut wanted = golden.array("features");
    assert_eq!(encoded.num_rows as usize, wanted.shape[0]);
    for (name, tolerance) in [("tower_out", 1e-4), ("features", FEATURES)] {
        let (found, expected) = (run.tap(name), golden.array(name));
        assert_eq!(found.shape, [expected.shape[0] as u64, expected.shape[1] as u64]);
        close(&found.data, &expected.values, tolerance, |_| true)
            .unwrap_or_else(|what| panic!("{checkpoint}/{file}: {name}: {what}"));
    }
    for medium in &media {
        let encoded = encode(&mut run, medium);
        run.backend.wait(encoded.ticket, &mut Output::default()).unwrap();
        let rest = wanted.values.split_off(encoded.num_rows as usize * wanted.shape[1]);
        close(&run.tap("features").data, &wanted.values, FEATURES, |_| true).unwrap();
        wanted.values = rest;
    }
    assert!(wanted.values.is_empty());
}

#[test]
fn images_become_features() {
    check_tower("vl", "images");
    check_tower("vl_mxfp8", "images");
}

#[test]
fn videos_of_one_and_of_two_segments_become_features() {
    check_tower("vl_mxfp8", "video8");
    check_tower("vl_mxfp8", "video11");
}

/// Runs of a token in a prompt: (first position, length).
fn runs_of(token: u32, tokens: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (position, _) in tokens.iter().enumerate().filter(|(_, id)| **id == token) {
        match runs.last_mut() {
            Some((first, len)) if *first + *len == position as u32 => *len += 1,
            _ => runs.push((position as u32, 1)),
        }
    }
    runs
}

/// Encodes pictures and a video, and says where in the prompt their rows go.
fn spans(run: &mut Run, tokens: &[u32], images: &[usize], video: Option<&str>) -> Option<Vec<MediaSpan>> {
    let vocab_size = run.config.vocab_size as u32;
    let all_images = if images.is_empty() { Vec::new() } else { media_of("images")?.1 };
    let mut spans = Vec::new();
    let pictures: Vec<&Patches> = images.iter().map(|&image| &all_images[image]).collect();
    let clip = match video {
        Some(file) => media_of(file)?.1,
        None => Vec::new(),
    };
    for (token, media) in [(vocab_size - 12, pictures), (vocab_size - 11, clip.iter().collect())] {
        let mut runs = runs_of(token, tokens).into_iter();
        for medium in media {
            let encoded = encode(run, medium);
            let mut first_row = 0;
            while first_row < encoded.num_rows {
                let (first_position, len) = runs.next().expect("the prompt has a place for every row");
                spans.push(MediaSpan { handle: encoded.handle, row: 0, first_position, len, first_row });
                first_row += len;
            }
            assert_eq!(first_row, encoded.num_rows);
        }
        assert_eq!(runs.next(), None);
    }
    Some(spans)
}

fn seq(first_position: u32, num_tokens: u32, num_logits: u32, flags: u32) -> Seq {
    Seq {
        row: 0,
        flags,
        first_position,
        num_tokens,
        token_offset: 0,
        num_logits,
        output_offset: 0,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: 0,
    }
}

fn step(run: &mut Run, step: &Step<'_>) -> Output {
    let ticket = run.backend.submit(step).unwrap();
    let mut output = Output::with_capacity(step.seqs[0].num_logits as usize, 0);
    run.backend.wait(ticket, &mut output).unwrap();
    output
}

fn first_step(run: &mut Run, tokens: &[u32], media: &[MediaSpan], num_logits: u32) -> Output {
    step(
        run,
        &Step {
            binds: &[greedy(0)],
            pages: &[PageAppend { row: 0, first: 0, offset: 0, count: 2 }],
            page_ids: &[0, 1],
            seqs: &[seq(0, tokens.len() as u32, num_logits, 0)],
            tokens,
            media,
            ..Step::default()
        },
    )
}

const CASES: [(&str, &[usize], Option<&str>); 4] = [
    ("mm_image1", &[1], None),
    ("mm_images4", &[0, 1, 2, 3], None),
    ("mm_image_video", &[2], Some("video8")),
    ("mm_video", &[], Some("video11")),
];

fn check(checkpoint: &str) {
    for (name, images, video) in CASES {
        let Some((folder, golden)) = case(checkpoint, name) else { continue };
        let tokens = golden.ids("input_ids");
        let mut run = Run::open(&folder, QuantMode::WeightOnly, 2);
        let Some(media) = spans(&mut run, &tokens, images, video) else { continue };
        first_step(&mut run, &tokens, &media, tokens.len() as u32);
        let compared =
            compare_taps(&mut run, &golden).unwrap_or_else(|what| panic!("{checkpoint}/{name}: {what}"));
        assert!(compared >= 12, "only {compared} taps compared");
    }
}

#[test]
fn prompts_with_pictures_and_videos() {
    check("vl");
}

#[test]
fn prompts_with_pictures_and_videos_in_mxfp8() {
    check("vl_mxfp8");
}

#[test]
fn greedy_tokens_after_media() {
    for (checkpoint, name, images, video) in [
        ("vl", "greedy_mm_images4", &[0, 1, 2, 3][..], None),
        ("vl", "greedy_mm_image_video", &[2], Some("video8")),
        ("vl_mxfp8", "greedy_mm_images4", &[0, 1, 2, 3], None),
        ("vl_mxfp8", "greedy_mm_image_video", &[2], Some("video8")),
    ] {
        let Some((folder, golden)) = case(checkpoint, name) else { continue };
        let (prompt, new_ids) = (golden.ids("prompt_ids"), golden.ids("new_ids"));
        let mut run = Run::open(&folder, QuantMode::WeightOnly, 2);
        let Some(media) = spans(&mut run, &prompt, images, video) else { continue };
        let mut output = first_step(&mut run, &prompt, &media, 1);
        for (index, &wanted) in new_ids.iter().enumerate() {
            assert_eq!(output.tokens, [wanted], "{checkpoint}/{name}: token {index}");
            let seqs = [seq((prompt.len() + index) as u32, 1, 1, SEQ_CHAINED)];
            output = step(&mut run, &Step { seqs: &seqs, ..Step::default() });
        }
    }
}

#[test]
fn media_that_cannot_be_encoded_are_refused_and_change_nothing() {
    let Some(folder) = golden("ckpt/vl_mxfp8") else { return };
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 1);
    let mut refused = |values: usize, row_len: usize, grids: &[[u32; 3]]| match run.backend.encode(
        &vec![0.0; values],
        row_len,
        grids,
    ) {
        Err(Error::Unsupported(sentence)) => sentence,
        other => panic!("{other:?}"),
    };
    assert!(refused(ROW_LEN * 6, ROW_LEN, &[[1, 2, 3]]).contains("multiples of 2"));
    assert!(refused(100, 100, &[[1, 1, 1]]).contains("a patch of this model has 1176"));
    assert!(refused(ROW_LEN, ROW_LEN, &[[1, 2, 2]]).contains("have 4704"));
    let encoded = run.backend.encode(&vec![0.0; ROW_LEN * 4], ROW_LEN, &[[1, 2, 2]]).unwrap();
    assert_eq!((encoded.ticket.0, encoded.num_rows), (1, 1));
    run.backend.media_free(encoded.handle).unwrap();
    assert!(run.backend.media_free(encoded.handle).is_err());
    // A text-only checkpoint has nothing to encode with.
    let Some(text) = golden("ckpt/text") else { return };
    let mut run = Run::open(&text, QuantMode::WeightOnly, 1);
    let refusal = run.backend.encode(&vec![0.0; ROW_LEN * 4], ROW_LEN, &[[1, 2, 2]]).unwrap_err();
    assert!(refusal.to_string().contains("without a vision tower"), "{refusal}");
}
