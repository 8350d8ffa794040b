//! Regular expressions that end the content of an answer: at the first place where one of them matches, however the
//! text is cut into pieces. Read byte by byte by an automaton, so nothing is held back and nothing is read twice; what
//! matches stays in the text, because it was sent before it was known to match.

use std::sync::Arc;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, MatchKind, util::start};
use regex_syntax::hir::{Hir, Look};

/// The expressions of one request; every answer searches by itself.
#[derive(Debug)]
pub struct StopExpressions {
    automaton: dense::DFA<Vec<u32>>,
    sources: Vec<String>,
}

impl PartialEq for StopExpressions {
    fn eq(&self, other: &Self) -> bool {
        self.sources == other.sources
    }
}

/// What the automaton of a request may take, in bytes; a class of all letters takes a few 100,000.
const MOST_BYTES: usize = 4 << 20;

impl StopExpressions {
    /// Compiles them.
    ///
    /// # Errors
    /// Why one cannot be searched for in a text that is still being written, and which.
    pub fn new(sources: Vec<String>) -> Result<Self, (usize, String)> {
        for (at, source) in sources.iter().enumerate() {
            check(source).map_err(|reason| (at, reason))?;
        }
        let nfa = regex_automata::nfa::thompson::Config::new().nfa_size_limit(Some(MOST_BYTES));
        let dfa = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(MOST_BYTES))
            .determinize_size_limit(Some(MOST_BYTES));
        let built = dense::Builder::new().thompson(nfa).configure(dfa).build_many(&sources);
        let automaton = built.map_err(|error| (0, format!("it is too large to search for: {error}")))?;
        Ok(StopExpressions { automaton, sources })
    }
}

fn check(source: &str) -> Result<(), String> {
    let parsed: Hir = regex_syntax::parse(source)
        .map_err(|error| error.to_string().lines().last().unwrap_or_default().to_owned())?;
    let properties = parsed.properties();
    if properties.minimum_len().is_none_or(|least| least == 0) {
        return Err("it matches the empty text, which would end every answer at once".to_owned());
    }
    let unknown = properties.look_set().iter().find(|look| !matches!(look, Look::Start | Look::StartLF));
    match unknown {
        None => Ok(()),
        Some(look) => Err(format!(
            "it looks at what follows ({}), which is not known while the text is written",
            look.as_char()
        )),
    }
}

/// The search in one answer.
pub(super) struct StopSearch {
    shared: Arc<StopExpressions>,
    /// `None` before the first byte.
    state: Option<StateID>,
    found: Option<usize>,
}

impl StopSearch {
    pub(super) fn new(shared: &Arc<StopExpressions>) -> Self {
        StopSearch { shared: Arc::clone(shared), state: None, found: None }
    }

    /// Reads on. With `armed`, bytes of `text` up to the end of the first match, if there is one.
    pub(super) fn push(&mut self, text: &str, armed: bool) -> Option<usize> {
        let automaton = &self.shared.automaton;
        let begin = || automaton.start_state(&start::Config::new().anchored(Anchored::No));
        let mut state = match self.state {
            Some(state) => state,
            // An automaton that is made for it has this start.
            None => begin().ok()?,
        };
        for (at, byte) in text.bytes().enumerate() {
            state = automaton.next_state(state, byte);
            let end = automaton.next_eoi_state(state);
            if armed && automaton.is_match_state(end) {
                self.found = Some(automaton.match_pattern(end, 0).as_usize());
                return Some(at + 1);
            }
        }
        self.state = Some(state);
        None
    }

    /// The expression that matched.
    pub(super) fn found(&self) -> Option<&str> {
        self.found.map(|at| self.shared.sources[at].as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(sources: &[&str], text: &str, piece: usize) -> Option<(String, String)> {
        let shared =
            Arc::new(StopExpressions::new(sources.iter().map(ToString::to_string).collect()).unwrap());
        let mut search = StopSearch::new(&shared);
        let mut told = String::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(piece) {
            let piece: String = piece.iter().collect();
            if let Some(end) = search.push(&piece, true) {
                told.push_str(&piece[..end]);
                return Some((told, search.found().unwrap().to_owned()));
            }
            told.push_str(&piece);
        }
        None
    }

    #[test]
    fn the_first_match_ends_the_text_wherever_it_is_cut() {
        for (sources, text, expected) in [
            (&["[0-9]{3}"][..], "a12 345 678", Some(("a12 345", "[0-9]{3}"))),
            (&["x+y", "(?i)stop"], "xxx STOP xy", Some(("xxx STOP", "(?i)stop"))),
            (&["^b", "é.字"], "ab é-字!", Some(("ab é-字", "é.字"))),
            (&["(?m)^b"], "ab\nbc", Some(("ab\nb", "(?m)^b"))),
            (&["a+"], "baaa", Some(("ba", "a+"))),
            (&["none"], "non e", None),
        ] {
            for piece in 1..8 {
                let expected = expected.map(|(told, source)| (told.to_owned(), source.to_owned()));
                assert_eq!(ends(sources, text, piece), expected, "{sources:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_cannot_be_known_in_time_is_refused() {
        for source in ["a$", r"\bword\b", "x*", "", "(", "(?=a)b", "a|"] {
            let (at, reason) = StopExpressions::new(vec!["fine".into(), source.into()]).unwrap_err();
            assert_eq!(at, 1, "{source}");
            assert!(!reason.is_empty(), "{source}");
        }
        let huge = format!("(a{{1000}}){{{}}}", 1000);
        assert!(StopExpressions::new(vec![huge]).is_err());
    }

    #[test]
    fn a_match_before_it_is_armed_does_not_count() {
        let shared = Arc::new(StopExpressions::new(vec!["ab".into()]).unwrap());
        let mut search = StopSearch::new(&shared);
        assert_eq!(search.push("ab a", false), None);
        assert_eq!(search.push("b ab", true), Some(1));
    }
}
