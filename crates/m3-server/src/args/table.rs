//! Every flag this program knows, by all its names. A plain table: no logic beyond look-up.
//!
//! A row's [`Effect`] says what happens when the flag is given. Adding a setting means adding a row here and reading
//! it in `options.rs`; a test holds that every `Set` row is read there.

/// A subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Serve,
    Chat,
    Backends,
    Doctor,
    Recipe,
    Bench,
    Download,
    Verify,
    Tokenize,
    Render,
    Parse,
    Convert,
    Media,
}

impl Command {
    /// All, with the words that name them.
    pub const ALL: [(&'static str, Command); 13] = [
        ("serve", Command::Serve),
        ("chat", Command::Chat),
        ("backends", Command::Backends),
        ("download", Command::Download),
        ("verify", Command::Verify),
        ("doctor", Command::Doctor),
        ("recipe", Command::Recipe),
        ("bench", Command::Bench),
        ("tokenize", Command::Tokenize),
        ("render", Command::Render),
        ("parse", Command::Parse),
        ("convert", Command::Convert),
        ("media", Command::Media),
    ];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, command)| *command == self).map_or("", |(name, _)| name)
    }
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Switch,
    /// One value. Given again, the last one wins, or all count where the help says so.
    Value(&'static str),
    /// One or more values, and may be given again.
    Many(&'static str),
}

/// What giving a flag does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read by `options.rs`.
    Set,
    /// Accepted and without effect, for the reason in the help text.
    Harmless,
    /// Accepted with one of these values only, which is what happens anyway.
    Only(&'static [&'static str]),
    /// Refused at start-up, for the reason in the help text.
    NotYet,
}

impl Flag {
    /// Whether `command` takes it. The doctor takes what the server would get.
    pub fn is_for(&self, command: Command) -> bool {
        self.commands.contains(&command)
            || (command == Command::Doctor && self.commands.contains(&Command::Serve))
    }
}

/// One row.
#[derive(Debug)]
pub struct Flag {
    /// Canonical name without dashes.
    pub name: &'static str,
    /// Other names; a one-dash name is written with its dash.
    pub also: &'static [&'static str],
    pub kind: Kind,
    pub effect: Effect,
    /// Commands that take it.
    pub commands: &'static [Command],
    /// One sentence for `--help`; for `Harmless` and `NotYet` the reason.
    pub help: &'static str,
}

use Command::{
    Backends, Bench, Chat, Convert, Doctor, Download, Media, Parse, Recipe, Render, Serve, Tokenize, Verify,
};
use Effect::{Harmless, NotYet, Only, Set};
use Kind::{Many, Switch, Value};

const ENGINE: &[Command] = &[Serve, Chat];
const HTTP: &[Command] = &[Serve];
const TEXT: &[Command] = &[Serve, Chat, Tokenize, Render, Parse];
const PLUGINS: &[Command] = &[Serve, Chat, Backends];
const PLANNED: &[Command] = &[Serve, Chat, Recipe];
const MODEL: &[Command] = &[Serve, Chat, Recipe, Bench, Download, Verify, Tokenize, Render, Parse];
const KEYS: &[Command] = &[Serve, Bench];
const SEEDS: &[Command] = &[Serve, Chat, Bench];
const REPORTS: &[Command] = &[Doctor, Recipe];
const EVERY: &[Command] =
    &[Serve, Chat, Backends, Recipe, Bench, Tokenize, Render, Parse, Convert, Media, Download, Verify];
const HUB: &[Command] = &[Serve, Chat, Download, Verify];

const fn row(
    name: &'static str,
    also: &'static [&'static str],
    kind: Kind,
    effect: Effect,
    commands: &'static [Command],
    help: &'static str,
) -> Flag {
    Flag { name, also, kind, effect, commands, help }
}

/// The table.
#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    // Model and text.
    row("model", &["model-path"], Value("MODEL"), Set, MODEL, "folder with config.json and safetensors, or OWNER/NAME of a hub; the bundled model when none is named"),
    row("served-model-name", &[], Many("NAME"), Set, HTTP, "names that clients may ask for; default: the folder's name"),
    row("tokenizer", &["tokenizer-path"], Value("PATH"), Set, TEXT, "tokenizer.json or a folder that has one; default: the model's"),
    row("chat-template", &[], Value("FILE"), Set, TEXT, "chat template; default: the model's"),
    row("skip-tokenizer-init", &[], Switch, Set, HTTP, "token ids in and out: a checkpoint without a tokenizer serves /v1/completions"),
    row("default-chat-template-kwargs", &[], Value("JSON"), Set, HTTP, "chat_template_kwargs of requests that send none of that key"),
    row("force-thinking", &[], Switch, Set, ENGINE, "the checkpoint always thinks: requests that turn thinking off are refused"),
    row("sampling-defaults", &["generation-config"], Value("model|openai"), Set, ENGINE, "defaults from generation_config.json (model, auto) or neutral ones (openai, vllm)"),
    row("random-seed", &["seed"], Value("N"), Set, SEEDS, "makes the seeds of requests without a seed repeatable"),
    row("max-logprobs", &[], Value("N"), Set, HTTP, "most alternatives per token a request may ask for (20)"),
    row("trust-remote-code", &[], Switch, Harmless, ENGINE, "no code from a checkpoint is ever run"),
    row("reasoning-parser", &[], Value("NAME"), Only(&["auto", "minimax-m3", "minimax_m3"]), ENGINE, "M3's parser is always on"),
    row("tool-call-parser", &[], Value("NAME"), Only(&["auto", "minimax-m3", "minimax_m3"]), ENGINE, "M3's parser is always on"),
    row("enable-auto-tool-choice", &[], Switch, Harmless, HTTP, "tool calls are always parsed"),
    row("tokenizer-mode", &[], Value("MODE"), Only(&["auto", "fast", "hf"]), ENGINE, "there is one tokenizer"),
    row("revision", &["code-revision", "tokenizer-revision"], Value("REV"), Set, HUB, "branch, tag or commit of a hub's model; a commit pins it (main; master at modelscope)"),
    row("hub", &[], Value("NAME"), Set, HUB, "huggingface or modelscope"),
    row("hub-endpoint", &[], Value("URL"), Set, HUB, "address of a mirror of that hub (HF_ENDPOINT)"),
    row("verify", &[], Switch, Set, &[Serve, Chat, Download], "hash a hub's model before it is used; the start fails when it is not what was published"),
    row("local-dir", &[], Value("DIR"), Set, &[Download], "put the files there instead of into the cache"),
    row("manifest", &[], Value("FILE"), Set, &[Verify], "hashes to compare with: the hub's list of files as JSON, or lines as sha256sum writes them"),
    row("download-dir", &[], Value("DIR"), Set, HUB, "cache of hubs' models (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub)"),
    row("load-format", &[], Value("FORMAT"), Set, ENGINE, "auto, safetensors, or dummy: made-up weights of config.json's shapes, for measurements"),
    row("quantization", &["-q"], Value("NAME"), Set, ENGINE, "must be what the checkpoint holds: auto, mxfp8 or none"),
    row("enable-lora", &[], Switch, NotYet, ENGINE, "adapters are not built"),
    row("lora-paths", &["lora-modules"], Many("NAME=PATH"), NotYet, ENGINE, "adapters are not built"),
    row("to", &[], Value("FORMAT"), Set, &[Convert], "format of the converted weights: mxfp8"),
    // Backend.
    row("backend", &[], Value("auto|NAME|PATH"), Set, PLUGINS, "device plugin (auto takes the best score)"),
    row("backend-dir", &[], Value("DIR"), Set, PLUGINS, "folder to look for plugins in, beside the executable's"),
    row("dtype", &[], Value("TYPE"), Set, ENGINE, "auto, bfloat16 or float32"),
    row("kv-cache-dtype", &[], Value("TYPE"), Set, PLANNED, "auto, bfloat16, float32 or fp8 (fp8_e4m3)"),
    row("tp", &["tp-size", "tensor-parallel-size", "-tp"], Value("N"), Set, ENGINE, "ranks that share the model (1)"),
    row("ep", &["ep-size", "expert-parallel-size"], Value("N"), Set, ENGINE, "expert-parallel groups, a divisor of --tp (1)"),
    row("solo-rank", &[], Value("N"), Set, ENGINE, "load only this rank of --tp and skip sums over ranks: what it says means nothing, how fast it is does"),
    row("enable-expert-parallel", &[], Switch, Set, ENGINE, "the same as --ep with the value of --tp"),
    row("pp-size", &["pipeline-parallel-size", "-pp"], Value("N"), Only(&["1"]), ENGINE, "pipeline parallelism is not built"),
    row("dp-size", &["dp", "data-parallel-size", "-dp"], Value("N"), Only(&["1"]), ENGINE, "data parallelism is not built"),
    row("nnodes", &[], Value("N"), Only(&["1"]), ENGINE, "more than one node is not built"),
    row("node-rank", &[], Value("N"), Only(&["0"]), ENGINE, "more than one node is not built"),
    row("enable-dp-attention", &[], Switch, NotYet, ENGINE, "data-parallel attention is not built"),
    row("threads", &["num-threads"], Value("N"), Set, ENGINE, "worker threads of a CPU rank (0: the backend decides)"),
    row("kv-cache-memory-bytes", &[], Value("BYTES"), Set, ENGINE, "most memory for pages; accepts 4G, 512M (default: the backend decides)"),
    row("media-cache-bytes", &[], Value("BYTES"), Set, ENGINE, "device memory for encoded images and videos; accepts 4G, 512M (default: 1G)"),
    row("mem-fraction-static", &[], Value("F"), Set, ENGINE, "share of a device's memory that weights and pages may take together"),
    row("gpu-memory-utilization", &[], Value("F"), NotYet, ENGINE, "it would include workspace, which is not known before loading; give --mem-fraction-static or --kv-cache-memory-bytes"),
    row("cpu-offload-gb", &[], Value("GB"), Only(&["0"]), ENGINE, "weights are never off-loaded"),
    row("attention-backend", &[], Value("NAME"), Harmless, ENGINE, "the plugin picks its kernels"),
    row("mm-attention-backend", &[], Value("NAME"), Harmless, ENGINE, "the plugin picks its kernels"),
    row("moe-runner-backend", &["moe-backend"], Value("NAME"), Harmless, ENGINE, "the plugin picks its kernels"),
    row("enable-aiter-allreduce-fusion", &[], Switch, Harmless, ENGINE, "the plugin picks its kernels"),
    row("enable-flashinfer-allreduce-fusion", &[], Switch, Harmless, ENGINE, "the plugin picks its kernels"),
    row("disable-custom-all-reduce", &[], Switch, Harmless, ENGINE, "the plugin picks its collectives"),
    row("disable-cuda-graph", &["enforce-eager"], Switch, NotYet, ENGINE, "what is captured is the plugin's business"),
    row("cuda-graph-max-bs", &[], Value("N"), Harmless, ENGINE, "warm-up follows --max-running-requests"),
    row("compilation-config", &["-O"], Value("JSON"), NotYet, ENGINE, "there is nothing to compile"),
    row("skip-server-warmup", &[], Switch, Harmless, ENGINE, "warm-up is part of loading and cannot be skipped"),
    // Engine.
    row("context-length", &["max-model-len"], Value("N"), Set, PLANNED, "longest context in tokens; accepts 1k, 1K, 1M (default: the model's, as far as the pages reach)"),
    row("max-running-requests", &["max-num-seqs"], Value("N"), Set, ENGINE, "most requests that run at once"),
    row("max-queued-requests", &["max-num-queued-reqs"], Value("N"), Set, HTTP, "most requests that wait; more are answered with 429"),
    row("chunked-prefill-size", &["max-num-batched-tokens"], Value("N"), Set, PLANNED, "most tokens in one step"),
    row("page-size", &["block-size"], Value("N"), Set, ENGINE, "must be the model's block size"),
    row("disable-radix-cache", &["no-enable-prefix-caching"], Switch, Set, ENGINE, "no reuse of computed prefixes"),
    row("enable-prefix-caching", &[], Switch, Set, ENGINE, "reuse of computed prefixes, on by default (=false turns it off)"),
    row("enable-mixed-chunk", &[], Switch, Harmless, ENGINE, "prompts and decoding always share steps"),
    row("enable-chunked-prefill", &[], Switch, Harmless, ENGINE, "always on"),
    row("schedule-policy", &["scheduling-policy"], Value("NAME"), Only(&["fcfs", "priority"]), ENGINE, "first come first served within a priority"),
    row("disable-overlap-schedule", &["no-async-scheduling"], Switch, NotYet, ENGINE, "steps always overlap"),
    row("async-scheduling", &[], Switch, Harmless, ENGINE, "always on"),
    row("enable-hisparse", &[], Switch, NotYet, ENGINE, "off-load of sparse pages is not built"),
    row("hisparse-config", &[], Value("JSON"), NotYet, ENGINE, "off-load of sparse pages is not built"),
    row("enable-hierarchical-cache", &[], Switch, NotYet, ENGINE, "host and disk tiers of the cache are not built"),
    row("speculative-algorithm", &["spec-method"], Value("NAME"), NotYet, ENGINE, "speculative decoding is not built"),
    row("speculative-config", &[], Value("JSON"), NotYet, ENGINE, "speculative decoding is not built"),
    row("speculative-draft-model-path", &["spec-model"], Value("PATH"), NotYet, ENGINE, "speculative decoding is not built"),
    row("speculative-num-steps", &["spec-tokens", "speculative-num-draft-tokens", "speculative-eagle-topk"], Value("N"), NotYet, ENGINE, "speculative decoding is not built"),
    row("disaggregation-mode", &[], Value("MODE"), Only(&["null"]), ENGINE, "prefill/decode disaggregation is not built"),
    row("disaggregation-transfer-backend", &["disaggregation-ib-device", "disaggregation-bootstrap-port"], Value("NAME"), NotYet, ENGINE, "prefill/decode disaggregation is not built"),
    row("kv-transfer-config", &[], Value("JSON"), NotYet, ENGINE, "prefill/decode disaggregation is not built"),
    row("grammar-backend", &["structured-outputs-config", "guided-decoding-backend"], Value("NAME"), Harmless, ENGINE, "there is one matcher of grammars, and nothing falls back from it"),
    // Images and videos: where they may come from, and how much of them.
    row("allowed-media-domains", &["allowed-media-domain"], Many("HOST"), Set, HTTP, "hosts that images and videos may be fetched from: example.com, or *.example.com for all below it"),
    row("allow-remote-media", &[], Switch, Set, HTTP, "fetch images and videos from any host with public addresses; without this and without a list none is fetched"),
    row("allowed-media-ports", &[], Many("N"), Set, HTTP, "ports that media may be fetched from (80 443)"),
    row("allowed-media-networks", &[], Many("CIDR"), Set, HTTP, "inner networks that allowed hosts may lie in, such as 10.1.0.0/16; default: none"),
    row("allowed-local-media-path", &[], Value("DIR"), Set, HTTP, "folder whose files file: addresses may name; default: none"),
    row("media-fetch-secs", &["media-fetch-timeout"], Value("SECS"), Set, HTTP, "seconds for fetching one image or video, redirects included (20)"),
    row("media-max-redirects", &[], Value("N"), Set, HTTP, "redirects that are followed, each checked like a first address (3)"),
    row("media-fetches", &[], Value("N"), Set, HTTP, "images and videos fetched at once; more wait (16)"),
    row("max-image-mb", &["media-url-max-file-size-mb"], Value("MB"), Set, HTTP, "largest image file (32)"),
    row("max-image-pixels", &[], Value("N"), Set, HTTP, "most pixels of an image, read from its header (67108864)"),
    row("max-video-mb", &[], Value("MB"), Set, HTTP, "largest video file (256)"),
    row("max-video-secs", &[], Value("SECS"), Set, HTTP, "longest video (3600)"),
    row("max-video-frames", &[], Value("N"), Set, HTTP, "most frames in a video, chosen or not (216000)"),
    row("max-chosen-frames", &[], Value("N"), Set, HTTP, "most frames that may be chosen of a video (768)"),
    row("video-decode-secs", &[], Value("SECS"), Set, HTTP, "seconds for decoding one video (60)"),
    row("media-decoders", &[], Value("N"), Set, HTTP, "images and videos decoded at once; more wait (the number of processors, at most 8)"),
    row("media-decode-bytes", &[], Value("BYTES"), Set, HTTP, "most memory that decoding takes together; accepts 4G, 512M (4G)"),
    row("ffmpeg", &[], Value("FILE"), Set, HTTP, "program that decodes videos, with ffprobe beside it (ffmpeg)"),
    row("media-size-rule", &[], Value("area|long-side"), Set, &[Serve, Chat, Media], "how images and videos are sized when a request does not say: area, the released processor's (default), or long-side, MiniMax's API's"),
    row("limit-mm-per-prompt", &[], Value("COUNTS"), Set, HTTP, "most images and videos in one request, as image=4,video=1 or JSON (200 and 20)"),
    row("mm-processor-kwargs", &[], Value("JSON"), NotYet, HTTP, "give --media-size-rule, or mm_processor_kwargs in requests"),
    row("language-model-only", &["text-only"], Switch, Set, ENGINE, "refuse images and videos although the checkpoint takes them"),
    // HTTP.
    row("host", &[], Value("ADDRESS"), Set, HTTP, "address to listen on (127.0.0.1)"),
    row("port", &["-p"], Value("N"), Set, HTTP, "port to listen on (30000; 0 takes a free one and prints it)"),
    row("api-key", &[], Value("KEY"), Set, KEYS, "clients must send this as a bearer token; may be given again for further keys (M3_API_KEY does not show in a process list)"),
    row("api-key-file", &[], Value("FILE"), Set, HTTP, "one key per line"),
    row("admin-api-key", &[], Value("KEY"), Set, HTTP, "key for what changes the server's state: cache, aborts of others, log level, drain (also M3_ADMIN_API_KEY)"),
    row("admin-api-key-file", &[], Value("FILE"), Set, HTTP, "the same from a file"),
    row("admin-port", &[], Value("N"), Set, HTTP, "a second port for what changes the server's state and for /metrics, which then are not on --port"),
    row("admin-host", &[], Value("ADDRESS"), Set, HTTP, "address of --admin-port (127.0.0.1)"),
    row("rate-limit", &[], Value("RATE"), Set, HTTP, "most requests of all clients together, such as 100/s or 600/min; more are answered with 429"),
    row("key-rate-limit", &[], Value("RATE"), Set, HTTP, "most requests of one key, or of one address where there are no keys"),
    row("max-concurrent-requests", &[], Value("N"), Set, HTTP, "most requests being answered at once; more are answered with 429 (0: only the queue is bounded)"),
    row("key-max-concurrent-requests", &[], Value("N"), Set, HTTP, "the same of one key, or of one address where there are no keys (0: no limit)"),
    row("max-connections", &[], Value("N"), Set, HTTP, "most open connections; more wait to be accepted (8192)"),
    row("max-header-bytes", &["h11-max-incomplete-event-size"], Value("N"), Set, HTTP, "largest head of a request (65536)"),
    row("client-timeout", &[], Value("SECS"), Set, HTTP, "seconds after which a client that sends nothing it owes, or takes nothing of its answer, is let go (60; 0 turns it off)"),
    row("request-timeout", &[], Value("SECS"), Set, HTTP, "seconds from a request's arrival to the end of its answer; then it is aborted with 504 (0: no limit)"),
    row("heartbeat-secs", &["sse-keep-alive-interval"], Value("SECS"), Set, HTTP, "seconds of silence after which a stream gets a comment (10; 0 turns it off)"),
    row("shutdown-timeout", &["drain-secs"], Value("SECS"), Set, HTTP, "seconds that running requests get after SIGTERM (300)"),
    row("max-body-mb", &[], Value("MB"), Set, HTTP, "largest request body (64)"),
    row("stream-buffer", &[], Value("N"), Set, HTTP, "tokens a slow client may lag before its request is aborted (4096)"),
    row("enable-force-include-usage", &[], Switch, Set, HTTP, "every stream ends with usage"),
    row("reasoning-field", &[], Value("NAME"), Set, HTTP, "name of the reasoning in answers: reasoning_content (default), reasoning or both"),
    row("max-stored-responses", &[], Value("N"), Set, HTTP, "responses of /v1/responses kept in memory for previous_response_id (1024; 0 keeps none)"),
    row("stored-response-bytes", &[], Value("BYTES"), Set, HTTP, "most memory for them; accepts 1G, 256M (256M)"),
    row("keep-billing-header", &[], Switch, Set, HTTP, "leave the line x-anthropic-billing-header in system texts of /v1/messages, which makes every prompt new to the cache"),
    row("watchdog-timeout", &[], Value("SECS"), Set, HTTP, "seconds without a finished step, with requests running, before /ready turns red (300; 0 turns it off)"),
    row("live-timeout", &[], Value("SECS"), Set, HTTP, "seconds of such a stall before /live turns red too (four times --watchdog-timeout; 0 turns it off)"),
    row("idle-probe-secs", &[], Value("SECS"), Set, HTTP, "seconds of idleness after which one token is made, to see that the engine still can (30; 0 turns it off)"),
    row("watch-disk", &[], Many("DIR"), Set, HTTP, "folders whose disks must have --min-free-disk free for /ready to be green (the folder for temporary files)"),
    row("min-free-disk", &[], Value("BYTES"), Set, HTTP, "see --watch-disk; accepts 64M, 1G (64M; 0 turns it off)"),
    row("stream-interval", &[], Value("N"), Set, HTTP, "tokens that a streamed packet waits for, as long as --stream-hold-ms allows (1)"),
    row("stream-gather-ms", &[], Value("MS"), Set, HTTP, "milliseconds for which streamed text is gathered into one packet (25; 0 with --stream-interval 1 sends every token as it comes)"),
    row("stream-hold-ms", &[], Value("MS"), Set, HTTP, "most milliseconds that a few characters wait for company in a stream (200)"),
    row("no-ui", &[], Switch, Set, HTTP, "do not serve the web page at /"),
    row("enable-metrics", &[], Switch, Harmless, HTTP, "/metrics is always on"),
    row("enable-cache-report", &["enable-prompt-tokens-details"], Switch, Harmless, HTTP, "cached tokens are always reported"),
    row("disable-log-requests", &["no-enable-log-requests", "disable-log-stats"], Switch, Harmless, HTTP, "requests are not logged by default"),
    row("log-requests", &["enable-log-requests"], Switch, NotYet, HTTP, "prompts are never logged; --log-level debug names every request"),
    row("uvicorn-log-level", &["log-level-http"], Value("LEVEL"), Harmless, HTTP, "there is one log level"),
    row("disable-uvicorn-access-log", &["disable-fastapi-docs"], Switch, Harmless, HTTP, "there is neither"),
    row("allowed-origins", &["cors-allowed-origins"], Value("LIST"), Set, HTTP, "origins whose pages may ask: a JSON list or words with commas; * alone is every page (default: none)"),
    row("allowed-methods", &[], Value("LIST"), Set, HTTP, "methods such pages may use (default: what they ask for)"),
    row("allowed-headers", &[], Value("LIST"), Set, HTTP, "headers such pages may send (default: what they ask for)"),
    row("allow-credentials", &[], Switch, Set, HTTP, "such pages may send cookies and stored keys; needs named origins"),
    row("ssl-certfile", &["tls-cert"], Value("FILE"), Set, HTTP, "certificate chain in PEM form; with --ssl-keyfile every port speaks TLS"),
    row("ssl-keyfile", &["tls-key"], Value("FILE"), Set, HTTP, "its private key in PEM form"),
    row("ssl-keyfile-password", &["ssl-ca-certs", "ssl-cert-reqs"], Value("VALUE"), NotYet, HTTP, "keys must not be encrypted, and clients prove themselves with API keys"),
    row("api-server-count", &["tokenizer-worker-num"], Value("N"), Harmless, HTTP, "text is handled by a thread pool"),
    row("config", &[], Value("FILE"), NotYet, HTTP, "give flags"),
    // Terminal chat.
    row("system", &[], Value("TEXT"), Set, &[Chat], "system message"),
    row("thinking", &[], Value("MODE"), Set, &[Chat], "adaptive, enabled or disabled"),
    row("max-tokens", &[], Value("N"), Set, &[Chat], "most tokens of one answer"),
    row("temperature", &[], Value("F"), Set, &[Chat], "0 is greedy"),
    row("hide-thinking", &[], Switch, Set, &[Chat], "do not print the reasoning"),
    // Text tools.
    row("text", &[], Value("TEXT"), Set, &[Tokenize], "text to encode; default: standard input"),
    row("no-special", &[], Switch, Set, &[Tokenize], "treat marker texts as ordinary text"),
    row("decode", &[], Switch, Set, &[Tokenize], "ids in, text out"),
    // Recipes.
    row("hardware", &[], Value("NAME"), Set, &[Recipe], "kind of GPU; without it, the table of all"),
    row("gpus", &[], Value("N"), Set, &[Recipe], "GPUs of one node (default: what the kind is usually taken with)"),
    row("weights", &[], Value("NAME"), Set, &[Recipe], "bf16, mxfp8 or nvfp4 (default: the best that fits)"),
    row("strategy", &[], Value("NAME"), Set, &[Recipe], "latency, balanced (default) or throughput"),
    row("json", &[], Switch, Set, REPORTS, "as JSON"),
    // Load.
    row("url", &["base-url"], Value("URL"), Set, &[Bench], "server with OpenAI's API; the first word does as well (http://127.0.0.1:30000)"),
    row("endpoint", &[], Value("NAME"), Set, &[Bench], "chat (default) or completions"),
    row("trace", &["dataset-name"], Value("NAME"), Set, &[Bench], "random (default), shared-prefix or conversation"),
    row("num-prompts", &[], Value("N"), Set, &[Bench], "requests of each point of the sweep, turns of conversations counted (100)"),
    row("input-len", &["random-input-len"], Value("N"), Set, &[Recipe, Bench], "tokens of a prompt (m3 bench: 512, without the shared prefix; m3 recipe: 2048)"),
    row("output-len", &["random-output-len"], Value("N"), Set, &[Recipe, Bench], "tokens of an answer (m3 bench: 128; m3 recipe: 256)"),
    row("range-ratio", &["random-range-ratio"], Value("F"), Set, &[Bench], "lengths are drawn from this share of the above to all of it (1)"),
    row("prefix-len", &[], Value("N"), Set, &[Bench], "tokens that prompts of a group have in common (1024)"),
    row("prefix-groups", &[], Value("N"), Set, &[Bench], "such groups (8)"),
    row("turns", &[], Value("N"), Set, &[Bench], "requests of a conversation (4)"),
    row("request-rate", &[], Value("F"), Set, &[Bench], "conversations a second, as a Poisson process (inf: as soon as there is room)"),
    row("concurrency", &["max-concurrency"], Value("N,..."), Set, &[Recipe, Bench], "most requests at once; m3 bench takes a list to sweep (16)"),
    row("warmup", &["warmup-requests", "num-warmups"], Value("N"), Set, &[Bench], "requests before each point that do not count (1)"),
    row("goodput", &[], Many("NAME:MS"), Set, &[Bench], "limits of a good request: ttft:500 tpot:50 e2e:10000"),
    row("respect-eos", &[], Switch, Set, &[Bench], "let answers end early; otherwise ignore_eos makes their length exact"),
    row("flush-cache", &[], Switch, Set, &[Bench], "forget cached prefixes before each point"),
    row("extra-body", &["extra-request-body"], Value("JSON"), Set, &[Bench], "more fields of every request"),
    row("timeout", &[], Value("SECS"), Set, &[Bench], "seconds after which a request has failed (600)"),
    row("out", &["output-file"], Value("PATH"), Set, &[Bench, Convert, Media], "m3 bench: JSON file of the result; m3 convert: new or empty folder; m3 media: PNG file of the patches"),
    row("html", &[], Value("FILE"), Set, &[Bench], "write the result as one page with plots"),
    row("quiet", &[], Switch, Set, &[Bench], "no progress bar"),
    // Media tool.
    row("max-long-side-pixel", &[], Value("N"), Set, &[Serve, Chat, Media], "longest side of images and frames when a request does not say, a multiple of 28 from 112 to 3584; chooses the long-side rule"),
    row("fps", &[], Value("F"), Set, &[Media], "frames of a video looked at per second (1)"),
    row("max-frames", &[], Value("N"), Set, &[Media], "most frames of a video"),
    // Everything.
    row("log-level", &[], Value("LEVEL"), Set, EVERY, "error, warn, info, debug or trace (M3_LOG takes filters)"),
    row("log-format", &[], Value("text|json"), Set, EVERY, "lines for people (text) or one JSON object a line (json)"),
    row("otlp-traces-endpoint", &["otlp-endpoint"], Value("URL"), Set, HTTP, "send a span of every request to this OTLP collector over HTTP, such as http://127.0.0.1:4318 (default: none is sent)"),
    row("help", &["-h"], Switch, Set, EVERY, "this text"),
];
