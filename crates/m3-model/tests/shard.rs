//! Shard plans: every tensor's parts over all ranks make the whole, and what does not divide is refused.

mod synthetic;

use std::collections::BTreeMap;

use m3_model::checkpoint::Checkpoint;
use m3_model::config::ModelConfig;
use m3_model::error::ModelError;
use m3_model::formats::{Format, WeightRows};
use m3_model::names::{Role, TensorSpec, expected_tensors};
use m3_model::shard::{ShardPlan, TensorCut};
use serde_json::json;
use synthetic::{Folder, load, m3_config, merge, tensors, tiny_config};

fn plan(config: &ModelConfig, tp: usize, ep: usize) -> ShardPlan {
    ShardPlan::new(config, tp, ep).unwrap_or_else(|error| panic!("{error}"))
}

fn reasons(config: &ModelConfig, tp: usize, ep: usize) -> Vec<String> {
    match ShardPlan::new(config, tp, ep) {
        Err(ModelError::Shard { reasons, .. }) => reasons,
        other => panic!("expected a refusal of tp {tp} ep {ep}, got {other:?}"),
    }
}

#[test]
fn a_rank_of_eight_has_the_documented_shape() {
    let config = load(&m3_config(true));
    let plan = plan(&config, 8, 1);
    for (rank, part) in plan.ranks.iter().enumerate() {
        assert_eq!(
            (part.rank, part.query_heads.len(), part.kv_heads.len(), part.index_heads.len()),
            (rank, 8, 1, 1)
        );
        assert_eq!(
            (part.expert_width.len(), part.dense_width.len(), part.shared_width.len()),
            (384, 1536, 384)
        );
        assert_eq!((part.vocab.len(), part.experts.len(), part.kv_copies), (25_008, 128, 2));
        assert_eq!(part.kv_heads.start, rank / 2);
        // A rank's query heads all read its own KV head.
        assert!(part.query_heads.clone().all(|head| head / 16 == part.kv_heads.start));
    }
    let text = |mxfp8: bool| {
        let specs = expected_tensors(&load(&m3_config(mxfp8)));
        let specs: Vec<_> = specs.into_iter().filter(|spec| spec.role != Role::Vision).collect();
        plan.rank_bytes(0, &specs) as f64 / f64::from(1 << 30)
    };
    assert!((text(false) - 99.6).abs() < 0.1, "{}", text(false));
    assert!((text(true) - 51.7).abs() < 0.1, "{}", text(true));
}

#[test]
fn expert_groups_are_contiguous_and_cut_width_inside() {
    let config = load(&m3_config(true));
    let plan = plan(&config, 8, 4);
    let groups: Vec<_> = plan
        .ranks
        .iter()
        .map(|rank| {
            (rank.expert_group, rank.expert_group_rank, rank.experts.clone(), rank.expert_width.clone())
        })
        .collect();
    assert_eq!(groups[0], (0, 0, 0..32, 0..1536));
    assert_eq!(groups[1], (0, 1, 0..32, 1536..3072));
    assert_eq!(groups[7], (3, 1, 96..128, 1536..3072));
    let spec = |expert: usize| {
        let name = format!("language_model.model.layers.3.block_sparse_moe.experts.{expert}.w1.weight");
        expected_tensors(&config).into_iter().find(|spec| spec.name == name).expect("an expert")
    };
    assert!(plan.part(0, &spec(31)).is_some() && plan.part(0, &spec(32)).is_none());
    assert_eq!(plan.part(7, &spec(127)).map(|part| part.rows), Some(1536..3072));
    assert!(plan.is_partial_sum(Role::ExpertDown { expert: 0 }) && plan.is_partial_sum(Role::AttentionOut));
    assert!(!plan.is_partial_sum(Role::Query));
    let whole = plan_of_one(&config);
    assert!(!whole.is_partial_sum(Role::ExpertDown { expert: 0 }) && !whole.is_partial_sum(Role::DenseDown));
}

fn plan_of_one(config: &ModelConfig) -> ShardPlan {
    plan(config, 1, 1)
}

#[test]
fn every_supported_world_of_the_released_model_plans() {
    let config = load(&m3_config(true));
    for tp in [1, 2, 4, 8, 16, 32, 64] {
        for ep in [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|ep| *ep <= tp) {
            let plan = plan(&config, tp, ep);
            let rows: usize = plan.ranks.iter().map(|rank| rank.vocab.len()).sum();
            assert_eq!(rows, 200_064, "tp {tp}");
            let copies: usize = plan.ranks.iter().map(|rank| rank.kv_heads.len()).sum();
            assert_eq!(copies, 4.max(tp), "tp {tp}");
        }
    }
}

#[test]
fn what_does_not_divide_is_refused_with_the_sizes() {
    let config = load(&m3_config(true));
    assert_eq!(reasons(&config, 0, 1), ["both must be at least 1"]);
    assert_eq!(reasons(&config, 4, 3), ["4 ranks do not divide into 3 expert groups"]);
    assert_eq!(
        reasons(&config, 3, 1),
        ["64 query heads do not divide by 3", "4 KV heads do not divide by 3"]
    );
    assert_eq!(
        reasons(&config, 6, 6),
        [
            "64 query heads do not divide by 6",
            "6 ranks (copies of KV heads) do not divide by 4",
            "128 experts do not divide by 6",
        ]
    );
    assert_eq!(reasons(&config, 128, 1), ["64 query heads do not divide by 128"]);
    let mut small = tiny_config(false);
    merge(
        &mut small["text_config"],
        json!({"vocab_size": 50, "num_attention_heads": 16, "dense_intermediate_size": 90}),
    );
    assert_eq!(
        reasons(&load(&small), 16, 1),
        [
            "90 values of dense width do not divide by 16",
            "50 vocabulary rows in parts of 4 leave a rank without any",
        ]
    );
    let message = ShardPlan::new(&config, 3, 1).expect_err("refused").to_string();
    assert_eq!(
        message,
        "tp 3 with ep 1 is impossible: 64 query heads do not divide by 3; 4 KV heads do not divide by 3"
    );
}

/// Where a value of the whole tensor may be: each rank's rows and columns, found from the roles by other means
/// than the plan: a tensor's parts must tile it, or repeat it.
fn coverage(plan: &ShardPlan, spec: &TensorSpec) -> BTreeMap<(u64, u64), usize> {
    let columns = if spec.shape.len() == 2 { spec.shape[1] } else { 1 };
    let mut times = BTreeMap::new();
    for rank in 0..plan.tp {
        let Some(part) = plan.part(rank, spec) else { continue };
        for row in part.rows.clone() {
            for column in part.columns.clone().unwrap_or(0..columns) {
                *times.entry((row, column)).or_default() += 1;
            }
        }
    }
    times
}

#[test]
fn the_parts_of_every_tensor_tile_it() {
    let config = load(&tiny_config(true));
    for (tp, ep) in [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)] {
        let plan = plan(&config, tp, ep);
        for spec in expected_tensors(&config).iter().filter(|spec| spec.role != Role::Vision) {
            let columns = if spec.shape.len() == 2 { spec.shape[1] } else { 1 };
            let times = coverage(&plan, spec);
            assert_eq!(times.len() as u64, spec.shape[0] * columns, "tp {tp} ep {ep} {}", spec.name);
            let copies = match spec.role {
                Role::Norm | Role::Router | Role::IndexKey => tp,
                Role::KeyValue | Role::IndexQuery => (tp / 2).max(1),
                _ => 1,
            };
            assert!(times.values().all(|count| *count == copies), "tp {tp} ep {ep} {}", spec.name);
        }
    }
}

/// Reads a cut only through what crosses the plugin line: pointer, shape, strides, scale pointer, group offset.
fn values_through_the_view(cut: &TensorCut<'_>) -> Vec<f32> {
    let view = cut.view();
    let rows = cut.rows().expect("a real tensor");
    assert_eq!((view.data, view.format), (rows.data.as_ptr(), rows.format.abi()));
    assert_eq!(view.scale.is_null(), rows.format != Format::Mxfp8);
    assert_eq!(
        (view.group_offset as usize, view.scale_stride as usize),
        (rows.group_offset, rows.scale_stride)
    );
    let last: u64 = view.shape.iter().zip(view.strides).map(|(size, stride)| (size - 1) * stride).sum();
    assert_eq!(rows.data.len() as u64, (last + 1) * rows.format.value_bytes() as u64, "{}", view.name);
    rows.to_f32()
}

#[test]
fn cuts_hold_the_values_of_the_whole_tensor() {
    for mxfp8 in [false, true] {
        let config_json = tiny_config(mxfp8);
        let config = load(&config_json);
        let folder = Folder::new(&config_json, &tensors(&config_json));
        let checkpoint = Checkpoint::open(folder.path()).expect("a sound folder");
        for (tp, ep) in [(1, 1), (2, 1), (4, 1), (4, 2), (4, 4)] {
            let plan = plan(&config, tp, ep);
            for tensor in checkpoint.load_order() {
                let spec = tensor.spec;
                let (last, lead) = spec.shape.split_last().expect("dims");
                let whole = WeightRows {
                    format: spec.format,
                    data: tensor.data,
                    rows: lead.iter().product::<u64>() as usize,
                    columns: *last as usize,
                    row_stride: *last as usize,
                    scale: tensor.scale.unwrap_or_default(),
                    scale_stride: tensor.scale_stride as usize,
                    group_offset: 0,
                };
                let full = whole.to_f32();
                let row_len = (full.len() as u64 / spec.shape[0]) as usize;
                for rank in 0..tp {
                    let cut = plan.cut(rank, tensor).expect("a rank of the plan");
                    let part = plan.part(rank, spec);
                    assert_eq!(cut.is_some(), part.is_some());
                    let (Some(cut), Some(part)) = (cut, part) else { continue };
                    let columns = part.columns.unwrap_or(0..row_len as u64);
                    let expected: Vec<f32> = part
                        .rows
                        .flat_map(|row| columns.clone().map(move |column| (row, column)))
                        .map(|(row, column)| full[row as usize * row_len + column as usize])
                        .collect();
                    let same = values_through_the_view(&cut)
                        .iter()
                        .map(|v| v.to_bits())
                        .eq(expected.iter().map(|v| v.to_bits()));
                    assert!(same, "tp {tp} ep {ep} rank {rank} {}", spec.name);
                }
            }
        }
    }
}

#[test]
fn a_cut_inside_a_scale_group_gives_both_ranks_the_scale() {
    let config_json = tiny_config(true);
    let config = load(&config_json);
    let folder = Folder::new(&config_json, &tensors(&config_json));
    let checkpoint = Checkpoint::open(folder.path()).expect("a sound folder");
    let plan = plan(&config, 4, 1);
    let down = checkpoint.tensor("language_model.model.layers.0.mlp.down_proj.weight").expect("down_proj");
    // 96 columns over 4 ranks: 0..24, 24..48, 48..72, 72..96; groups end at 32 and 64.
    let cut = |rank: usize| plan.cut(rank, down).expect("a rank").expect("a part");
    let offsets: Vec<u32> = (0..4).map(|rank| cut(rank).group_offset).collect();
    assert_eq!(offsets, [0, 24, 16, 8]);
    let scale_start =
        |rank: usize| cut(rank).view().scale as usize - down.scale.expect("scales").as_ptr() as usize;
    assert_eq!([0, 1, 2, 3].map(scale_start), [0, 0, 1, 2]);
    assert_eq!([0, 1, 2, 3].map(|rank| cut(rank).bytes()), [64 * 25, 64 * 26, 64 * 26, 64 * 25]);
}

#[test]
fn synthetic_tensors_have_the_part_without_bytes() {
    let config = load(&m3_config(true));
    let plan = plan(&config, 8, 1);
    let specs = expected_tensors(&config);
    let down =
        specs.iter().find(|spec| spec.name.ends_with("layers.0.mlp.down_proj.weight")).expect("down_proj");
    let cut = plan.synthetic(3, down, 42).expect("a rank").expect("a part");
    let view = cut.view();
    assert!(view.data.is_null() && view.scale.is_null());
    assert_eq!((view.shape, view.strides, view.seed), (&[6144, 1536][..], &[1536, 1][..], 42));
    assert_eq!((view.scale_stride, view.group_offset), (48, 0));
    assert!(cut.rows().is_none());
    assert!(matches!(plan.synthetic(8, down, 1), Err(ModelError::Rank { rank: 8, tp: 8 })));
}

#[test]
fn loaded_bytes_are_what_the_plan_says() {
    let config_json = tiny_config(true);
    let folder = Folder::new(&config_json, &tensors(&config_json));
    let checkpoint = Checkpoint::open(folder.path()).expect("a sound folder");
    for (tp, ep) in [(1, 1), (4, 2)] {
        let plan = plan(checkpoint.config(), tp, ep);
        for rank in 0..tp {
            let cuts = checkpoint.load_order().filter_map(|tensor| plan.cut(rank, tensor).expect("a rank"));
            assert_eq!(cuts.map(|cut| cut.bytes()).sum::<u64>(), plan.rank_bytes(rank, checkpoint.specs()));
        }
    }
    assert_eq!(plan_of_one(checkpoint.config()).rank_bytes(0, checkpoint.specs()), checkpoint.load_bytes());
}
