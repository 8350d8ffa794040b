//! Reading configs: both shapes, the text-only class, and every way a field can be refused.

mod synthetic;

use m3_model::config::{
    AttentionKind, FfnKind, GenerationConfig, LayerPlan, Loaded, ModelConfig, Quantization, VisionConfig,
};
use m3_model::error::{ConfigProblem, ModelError};
use serde_json::{Value, json};
use synthetic::{flat_config, load, m3_config, merge, native_config, tiny_config};

fn read(config: &Value) -> Result<Loaded, ModelError> {
    ModelConfig::from_json(config.to_string().as_bytes())
}

fn problems(config: &Value) -> Vec<ConfigProblem> {
    match read(config) {
        Err(ModelError::Config { problems }) => problems,
        other => panic!("expected refused fields, got {other:?}"),
    }
}

/// The refused keys, in order.
fn keys(config: &Value) -> Vec<String> {
    problems(config).into_iter().map(|problem| problem.key).collect()
}

/// The config with the value at a dotted path set, or removed when it is null.
fn with(config: &Value, path: &str, value: Value) -> Value {
    let mut config = config.clone();
    let (parents, key) = path.rsplit_once('.').unwrap_or(("", path));
    let parent =
        parents.split('.').filter(|part| !part.is_empty()).fold(&mut config, |at, part| &mut at[part]);
    let parent = parent.as_object_mut().expect("an object");
    if value.is_null() {
        parent.remove(key);
    } else {
        parent.insert(key.to_owned(), value);
    }
    config
}

#[test]
fn the_released_shape_reads_every_value() {
    let loaded = read(&m3_config(true)).expect("the released config");
    assert_eq!(loaded.unknown_keys, Vec::<String>::new());
    assert_eq!(loaded.num_mtp_modules, 7);
    let config = loaded.config;
    assert_eq!(config.quantization, Quantization::Mxfp8);
    assert_eq!((config.image_token_id, config.video_token_id), (Some(200_025), Some(200_026)));
    let text = &config.text;
    assert_eq!((text.hidden_size, text.vocab_size, text.max_position_embeddings), (6144, 200_064, 1_048_576));
    assert_eq!((text.num_heads, text.num_kv_heads, text.head_dim, text.rotary_dim), (64, 4, 128, 64));
    assert_eq!((text.rope_theta, text.norm_eps), (5e6, 1e-6));
    assert_eq!(
        (text.dense_intermediate_size, text.expert_intermediate_size, text.shared_intermediate_size),
        (12_288, 3072, 3072)
    );
    assert_eq!((text.num_experts, text.experts_per_token, text.routed_scaling_factor), (128, 4, 2.0));
    assert_eq!((text.swiglu_alpha, text.swiglu_limit), (1.702, 7.0));
    let sparse = &text.sparse;
    assert_eq!((sparse.num_index_heads, sparse.index_dim, sparse.block_size), (4, 128, 128));
    assert_eq!((sparse.topk_blocks, sparse.init_blocks, sparse.local_blocks), (16, 0, 1));
    let dense = LayerPlan { attention: AttentionKind::Dense, ffn: FfnKind::Dense };
    let rest = LayerPlan { attention: AttentionKind::Sparse, ffn: FfnKind::Moe };
    assert_eq!(text.layers, [vec![dense; 3], vec![rest; 57]].concat());
    let vision = VisionConfig {
        hidden_size: 1280,
        num_layers: 32,
        num_heads: 16,
        intermediate_size: 5120,
        patch_size: 14,
        temporal_patch_size: 2,
        merge_size: 2,
        num_channels: 3,
        layer_norm_eps: 1e-5,
        rope_theta: 1e4,
        segment_max_frames: 4,
        projector_hidden_size: 6144,
    };
    assert_eq!(config.vision, Some(vision));
}

#[test]
fn the_native_shape_is_the_same_model() {
    for released in [m3_config(false), m3_config(true), tiny_config(false), tiny_config(true)] {
        assert_eq!(load(&native_config(&released)), load(&released));
    }
}

#[test]
fn the_text_only_class_reads_from_either_shape() {
    let released = load(&m3_config(true));
    let flat = load(&flat_config(&m3_config(true)));
    assert_eq!(
        (flat.text, flat.vision, flat.quantization),
        (released.text.clone(), None, Quantization::Mxfp8)
    );
    let mut native = native_config(&m3_config(false))["text_config"].clone();
    native["architectures"] = json!(["MiniMaxM3SparseForCausalLM"]);
    assert_eq!(load(&native).text, released.text);
}

#[test]
fn a_released_config_without_vision_part_is_a_text_model() {
    let config = with(&m3_config(false), "vision_config", Value::Null);
    assert_eq!(load(&config).vision, None);
}

#[test]
fn all_unsupported_values_come_in_one_error() {
    let mut config = m3_config(false);
    merge(
        &mut config["text_config"],
        json!({
            "hidden_act": "silu", "scoring_func": "softmax", "use_qk_norm": false, "use_gemma_norm": false,
            "attention_output_gate": true, "tie_word_embeddings": true, "n_shared_experts": 2,
            "qk_norm_type": "per_layer", "use_routing_bias": false, "swiglu_beta": 0.5,
            "rope_scaling": {"type": "yarn"}, "dtype": "float16",
        }),
    );
    config["text_config"]["sparse_attention_config"]["sparse_score_type"] = json!("mean");
    config["vision_config"]["rope_mode"] = json!("2d");
    config["vision_config"]["hidden_act"] = json!("quick_gelu");
    config["projector_hidden_act"] = json!("relu");
    config["vision_feature_layer"] = json!(-2);
    config["quantization_config"] = json!({"quant_method": "modelopt", "quant_algo": "NVFP4"});
    let found = problems(&config);
    assert_eq!(found.len(), 19, "{found:#?}");
    let message = read(&config).expect_err("refused").to_string();
    for line in [
        r#"text_config.hidden_act: "silu" (supported: "swigluoai")"#,
        r#"text_config.scoring_func: "softmax" (supported: "sigmoid")"#,
        r#"text_config.n_shared_experts: 2 (supported: 1)"#,
        r#"text_config.rope_scaling: {"type":"yarn"} (supported: absent or null)"#,
        r#"text_config.sparse_attention_config.sparse_score_type: "mean" (supported: "max")"#,
        r#"vision_config.hidden_act: "quick_gelu" (supported: "gelu")"#,
        r#"vision_feature_layer: -2 (supported: -1)"#,
        r#"quantization_config.quant_algo: "NVFP4" (supported: absent or null)"#,
        r#"quantization_config.quant_method: "modelopt" (supported: "mxfp8", or no quantization_config)"#,
    ] {
        assert!(message.contains(line), "{line}\nin {message}");
    }
}

#[test]
fn nvfp4_is_refused_by_its_name_wherever_it_stands() {
    for (method, said) in [
        (json!({"quant_algo": "NVFP4"}), r#"quantization_config.quant_algo: "NVFP4""#),
        (
            json!({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}),
            r#"quantization_config.format: "nvfp4-pack-quantized""#,
        ),
        (json!({"quant_method": "modelopt_fp4"}), r#"quantization_config.quant_method: "modelopt_fp4""#),
    ] {
        let message =
            read(&with(&m3_config(false), "quantization_config", method)).expect_err("no").to_string();
        assert!(message.contains(said), "{message}");
    }
    let number = with(&m3_config(false), "quantization_config", json!({"quant_method": 5}));
    assert_eq!(problems(&number).len(), 1, "{:#?}", problems(&number));
}

#[test]
fn numbers_beyond_f32_are_refused_and_do_not_become_infinity_or_zero() {
    for number in [json!(1e300), json!(1e-300)] {
        let mut config = m3_config(false);
        merge(&mut config["text_config"], json!({"rms_norm_eps": number, "routed_scaling_factor": number}));
        assert_eq!(problems(&config).len(), 2, "{:#?}", problems(&config));
    }
}

#[test]
fn sizes_that_do_not_fit_are_named_beside_a_value_of_the_wrong_kind() {
    let mut config = m3_config(false);
    merge(
        &mut config["text_config"],
        json!({"head_dim": -1, "num_experts_per_tok": 999, "num_attention_heads": 7}),
    );
    let keys: Vec<String> = problems(&config).into_iter().map(|problem| problem.key).collect();
    for key in ["head_dim", "num_experts_per_tok", "num_attention_heads"] {
        assert!(keys.contains(&format!("text_config.{key}")), "{key} in {keys:?}");
    }
}

#[test]
fn every_known_field_is_checked() {
    let released = m3_config(true);
    for (key, value) in [
        ("architectures", json!(["LlamaForCausalLM"])),
        ("model_type", json!("llama")),
        ("torch_dtype", json!("float32")),
        ("num_reward_heads", json!(1)),
        ("multimodal_projector_bias", json!(false)),
        ("vision_feature_select_strategy", json!("default")),
        ("process_image_mode", json!("fixed")),
        ("compression_config", json!({"format": "int"})),
        ("text_config.architectures", json!(["Other"])),
        ("text_config.attention_bias", json!(true)),
        ("text_config.norm_topk_prob", json!(false)),
        ("text_config.sliding_window", json!(4096)),
        ("text_config.n_group", json!(8)),
        ("text_config.num_attention_heads", json!(62)),
        ("text_config.num_attention_heads", json!("64")),
        ("text_config.hidden_size", json!(0)),
        ("text_config.hidden_size", json!(-6144)),
        ("text_config.hidden_size", json!(1u64 << 40)),
        ("text_config.hidden_size", json!(6144.5)),
        ("text_config.rotary_dim", json!(63)),
        ("text_config.rms_norm_eps", json!(0)),
        ("text_config.num_experts_per_tok", json!(129)),
        ("text_config.num_local_experts", json!(1 << 20)),
        ("text_config.num_hidden_layers", json!(1 << 20)),
        ("text_config.first_k_dense_replace", json!(2)),
        ("text_config.sparse_attention_config.use_sparse_attention", json!(false)),
        ("text_config.sparse_attention_config.sparse_local_block", json!(0)),
        ("text_config.sparse_attention_config", json!([1])),
        ("vision_config.position_embedding_type", json!("learned")),
        ("vision_config.model_type", json!("siglip")),
        ("vision_config.num_channels", json!(4)),
        ("vision_config.num_attention_heads", json!(7)),
        ("vision_config.projection_dim", json!(4096)),
        ("vision_config.layer_norm_eps", json!("small")),
        ("quantization_config.quant_method", json!("fp8")),
        ("quantization_config.weight_block_size", json!([128, 128])),
        ("quantization_config.weight_block_size", Value::Null),
        ("quantization_config.activation_scheme", json!("static")),
        ("quantization_config.moe_quant_algo", json!("NVFP4")),
        ("quantization_config.ignored_layers", json!(["language_model.model.layers.3.self_attn"])),
        ("image_token_index", json!(200_064)),
    ] {
        let config = with(&released, key, value.clone());
        let found = keys(&config);
        let leaf = key.rsplit('.').next().expect("a key");
        assert!(
            found.iter().any(|found| found.contains(leaf) || key == "vision_config.num_attention_heads"),
            "{key} = {value}: {found:?}"
        );
    }
}

/// Whatever stands at a place, reading ends with an answer, and what it lets through has sums that do not overflow.
#[test]
fn no_value_at_any_place_panics() {
    fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            paths(value, &path, found);
            found.push(path);
        }
    }
    let mut accepted = 0;
    for released in [tiny_config(true), native_config(&tiny_config(false)), flat_config(&tiny_config(true))] {
        let mut places = Vec::new();
        paths(&released, "", &mut places);
        for place in places {
            for value in [
                json!(null),
                json!(0),
                json!(-1),
                json!(1),
                json!(3),
                json!(4096),
                json!(u64::MAX),
                json!(1e300),
                json!(0.5),
                json!(true),
                json!("x"),
                json!([]),
                json!([0]),
                json!({}),
                json!({"a": null}),
            ] {
                if let Ok(loaded) = read(&with(&released, &place, value)) {
                    let specs = m3_model::names::expected_tensors(&loaded.config);
                    assert!(m3_model::names::Totals::of(&specs).bytes > 0);
                    let _ = m3_model::shard::ShardPlan::new(&loaded.config, 8, 2);
                    accepted += 1;
                }
            }
        }
    }
    assert!(accepted > 50, "{accepted}");
}

#[test]
fn missing_fields_are_all_named_and_nothing_is_guessed() {
    let released = m3_config(false);
    let text = released["text_config"].as_object().expect("an object");
    let optional = [
        "use_gemma_norm",
        "partial_rotary_factor",
        "rotary_dim",
        "n_shared_experts",
        "scoring_func",
        "use_routing_bias",
        "hidden_act",
        "num_mtp_modules",
    ];
    for key in text.keys().filter(|key| !optional.contains(&key.as_str())) {
        let config = with(&released, &format!("text_config.{key}"), Value::Null);
        let found = problems(&config);
        assert!(found.iter().all(|problem| problem.value == "missing"), "{key}: {found:?}");
    }
    let mut config = with(&released, "text_config.head_dim", Value::Null);
    config = with(&config, "text_config.moe_layer_freq", Value::Null);
    config = with(&config, "vision_config.patch_size", Value::Null);
    config = with(&config, "projector_hidden_size", Value::Null);
    assert_eq!(
        keys(&config),
        [
            "text_config.head_dim",
            "text_config.moe_layer_freq or text_config.mlp_layer_types",
            "vision_config.patch_size",
            "projector_hidden_size",
        ]
    );
}

#[test]
fn a_wrong_field_is_named_once() {
    assert_eq!(
        keys(&with(&m3_config(false), "text_config.hidden_size", json!("x"))),
        ["text_config.hidden_size"]
    );
}

#[test]
fn layer_lists_of_the_wrong_length_or_content_are_refused() {
    let released = m3_config(false);
    for (path, value, shown) in [
        ("text_config.moe_layer_freq", json!([0, 1]), "a list of 2"),
        ("text_config.moe_layer_freq", json!(1), "1"),
        ("text_config.moe_layer_freq", json!(vec![2; 60]), "2"),
        ("text_config.sparse_attention_config.sparse_attention_freq", json!(vec![1; 61]), "a list of 61"),
        (
            "text_config.sparse_attention_config.sparse_disable_index_value",
            json!(vec![1; 59]),
            "a list of 59",
        ),
        (
            "text_config.sparse_attention_config.sparse_disable_index_value",
            json!(vec![0; 60]),
            "0 at layer 3",
        ),
    ] {
        let found = problems(&with(&released, path, value));
        assert_eq!((found[0].key.as_str(), found[0].value.as_str()), (path, shown));
        assert_eq!(found.len(), 1, "{found:?}");
    }
    let native =
        with(&native_config(&released), "text_config.layer_types", json!(vec!["sliding_attention"; 60]));
    assert_eq!(problems(&native)[0].value, "\"sliding_attention\"");
}

#[test]
fn two_names_of_one_setting_must_agree() {
    let mut config = m3_config(false);
    merge(&mut config["text_config"], json!({"index_topk_blocks": 8, "moe_intermediate_size": 1536}));
    config["image_token_id"] = json!(7);
    assert_eq!(
        keys(&config),
        [
            "text_config.intermediate_size and moe_intermediate_size",
            "text_config.sparse_attention_config.sparse_topk_blocks or text_config.index_topk_blocks",
            "image_token_index and image_token_id",
        ]
    );
    merge(&mut config["text_config"], json!({"index_topk_blocks": 16, "moe_intermediate_size": 3072}));
    config["image_token_id"] = json!(200_025);
    assert_eq!(load(&config), load(&m3_config(false)));
}

#[test]
fn the_rotary_width_follows_the_rule() {
    let dims = |rotary: Value, factor: Value| {
        let config = with(&m3_config(false), "text_config.rotary_dim", rotary);
        read(&with(&config, "text_config.partial_rotary_factor", factor))
            .map(|loaded| loaded.config.text.rotary_dim)
    };
    assert_eq!(dims(json!(32), Value::Null).ok(), Some(32));
    assert_eq!(dims(Value::Null, json!(0.25)).ok(), Some(32));
    assert_eq!(dims(Value::Null, Value::Null).ok(), Some(128));
    assert!(dims(json!(64), json!(0.25)).expect_err("a contradiction").to_string().contains("64 and 32"));
}

#[test]
fn token_counts_stand_for_forced_blocks() {
    let path = "text_config.sparse_attention_config";
    let mut config = with(&m3_config(false), &format!("{path}.sparse_init_block"), Value::Null);
    config = with(&config, &format!("{path}.sparse_local_block"), Value::Null);
    config = with(&config, &format!("{path}.sparse_init_tokens"), json!(130));
    config = with(&config, &format!("{path}.sparse_local_tokens"), json!(128));
    let sparse = load(&config).text.sparse;
    assert_eq!((sparse.init_blocks, sparse.local_blocks), (2, 2));
}

#[test]
fn unknown_keys_are_listed_with_their_place() {
    let mut config = m3_config(true);
    config["new_thing"] = json!(1);
    config["text_config"]["other"] = json!({"a": 1});
    config["text_config"]["sparse_attention_config"]["third"] = json!(null);
    config["vision_config"]["fourth"] = json!([]);
    config["quantization_config"]["fifth"] = json!("x");
    let mut unknown = read(&config).expect("unknown keys are no fault").unknown_keys;
    unknown.sort();
    assert_eq!(
        unknown,
        [
            "new_thing",
            "quantization_config.fifth",
            "text_config.other",
            "text_config.sparse_attention_config.third",
            "vision_config.fourth",
        ]
    );
}

#[test]
fn lists_of_unquantised_modules_may_use_either_naming() {
    let list =
        json!(["model.vision_tower", "model.language_model.layers.3.mlp.gate", "model.norm", "lm_head"]);
    let config = with(&m3_config(true), "quantization_config.ignored_layers", Value::Null);
    assert_eq!(
        load(&with(&config, "quantization_config.modules_to_not_convert", list)),
        load(&m3_config(true))
    );
}

#[test]
fn mxfp8_rows_must_hold_whole_scale_groups() {
    let config = with(&m3_config(true), "text_config.intermediate_size", json!(3000));
    assert_eq!(keys(&config), ["intermediate_size"]);
    assert!(read(&with(&m3_config(false), "text_config.intermediate_size", json!(3000))).is_ok());
}

#[test]
fn what_is_not_a_config_is_refused_with_a_sentence() {
    for (text, start) in [
        ("", "config.json is not JSON"),
        ("{\"a\": ", "config.json is not JSON"),
        ("[1]", "1 field in config.json cannot be served: config.json: [1] (supported: an object)"),
        ("{}", "1 field in config.json cannot be served: architectures: missing (supported: \"MiniMaxM3"),
        (
            r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1}"#,
            "2 fields in config.json cannot be served: architectures: [\"LlamaForCausalLM\"]",
        ),
    ] {
        let message = ModelConfig::from_json(text.as_bytes()).expect_err("refused").to_string();
        assert!(message.starts_with(start), "{text}: {message}");
    }
}

#[test]
fn generation_defaults_are_read() {
    let read = |text: &str| GenerationConfig::from_json(text.as_bytes());
    let full = read(
        r#"{"eos_token_id": [5, 7], "bos_token_id": 3, "temperature": 1.0, "top_p": 0.95, "top_k": 40,
            "do_sample": true, "transformers_version": "x"}"#,
    );
    let expected = GenerationConfig {
        eos_token_ids: vec![5, 7],
        bos_token_id: Some(3),
        temperature: Some(1.0),
        top_p: Some(0.95),
        top_k: Some(40),
        do_sample: Some(true),
    };
    assert_eq!(full.expect("all fields"), expected);
    assert_eq!(read("{}").expect("nothing said"), GenerationConfig::default());
    assert_eq!(read(r#"{"eos_token_id": 9}"#).expect("one id").eos_token_ids, [9]);
    assert_eq!(read(r#"{"temperature": 0}"#).expect("greedy").temperature, Some(0.0));
    assert_eq!(read(r#"{"top_k": -1}"#).expect("off").top_k, Some(0));
    let message = read(r#"{"eos_token_id": "x", "temperature": -1, "top_p": 1.5, "top_k": -2}"#)
        .expect_err("all wrong")
        .to_string();
    for key in ["eos_token_id: \"x\"", "temperature: -1", "top_p: 1.5", "top_k: -2"] {
        assert!(message.contains(key), "{key} in {message}");
    }
    assert_eq!(
        read("[]").expect_err("a list").to_string(),
        "generation_config.json: the file: [] (supported: an object)"
    );
    let message = read(r#"{"do_sample": "yes", "temperature": 1e300}"#).expect_err("both wrong").to_string();
    assert!(message.contains("do_sample: \"yes\" (supported: true or false)"), "{message}");
    assert!(message.contains("temperature: 1e+300"), "{message}");
    assert!(read("[").expect_err("no JSON").to_string().starts_with("generation_config.json is not JSON"));
}
