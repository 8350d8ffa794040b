//! `m3 chat`: a conversation in the terminal, over the same path as a request to the server.
#![allow(clippy::print_stdout, reason = "a terminal program")]

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::time::Instant;

use m3_core::text::parse::Delta;
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{ArgError, Options, Parsed};
use crate::boot;
use crate::generate::{ChoiceEvent, Done, Session};
use crate::place;
use crate::progress::ProgressView;
use crate::routes::prepare_chat;

const HELP: &str =
    "/reset starts anew, /think adaptive|enabled|disabled sets the mode, /quit ends; Ctrl-C stops an answer";

/// What the flags of this command say.
struct Settings {
    system: Option<String>,
    thinking: Option<String>,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    hide_thinking: bool,
}

impl Settings {
    fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let bad = |flag: &str, value: &str, expected: &str| ArgError::BadValue {
            flag: flag.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        };
        let max_tokens = parsed.value("max-tokens").map(|text| {
            crate::args::parse_count(text).ok_or_else(|| bad("--max-tokens", text, "a whole number"))
        });
        let temperature = parsed
            .value("temperature")
            .map(|text| text.parse().map_err(|_| bad("--temperature", text, "a number from 0 to 2")));
        Ok(Settings {
            system: parsed.value("system").map(str::to_owned),
            thinking: parsed.value("thinking").map(str::to_owned),
            max_tokens: max_tokens.transpose()?,
            temperature: temperature.transpose()?,
            hide_thinking: parsed.has("hide-thinking"),
        })
    }
}

/// Loads the model and talks until the input ends.
pub fn run(parsed: &Parsed, mut options: Options) -> anyhow::Result<()> {
    let settings = Settings::read(parsed)?;
    let app = App::new(options.http.clone(), place::first_name(&options.model))?;
    let view = ProgressView::default();
    place::fetch(&mut options.model, &|done, total| view.download(&app.phase, done, total))?;
    let serving = boot::boot(&options, &|progress| view.report(&app.phase, progress));
    view.end();
    app.publish(serving?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = Talk::new(&app, settings).run(&runtime);
    if let Some(serving) = app.loaded() {
        serving.engine.shutdown();
    }
    result
}

struct Talk<'a> {
    app: &'a Arc<App>,
    settings: Settings,
    messages: Vec<Value>,
}

impl<'a> Talk<'a> {
    fn new(app: &'a Arc<App>, settings: Settings) -> Self {
        let mut talk = Talk { app, settings, messages: Vec::new() };
        talk.reset();
        talk
    }

    fn reset(&mut self) {
        let system = self.settings.system.iter().map(|text| json!({"role": "system", "content": text}));
        self.messages = system.collect();
    }

    fn run(&mut self, runtime: &tokio::runtime::Runtime) -> anyhow::Result<()> {
        let interactive = std::io::stdin().is_terminal();
        if interactive {
            println!("{HELP}");
        }
        let mut lines = std::io::stdin().lock().lines();
        loop {
            if interactive {
                print!("> ");
                std::io::stdout().flush()?;
            }
            let Some(line) = lines.next() else { return Ok(()) };
            let line = line?;
            match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
                ("", _) => {}
                ("/quit" | "/exit", _) => return Ok(()),
                ("/help", _) => println!("{HELP}"),
                ("/reset", _) => self.reset(),
                ("/think", mode) => {
                    self.settings.thinking = Some(mode.trim().to_owned()).filter(|mode| !mode.is_empty())
                }
                _ => runtime.block_on(self.turn(&line))?,
            }
        }
    }

    /// One question and its answer. A refusal is printed and the question forgotten.
    async fn turn(&mut self, line: &str) -> anyhow::Result<()> {
        self.messages.push(json!({"role": "user", "content": line}));
        let started = prepare_chat(self.app, self.body(), Instant::now())
            .and_then(|(_, job)| Session::start(self.app, &job));
        let mut session = match started {
            Ok(session) => session,
            Err(error) => {
                println!("{}", error.message);
                self.messages.pop();
                return Ok(());
            }
        };
        let mut answer = Answer { hide_thinking: self.settings.hide_thinking, ..Answer::default() };
        loop {
            tokio::select! {
                event = session.next() => match event {
                    Some((_, event)) => answer.show(event)?,
                    None => break,
                },
                _ = tokio::signal::ctrl_c() => break,
            }
        }
        println!();
        self.messages.push(json!({
            "role": "assistant", "content": answer.content, "reasoning_content": answer.reasoning,
        }));
        Ok(())
    }

    fn body(&self) -> Value {
        let mut body = json!({"messages": self.messages});
        if let Some(mode) = &self.settings.thinking {
            body["thinking"] = json!({"type": mode});
        }
        if let Some(most) = self.settings.max_tokens {
            body["max_tokens"] = most.into();
        }
        if let Some(temperature) = self.settings.temperature {
            body["temperature"] = temperature.into();
        }
        body
    }
}

/// What has been said, and whether the reasoning is being shown right now.
#[derive(Default)]
struct Answer {
    content: String,
    reasoning: String,
    dim: bool,
    hide_thinking: bool,
}

impl Answer {
    fn show(&mut self, event: ChoiceEvent) -> std::io::Result<()> {
        match event {
            ChoiceEvent::Prompt(_) => {}
            ChoiceEvent::Output(output) => output.deltas.into_iter().for_each(|delta| self.delta(delta)),
            ChoiceEvent::Done(done) => self.done(done),
            ChoiceEvent::Failed(error) => print!("\n[{}]", error.message),
        }
        std::io::stdout().flush()
    }

    fn delta(&mut self, delta: Delta) {
        match delta {
            Delta::Reasoning(text) => {
                if !self.hide_thinking {
                    self.set_dim(true);
                    print!("{text}");
                }
                self.reasoning.push_str(&text);
            }
            Delta::Content(text) => {
                self.set_dim(false);
                print!("{text}");
                self.content.push_str(&text);
            }
            Delta::ToolStart { name, .. } => {
                self.set_dim(false);
                print!("\n[calls {name} ");
            }
            Delta::ToolArguments { fragment, .. } => print!("{fragment}"),
            Delta::ToolEnd { .. } => print!("]"),
        }
    }

    fn done(&mut self, done: Done) {
        done.deltas.into_iter().for_each(|delta| self.delta(delta));
        self.set_dim(false);
        if done.reason == crate::generate::Reason::Length {
            print!(" [cut: length]");
        }
    }

    /// Reasoning is grey on a terminal and otherwise only set apart by a line.
    fn set_dim(&mut self, dim: bool) {
        if self.dim == dim {
            return;
        }
        self.dim = dim;
        match (std::io::stdout().is_terminal(), dim) {
            (true, true) => print!("\x1b[2m"),
            (true, false) => println!("\x1b[0m"),
            (false, true) => {}
            (false, false) => println!(),
        }
    }
}
