//! The released checkpoint's full size, as sparse files that take no space: 59 shards, 854 GB to the file system.

mod synthetic;

use std::fs::File;
use std::io::Write;

use m3_model::checkpoint::Checkpoint;
use m3_model::formats::Format;
use m3_model::names::{TensorSpec, expected_tensors};
use m3_model::shard::ShardPlan;
use serde_json::json;
use synthetic::{Folder, load, m3_config};

const SHARDS: usize = 59;

/// A header, and a length without blocks behind it. `false` when the file system cannot.
fn write_shard(folder: &Folder, name: &str, specs: &[&TensorSpec]) -> bool {
    let (mut entries, mut at) = (serde_json::Map::new(), 0);
    for spec in specs {
        let dtype = if spec.format == Format::F32 { "F32" } else { "BF16" };
        let end = at + spec.value_bytes();
        entries.insert(
            spec.name.clone(),
            json!({"dtype": dtype, "shape": spec.shape, "data_offsets": [at, end]}),
        );
        at = end;
    }
    let mut header = json!(entries).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = File::create(folder.path().join(name)).expect("a writable folder");
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("room for a header");
    file.write_all(&header).expect("room for a header");
    file.set_len(8 + header.len() as u64 + at).is_ok()
}

/// Public fault M5 with its own numbers, and the whole table through real headers.
#[test]
fn m5_the_full_size_checkpoint_opens_with_the_sum_of_its_headers() {
    let config = m3_config(false);
    let specs = expected_tensors(&load(&config));
    let folder = Folder(tempfile::tempdir().expect("a temporary folder"));
    folder.write("config.json", config.to_string().as_bytes());
    let mut map = serde_json::Map::new();
    let part = specs.len().div_ceil(SHARDS);
    for (at, chunk) in specs.chunks(part).enumerate() {
        let name = format!("model-{:05}-of-{SHARDS:05}.safetensors", at + 1);
        let mut chunk: Vec<&TensorSpec> = chunk.iter().collect();
        chunk.sort_by_key(|spec| std::cmp::Reverse(spec.format.value_bytes()));
        if !write_shard(&folder, &name, &chunk) {
            eprintln!("SKIPPED: this file system cannot hold sparse files of {part} tensors");
            return;
        }
        map.extend(chunk.iter().map(|spec| (spec.name.clone(), json!(name))));
    }
    let index = json!({"metadata": {"total_size": 869_157_697_024u64}, "weight_map": map});
    folder.write("model.safetensors.index.json", index.to_string().as_bytes());

    let checkpoint = Checkpoint::open(folder.path()).expect("the released shape");
    let report = checkpoint.report();
    assert_eq!((report.num_stored_tensors, report.files.len()), (23_416, SHARDS));
    assert_eq!((report.tensor_bytes, report.index_total_bytes), (854_172_958_720, Some(869_157_697_024)));
    assert_eq!(checkpoint.load_bytes(), 854_172_958_720);
    let plan = ShardPlan::new(checkpoint.config(), 8, 8).expect("one KV head on two ranks");
    let cuts = checkpoint.load_order().filter_map(|tensor| plan.cut(5, tensor).expect("a rank"));
    assert_eq!(cuts.map(|cut| cut.bytes()).sum::<u64>(), plan.rank_bytes(5, checkpoint.specs()));
}
