//! The `m3` program: reads the command line and runs one command. Everything else is in the library.
#![allow(clippy::print_stdout, reason = "a program's output")]

use std::process::ExitCode;

use m3_server::args::{self, BackendOptions, Command, Options, Parsed};
use m3_server::{backends, bench, chat, doctor, error, fetch, logging, recipe, serve, tls, tools};

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
    tls::provide();
    let parsed = match args::parse(&args) {
        Ok(parsed) => parsed,
        Err(error) => return fail(2, &error.to_string()),
    };
    if parsed.has("help") {
        println!("{}", args::help(Some(parsed.command)));
        return ExitCode::SUCCESS;
    }
    let _logging = match logging::start(&parsed) {
        Ok(logging) => logging,
        Err(error) => return fail(2, &error),
    };
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
            let runtime = socket_threads().enable_all().build()?;
            let scheme = if options.http.access.tls.is_some() { "https" } else { "http" };
            let bound = |address| announce(&format!("listening on {scheme}://{address}"));
            let result = runtime.block_on(serve::serve(options, bound));
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
        Command::Download => fetch::download(parsed),
        Command::Verify => fetch::verify(parsed),
        Command::Tokenize => tools::tokenize(parsed),
        Command::Render => tools::render(parsed),
        Command::Parse => tools::parse(parsed),
        Command::Convert => tools::convert(parsed),
        Command::Media => tools::media(parsed),
    }
}

/// Threads for the sockets: half of the processors, and at most eight. A step wakes hundreds of streams for a few
/// microseconds each; more threads mostly wake each other, and the engine and the ranks want processors too. What takes
/// long (templates, large bodies, grammars, pictures) runs in threads of its own.
fn socket_threads() -> tokio::runtime::Builder {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads((processors / 2).clamp(1, 8));
    builder
}

/// One line on standard output. A server whose output goes to a full disk or to nobody serves all the same.
fn announce(line: &str) {
    use std::io::Write;
    let mut output = std::io::stdout().lock();
    if let Err(error) = writeln!(output, "{line}").and_then(|()| output.flush()) {
        tracing::warn!("standard output cannot be written to: {error}");
        tracing::info!("{line}");
    }
}

#[expect(clippy::print_stderr, reason = "a program's last words")]
fn fail(code: u8, sentence: &str) -> ExitCode {
    eprintln!("m3: {sentence}");
    ExitCode::from(code)
}
