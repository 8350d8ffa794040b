//! The text of `--help`, made from the table so that it cannot lag behind it.

use super::parse::all_names;
use super::table::{Command, Effect, FLAGS, Flag, Kind};

fn about(command: Command) -> &'static str {
    match command {
        Command::Serve => "m3 serve [MODEL]: an OpenAI-compatible server",
        Command::Chat => "m3 chat [MODEL]: talk to a model in the terminal",
        Command::Backends => "m3 backends: each device plugin, its score or why it was refused",
        Command::Doctor => {
            "m3 doctor [MODEL]: what this machine has for serving, and what would keep `m3 serve` with the same flags from it"
        }
        Command::Recipe => {
            "m3 recipe --hardware NAME: the command for a kind of GPU, its memory plan and the best it can do"
        }
        Command::Bench => "m3 bench [URL]: load on any server with OpenAI's API, and what its clients see",
        Command::Download => "m3 download OWNER/NAME: get a model from a hub, or what is missing of it",
        Command::Verify => "m3 verify MODEL: hash a model's files and compare them with what was published",
        Command::Tokenize => "m3 tokenize [MODEL]: text to token ids, or back with --decode",
        Command::Render => {
            "m3 render: JSON lines with messages in, prompts and token ids out; the template raw, without the \
             server's normalisation (--model DIR, or --chat-template FILE --tokenizer FILE)"
        }
        Command::Parse => "m3 parse: JSON lines with model output in, reasoning, content and tool calls out",
        Command::Convert => "m3 convert DIR --to mxfp8 --out DIR: a bf16 checkpoint's MXFP8 twin",
        Command::Media => {
            "m3 media inspect FILE|URL: what an image or video becomes before the model sees it (--out draws its patches)"
        }
    }
}

/// Help for one command, or the overview.
pub fn help(command: Option<Command>) -> String {
    let Some(command) = command else {
        let lines = Command::ALL.map(|(_, command)| format!("  {}", about(command)));
        return format!(
            "m3: a serving engine for MiniMax-M3\n\n{}\n\nm3 COMMAND --help says more",
            lines.join("\n")
        );
    };
    let mut text = format!("{}\n\n", about(command));
    for flag in FLAGS.iter().filter(|flag| flag.is_for(command)) {
        text.push_str(&line(flag));
    }
    text
}

fn line(flag: &Flag) -> String {
    let value = match flag.kind {
        Kind::Switch => String::new(),
        Kind::Value(name) => format!(" {name}"),
        Kind::Many(name) => format!(" {name}..."),
    };
    let note = match flag.effect {
        Effect::Set => String::new(),
        Effect::Harmless => " [accepted, does nothing]".to_owned(),
        Effect::Only(values) => format!(" [only {}]", values.join(", ")),
        Effect::NotYet => " [refused]".to_owned(),
    };
    format!("  {}{value}\n      {}{note}\n", all_names(flag), flag.help)
}
