//! The `m3` program: reads the command line and runs one command. Everything else is in the library.
#![allow(clippy::print_stdout, reason = "a program's output")]

use std::process::ExitCode;

use m3_server::args::{self, BackendOptions, Command, Options, Parsed};
use m3_server::{backends, bench, chat, doctor, error, recipe, serve, tools};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if matches!(args.first().map(String::as_str), None | Some("--help" | "-h" | "help")) {
        println!("{}", args::help(None));
        return ExitCode::SUCCESS;
    }
    if args.first().is_some_and(|word| word == "--version" || word == "-V") {
        println!("m3 {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let parsed = match args::parse(&args) {
        Ok(parsed) => parsed,
        Err(error) => return fail(2, &error.to_string()),
    };
    if parsed.has("help") {
        println!("{}", args::help(Some(parsed.command)));
        return ExitCode::SUCCESS;
    }
    if let Err(error) = start_log(&parsed) {
        return fail(2, &error);
    }
    parsed.notes.iter().for_each(|note| tracing::info!("{note}"));
    match run(&parsed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(if error.is::<args::ArgError>() { 2 } else { 1 }, &error::sentence(&error)),
    }
}

fn run(parsed: &Parsed) -> anyhow::Result<()> {
    match parsed.command {
        Command::Serve => {
            let options = Options::read(parsed)?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let result =
                runtime.block_on(serve::serve(options, |address| println!("listening on http://{address}")));
            // A loader that a signal overtook would otherwise be waited for.
            runtime.shutdown_background();
            result
        }
        Command::Chat => chat::run(parsed, Options::read(parsed)?),
        Command::Backends => {
            print!("{}", backends::listing(&BackendOptions::read(parsed)?)?);
            Ok(())
        }
        Command::Doctor => {
            anyhow::ensure!(doctor::run(parsed)?, "m3 serve would not start, see above");
            Ok(())
        }
        Command::Recipe => recipe::run(parsed),
        Command::Bench => bench::run(parsed),
        Command::Tokenize => tools::tokenize(parsed),
        Command::Render => tools::render(parsed),
        Command::Parse => tools::parse(parsed),
        Command::Convert => tools::convert(parsed),
        Command::Media => tools::media(parsed),
    }
}

/// `M3_LOG` takes filters such as `m3_core=debug`; the flag takes one level.
fn start_log(parsed: &Parsed) -> Result<(), String> {
    let quiet = !matches!(parsed.command, Command::Serve);
    let level = parsed.value("log-level").unwrap_or(if quiet { "warn" } else { "info" });
    let level = if level == "warning" { "warn" } else { level };
    if !["error", "warn", "info", "debug", "trace"].contains(&level) {
        return Err(format!("--log-level is \"{level}\"; expected error, warn, info, debug or trace"));
    }
    let filter = match std::env::var("M3_LOG") {
        Ok(text) => EnvFilter::try_new(&text).map_err(|error| format!("M3_LOG is \"{text}\": {error}"))?,
        Err(_) => EnvFilter::new(level),
    };
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    m3_abi::log::set_sink(|level, text| match level {
        m3_abi::log::ERROR => tracing::error!(target: "backend", "{text}"),
        m3_abi::log::WARN => tracing::warn!(target: "backend", "{text}"),
        m3_abi::log::INFO => tracing::info!(target: "backend", "{text}"),
        _ => tracing::debug!(target: "backend", "{text}"),
    });
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a program's last words")]
fn fail(code: u8, sentence: &str) -> ExitCode {
    eprintln!("m3: {sentence}");
    ExitCode::from(code)
}
