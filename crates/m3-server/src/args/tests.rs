//! The table and the parser over it.

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn options(line: &str) -> Result<Options, ArgError> {
    Options::read(&parse(&words(line))?)
}

fn sentence(line: &str) -> String {
    options(line).unwrap_err().to_string()
}

#[test]
fn either_project_s_names_set_the_same_options() {
    let sglang = options(
        "serve --model-path m --tp 2 --ep-size 2 --context-length 8192 --max-running-requests 16 \
         --chunked-prefill-size 2048 --page-size 128 --disable-radix-cache --kv-cache-dtype fp8_e4m3 --port 8000",
    )
    .unwrap();
    let vllm = options(
        "serve m -tp 2 --enable-expert-parallel --max-model-len 8K --max-num-seqs 16 \
         --max_num_batched_tokens=2048 --block-size 128 --no-enable-prefix-caching --kv-cache-dtype fp8 --port 8000",
    )
    .unwrap();
    assert_eq!(format!("{sglang:?}"), format!("{vllm:?}"));
    assert_eq!(vllm.engine.context, Some(8192));
    assert!(!vllm.engine.prefix_cache);
    assert_eq!((vllm.backend.tp, vllm.backend.ep), (2, 2));
}

#[test]
fn recipes_of_either_project_are_accepted() {
    for line in [
        "serve --model-path /m --trust-remote-code --tp 8 --reasoning-parser auto --tool-call-parser auto \
         --attention-backend fa4 --mm-attention-backend flashinfer_cudnn --moe-runner-backend deep_gemm \
         --chunked-prefill-size 8192 --page-size 128 --quantization mxfp8 --host 0.0.0.0 --port 30000",
        "serve /m --tensor-parallel-size 8 --block-size 128 --reasoning-parser minimax_m3 \
         --tool-call-parser minimax_m3 --enable-auto-tool-choice --max-model-len 1M --enable-prefix-caching",
    ] {
        options(line).unwrap();
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let options = options("serve").unwrap();
    assert_eq!((options.http.host.to_string(), options.http.port), ("127.0.0.1".into(), 30_000));
    assert_eq!((options.http.stream.heartbeat.as_secs(), options.http.drain.as_secs()), (10, 300));
    assert_eq!(options.model.dir, None);
    assert!(options.model.model_defaults && options.engine.prefix_cache);
    assert_eq!(options.model.max_logprobs, 20);
}

#[test]
fn token_ids_without_text_are_not_held_for_more_characters() {
    let hold = |line| options(line).unwrap().http.stream.pacing.hold.as_millis();
    assert_eq!(hold("serve"), 200);
    // The first packet waits for half of it: as long as text is gathered.
    assert_eq!(hold("serve --skip-tokenizer-init"), 50);
    assert_eq!(hold("serve --skip-tokenizer-init --stream-hold-ms 30"), 30);
    assert_eq!(hold("serve --skip-tokenizer-init --stream-interval 8"), 200);
}

#[test]
fn measurements_may_make_weights_up_and_load_one_rank_alone() {
    let options_of = |line| options(line).unwrap();
    assert!(!options_of("serve m --load-format auto").model.dummy_weights);
    let measured = options_of("serve m --load-format dummy --tp 8 --solo-rank 7");
    assert!(measured.model.dummy_weights);
    assert_eq!((measured.backend.tp, measured.backend.solo), (8, Some(7)));
    assert!(sentence("serve m --tp 8 --solo-rank 8").contains("a whole number from 0 to 7"));
    assert!(sentence("serve m --load-format gguf").contains("auto, safetensors, dummy"));
}

#[test]
fn localhost_is_an_address() {
    assert!(options("serve --host localhost").unwrap().http.host.is_loopback());
    assert!(options("serve --host [::1]").unwrap().http.host.is_loopback());
}

#[test]
fn two_models_in_one_command_are_refused() {
    for line in ["serve a --model b", "serve --model a --model-path b", "serve --model b a"] {
        let text = sentence(line);
        assert!(text.contains("the model a") && text.contains("the model b"), "{text}");
    }
    assert_eq!(options("serve a --model a").unwrap().model.dir, Some("a".into()));
    assert!(sentence("serve --model=").contains("a folder"));
}

#[test]
fn switches_and_settings_that_contradict_each_other_are_refused() {
    for (line, parts) in [
        (
            "serve --disable-radix-cache --enable-prefix-caching",
            ["--disable-radix-cache", "--enable-prefix-caching"],
        ),
        (
            "serve --no-enable-prefix-caching --enable-prefix-caching",
            ["--disable-radix-cache", "the other on"],
        ),
        (
            "serve --mem-fraction-static 0.8 --kv-cache-memory-bytes 1G",
            ["--mem-fraction-static and", "--kv-cache-memory-bytes"],
        ),
        ("serve --tp 4 --enable-expert-parallel --ep 2", ["--enable-expert-parallel", "--ep 2"]),
        ("serve --disable-radix-cache=false --enable-prefix-caching=false", ["=false", "prefix cache"]),
    ] {
        let text = sentence(line);
        assert!(parts.iter().all(|part| text.contains(part)), "{line}: {text}");
    }
    assert!(!options("serve --enable-prefix-caching=false").unwrap().engine.prefix_cache);
    assert!(
        options("serve --enable-prefix-caching --disable-radix-cache=false").unwrap().engine.prefix_cache
    );
    options("serve --tp 4 --enable-expert-parallel --ep 4").unwrap();
}

#[test]
fn a_value_behind_a_switch_names_the_switch() {
    for line in
        ["serve --trust-remote-code true", "serve m --disable-radix-cache False", "serve --enable-metrics 1"]
    {
        let text = sentence(line);
        assert!(text.contains("is a switch and takes no value"), "{text}");
    }
    assert!(sentence("serve m --enable-metrics 5").contains("--enable-metrics is a switch"));
    assert_eq!(options("serve --enable-metrics m").unwrap().model.dir, Some("m".into()));
    options("serve --trust-remote-code=true m").unwrap();
}

#[test]
fn template_defaults_are_checked_at_start() {
    for (json, part) in [
        ("{\"thinking_mode\":\"loud\"}", "adaptive, enabled or disabled"),
        ("{\"enable_thinking\":\"no\"}", "true or false"),
        ("{\"messages\":[]}", "messages"),
        ("{\"tools\":[]}", "tools"),
        ("[]", "a JSON object"),
    ] {
        let text = sentence(&format!("serve --default-chat-template-kwargs {json}"));
        assert!(text.contains("--default-chat-template-kwargs") && text.contains(part), "{text}");
    }
    options("serve --default-chat-template-kwargs {\"thinking_mode\":\"enabled\"}").unwrap();
}

#[test]
fn an_empty_served_name_is_refused() {
    assert!(sentence("serve --served-model-name=").contains("at least one character"));
}

#[test]
fn an_unknown_flag_is_refused_with_the_nearest_name() {
    let text = sentence("serve --max-runing-requests 4");
    assert_eq!(
        text,
        "unknown flag --max-runing-requests; the nearest is --max-running-requests (also --max-num-seqs)"
    );
    assert!(sentence("serve --tensor-paralel-size 4").contains("--tensor-parallel-size"));
    assert!(sentence("sevre").contains("\"m3 serve\""));
}

#[test]
fn a_known_flag_without_effect_is_refused_unless_harmless() {
    assert_eq!(
        sentence("serve --enable-hisparse"),
        "--enable-hisparse has no effect yet: off-load of sparse pages is not built"
    );
    assert!(sentence("serve --dp-size 2").contains("accepted: 1"));
    options("serve --dp-size 1").unwrap();
    let parsed = parse(&words("serve --trust-remote-code --attention-backend fa4")).unwrap();
    assert_eq!(parsed.notes.len(), 2);
    assert!(parsed.notes[1].starts_with("--attention-backend fa4 does nothing here"));
}

#[test]
fn wrong_values_name_the_flag_the_value_and_what_is_expected() {
    assert_eq!(
        sentence("serve --port 70000"),
        "--port is \"70000\"; expected a whole number from 0 to 65535"
    );
    assert!(sentence("serve --port").contains("--port needs a value"));
    assert!(sentence("serve --dtype float16").contains("auto, bfloat16 or float32"));
    assert!(sentence("serve --tp 4 --ep 3").contains("a divisor of --tp, which is 4"));
    assert!(sentence("serve --host=").contains("an IP address"));
    assert!(sentence("serve a b").contains("\"b\" is one word too many"));
    assert!(
        parse(&words("backends --port 1")).unwrap_err().to_string().contains("not a flag of \"m3 backends\"")
    );
}

#[test]
fn counts_take_both_kinds_of_suffix() {
    for (text, expected) in [
        ("8192", Some(8192)),
        ("1k", Some(1000)),
        ("1K", Some(1024)),
        ("1M", Some(1 << 20)),
        ("25.6k", Some(25_600)),
        ("0.0001k", None),
        ("1.5K", None),
        ("-1", None),
        ("", None),
        ("99999999999T", None),
        ("é", None),
    ] {
        assert_eq!(parse_count(text), expected, "{text}");
    }
    assert_eq!(parse_bytes("4GiB"), Some(4 << 30));
    assert_eq!(parse_bytes("512MB"), Some(512 << 20));
}

#[test]
fn names_in_the_table_are_unique_and_every_set_row_is_read() {
    let mut seen = std::collections::HashSet::new();
    for name in FLAGS.iter().flat_map(|flag| std::iter::once(&flag.name).chain(flag.also)) {
        assert!(seen.insert(*name), "{name} stands twice in the table");
    }
    let readers = [
        include_str!("options/model.rs"),
        include_str!("options/device.rs"),
        include_str!("options/http.rs"),
        include_str!("options/media.rs"),
        include_str!("options/access.rs"),
        include_str!("options/guard.rs"),
        include_str!("../logging.rs"),
        include_str!("../main.rs"),
        include_str!("../tools/mod.rs"),
        include_str!("../tools/convert.rs"),
        include_str!("../tools/media.rs"),
        include_str!("../chat.rs"),
        include_str!("../doctor/mod.rs"),
        include_str!("../recipe/mod.rs"),
        include_str!("../bench/options.rs"),
        include_str!("../fetch.rs"),
    ];
    for flag in FLAGS.iter().filter(|flag| flag.effect == Effect::Set) {
        let quoted = format!("\"{}\"", flag.name);
        assert!(readers.iter().any(|text| text.contains(&quoted)), "nothing reads --{}", flag.name);
    }
}

#[test]
fn switches_can_be_turned_off_and_values_may_be_negative() {
    assert!(options("serve --disable-radix-cache=false").unwrap().engine.prefix_cache);
    assert!(sentence("serve --port -1").contains("\"-1\""));
    assert_eq!(options("serve --api-key a --api-key b").unwrap().http.access.api_keys.len(), 2);
}

#[test]
fn help_shows_every_flag_of_a_command() {
    let text = help(Some(Command::Serve));
    assert!(text.contains("--context-length (also --max-model-len) N"));
    assert!(text.contains("[refused]"));
    assert!(help(None).contains("m3 parse:"));
}

#[test]
fn a_long_value_is_shortened_in_the_sentence() {
    let long = "x".repeat(100_000);
    for line in [
        format!("serve --port {long}"),
        format!("serve --dtype {long}"),
        format!("serve --default-chat-template-kwargs {long}"),
        format!("serve --default-chat-template-kwargs {{\"{long}\":1,}}"),
        format!("serve --{long}"),
        long.clone(),
        format!("serve a {long}"),
        format!("serve {long} --model b"),
        format!("serve --skip-tokenizer-init={long}"),
        format!("serve --api-key-file {long}"),
    ] {
        let sentence = sentence(&line);
        assert!(sentence.chars().count() < 700 && sentence.contains('…'), "{sentence}");
    }
}

#[test]
fn i10_i13_tiers_and_split_serving_are_refused_not_pretended() {
    for line in [
        "serve m --enable-hierarchical-cache",
        "serve m --enable-hisparse",
        "serve m --cpu-offload-gb 10",
        "serve m --disaggregation-mode prefill",
        "serve m --disaggregation-mode decode",
        "serve m --kv-transfer-config {}",
    ] {
        assert!(sentence(line).contains("has no effect yet"), "{line}");
    }
    options("serve m --cpu-offload-gb 0 --disaggregation-mode null").unwrap();
}

#[test]
fn limits_are_read_as_people_write_them() {
    let guard = |line| options(line).unwrap().http.guard;
    let rate = |requests, seconds| Some(Rate { requests, period: std::time::Duration::from_secs(seconds) });
    assert_eq!(guard("serve --rate-limit 10/s").rate, rate(10, 1));
    assert_eq!(guard("serve --key-rate-limit 2k/h").key_rate, rate(2000, 3600));
    assert_eq!(guard("serve --rate-limit 90").rate, rate(90, 60));
    for wrong in ["0/s", "x", "1/day", "-1", "/s"] {
        assert!(sentence(&format!("serve --rate-limit {wrong}")).contains("such as 10/s"), "{wrong}");
    }
    assert_eq!(guard("serve").rate, None);
}

#[test]
fn what_belongs_together_is_asked_for_together() {
    for (line, missing) in [
        ("serve --ssl-certfile a", "--ssl-keyfile as well"),
        ("serve --ssl-keyfile a", "--ssl-certfile as well"),
        ("serve --admin-host 0.0.0.0", "--admin-port as well"),
        ("serve --allowed-methods GET", "--allowed-origins as well"),
        ("serve --allowed-origins * --allow-credentials", "name the origins"),
        ("serve --allowed-origins chat.example", "https://chat.example"),
        ("serve --revision ../x", "a branch, a tag or a commit"),
        ("serve --hub other", "huggingface or modelscope"),
        ("serve --watch-disk /no/such/folder", "a folder that is there"),
    ] {
        assert!(sentence(line).contains(missing), "{line}: {}", sentence(line));
    }
    let admin = options("serve --admin-port 9000 --admin-host 0.0.0.0").unwrap().http.access.admin;
    assert_eq!(admin.unwrap().to_string(), "0.0.0.0:9000");
}

#[test]
fn a_longest_side_of_the_servers_own_is_read() {
    use crate::vision::SizeRule;
    let read = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let options = parse(&words).and_then(|parsed| Options::read(&parsed));
        options.map(|options| options.model.size_rule).map_err(|error| error.to_string())
    };
    assert_eq!(read("serve"), Ok(SizeRule::Area));
    assert_eq!(read("serve --media-size-rule long-side"), Ok(SizeRule::LongSide));
    for line in
        ["serve --max-long-side-pixel 504", "serve --media-size-rule long-side --max-long-side-pixel 504"]
    {
        assert_eq!(read(line), Ok(SizeRule::LongSideOf(504)), "{line}");
    }
    for line in ["--max-long-side-pixel 500", "--max-long-side-pixel 84", "--max-long-side-pixel 3612"] {
        let sentence = read(&format!("serve {line}")).unwrap_err();
        assert!(sentence.contains("a multiple of 28 from 112 to 3584"), "{line}: {sentence}");
    }
    let sentence = read("serve --media-size-rule area --max-long-side-pixel 504").unwrap_err();
    assert!(sentence.contains("no longest side"), "{sentence}");
}
