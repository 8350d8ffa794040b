//! Made-up input for everything that reads what clients or models write. A target takes bytes and says what is wrong
//! with what became of them; the engine changes the inputs of a small corpus at random, keeps what behaved in a new
//! way, makes failing inputs small and writes them down, so that the same bytes fail again.
//!
//! No instrumented build is needed: what is new is told by the answers, not by the program's branches. The corpus
//! lies in `tests/data/fuzz`, a folder for each target; every file there is tried at the start of each run, which makes
//! it the list of what has failed once.

pub mod corpus;
pub mod engine;
pub mod mutate;
pub mod server;
pub mod sse;
pub mod targets;
mod watchdog;

use mutate::Dialect;

/// What an input led to, in a few words and without its values; inputs with a new one are changed further.
pub type Signature = String;

/// Something that reads bytes from outside.
pub trait Target {
    /// The name of its corpus folder.
    fn name(&self) -> &'static str;

    /// How its inputs are changed.
    fn dialect(&self) -> Dialect;

    /// Words that matter to it, beside those in its corpus.
    fn words(&self) -> Vec<String> {
        Vec::new()
    }

    /// Tries one input; the same bytes always lead to the same end.
    ///
    /// # Errors
    /// What is wrong. A panic counts as wrong as well.
    fn check(&mut self, input: &[u8]) -> Result<Signature, String>;
}
