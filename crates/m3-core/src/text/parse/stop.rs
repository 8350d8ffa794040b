//! Finding stop strings in text that arrives in pieces. One automaton over all strings (Aho and Corasick) reads
//! each byte once; it holds back exactly the longest suffix that could still become a stop string.
//! It knows nothing of tokens: stop token ids are the engine's business. Nor does it limit the strings: it takes
//! 24 bytes of memory for each byte of them, and who accepts them decides how many there may be.

use std::sync::{Arc, OnceLock};

/// Finds the first stop string of a set. When several end at the same byte the longest wins; otherwise the one
/// that ends first. That choice does not depend on how the text is cut.
#[derive(Debug, Clone)]
pub(super) struct StopMatcher {
    automaton: Arc<Automaton>,
    state: usize,
    /// Text that may be the beginning of a stop string; always `nodes[state].depth` bytes.
    held: String,
    /// Stop strings that end while this is off are text.
    armed: bool,
}

/// The states over all stop strings; the matchers of a request's answers share it.
#[derive(Debug)]
struct Automaton {
    nodes: Vec<Node>,
    strings: Vec<String>,
}

/// A place where the answers of a request share the automaton over its stop strings: whoever needs it first makes it.
#[derive(Debug, Clone, Default)]
pub struct SharedStops(Arc<OnceLock<Arc<Automaton>>>);

impl SharedStops {
    fn get(&self, strings: &[String]) -> Arc<Automaton> {
        let shared = self.0.get_or_init(|| Arc::new(Automaton::new(strings)));
        // Options that were copied and given other strings must not find the old ones.
        if shared.strings == strings { Arc::clone(shared) } else { Arc::new(Automaton::new(strings)) }
    }
}

/// A state of the automaton. Children are a list through `sibling`: it is as long as there are strings that part
/// here, which is few. Numbers are 32 bits wide because there is a node for every byte of every string.
#[derive(Debug, Clone)]
struct Node {
    /// First child; `NONE` at a leaf.
    child: u32,
    /// Next child of the same parent.
    sibling: u32,
    fallback: u32,
    depth: u32,
    /// Index of the longest stop string that ends here, or `NONE`.
    ends: u32,
    /// The byte that leads here.
    label: u8,
}

/// No node and no string.
const NONE: u32 = u32::MAX;

impl Node {
    fn new(label: u8, depth: u32) -> Self {
        Node { child: NONE, sibling: NONE, fallback: 0, depth, ends: NONE, label }
    }
}

/// What one piece of text led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// Text that can no longer be part of a stop string.
    Safe(String),
    /// Text before the stop string, and the string's index. Text after it is gone.
    Hit { before: String, index: usize },
}

impl Automaton {
    /// Empty strings are kept in place and found nowhere.
    fn new(strings: &[String]) -> Self {
        let mut nodes = Vec::with_capacity(1 + strings.iter().map(String::len).sum::<usize>());
        nodes.push(Node::new(0, 0));
        for (index, text) in strings.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            let end = text.bytes().fold(0, |at, byte| child_or_new(&mut nodes, at, byte));
            if nodes[end].ends == NONE {
                nodes[end].ends = index as u32;
            }
        }
        link_fallbacks(&mut nodes);
        Self { nodes, strings: strings.to_vec() }
    }

    fn next(&self, mut state: usize, byte: u8) -> usize {
        loop {
            if let Some(target) = edge(&self.nodes, state, byte) {
                return target;
            }
            if state == 0 {
                return 0;
            }
            state = self.nodes[state].fallback as usize;
        }
    }
}

impl StopMatcher {
    /// A matcher for `strings`; `None` when none of them has a character.
    pub(super) fn new(strings: &[String], shared: &SharedStops) -> Option<Self> {
        if strings.iter().all(String::is_empty) {
            return None;
        }
        Some(Self { automaton: shared.get(strings), state: 0, held: String::new(), armed: true })
    }

    /// From now on stop strings that end are found, or are text.
    pub(super) fn arm(&mut self, armed: bool) {
        self.armed = armed;
    }

    /// The stop string with this index.
    pub(super) fn string(&self, index: usize) -> &str {
        &self.automaton.strings[index]
    }

    /// Reads a piece of text.
    pub(super) fn feed(&mut self, text: &str) -> Fed {
        let held_before = self.held.len();
        self.held.push_str(text);
        for at in held_before..self.held.len() {
            self.state = self.automaton.next(self.state, self.held.as_bytes()[at]);
            let ends = self.automaton.nodes[self.state].ends;
            if ends != NONE && self.armed {
                let index = ends as usize;
                let start = at + 1 - self.automaton.strings[index].len();
                self.held.truncate(start);
                self.state = 0;
                return Fed::Hit { before: std::mem::take(&mut self.held), index };
            }
        }
        // A stop string starts with a whole character, so this cut never splits one.
        let keep_from = self.held.len() - self.automaton.nodes[self.state].depth as usize;
        let keep = self.held.split_off(keep_from);
        Fed::Safe(std::mem::replace(&mut self.held, keep))
    }

    /// Gives back what is held, because the text ends or something else comes between, and starts anew.
    pub(super) fn flush(&mut self) -> String {
        self.state = 0;
        std::mem::take(&mut self.held)
    }
}

fn children(nodes: &[Node], at: usize) -> impl Iterator<Item = usize> {
    let some = |index: u32| (index != NONE).then_some(index as usize);
    std::iter::successors(some(nodes[at].child), move |child| some(nodes[*child].sibling))
}

fn edge(nodes: &[Node], at: usize, byte: u8) -> Option<usize> {
    children(nodes, at).find(|child| nodes[*child].label == byte)
}

fn child_or_new(nodes: &mut Vec<Node>, at: usize, byte: u8) -> usize {
    if let Some(target) = edge(nodes, at, byte) {
        return target;
    }
    let target = nodes.len();
    let node = Node { sibling: nodes[at].child, ..Node::new(byte, nodes[at].depth + 1) };
    nodes.push(node);
    nodes[at].child = target as u32;
    target
}

/// Breadth first: the fallback of a node is the longest proper suffix of its text that is itself a prefix.
fn link_fallbacks(nodes: &mut [Node]) {
    let mut order: std::collections::VecDeque<usize> = children(nodes, 0).collect();
    while let Some(at) = order.pop_front() {
        for child in children(nodes, at).collect::<Vec<_>>() {
            let byte = nodes[child].label;
            let mut back = nodes[at].fallback as usize;
            while back != 0 && edge(nodes, back, byte).is_none() {
                back = nodes[back].fallback as usize;
            }
            nodes[child].fallback = edge(nodes, back, byte).unwrap_or(0) as u32;
            order.push_back(child);
        }
        let inherited = nodes[nodes[at].fallback as usize].ends;
        let ends = &mut nodes[at].ends;
        if *ends == NONE {
            *ends = inherited;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(strings: &[&str]) -> Vec<String> {
        strings.iter().map(|text| (*text).to_owned()).collect()
    }

    fn matcher(strings: &[&str]) -> StopMatcher {
        StopMatcher::new(&owned(strings), &SharedStops::default()).unwrap()
    }

    /// Text before the stop and the stop found, feeding `size` characters at a time.
    fn run(strings: &[&str], text: &str, size: usize) -> (String, Option<String>) {
        let mut matcher = matcher(strings);
        let characters: Vec<char> = text.chars().collect();
        let mut out = String::new();
        for piece in characters.chunks(size) {
            match matcher.feed(&piece.iter().collect::<String>()) {
                Fed::Safe(text) => out.push_str(&text),
                Fed::Hit { before, index } => return (out + &before, Some(matcher.string(index).to_owned())),
            }
        }
        (out + &matcher.flush(), None)
    }

    /// The definition, by brute force: first end, then longest.
    fn reference(strings: &[&str], text: &str) -> (String, Option<String>) {
        for end in 1..=text.len() {
            let ending = strings.iter().filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
            if let Some(stop) = ending.max_by_key(|stop| stop.len()) {
                return (text[..end - stop.len()].to_owned(), Some((*stop).to_owned()));
            }
        }
        (text.to_owned(), None)
    }

    #[test]
    fn matches_the_definition_at_every_piece_size() {
        let sets: [&[&str]; 6] = [
            &["own fox"],
            &["aab", "ab"],
            &["abc", "b", "bcd"],
            &["。好", "好。"],
            &["\n\n", "\n\n\n"],
            &["aaaa"],
        ];
        let texts = ["The quick brown fox", "aaaab", "xabcd", "。。好吧", "a\n\n\nb", "aaabaaaa", "", "好"];
        for set in sets {
            for text in texts {
                for size in 1..6 {
                    assert_eq!(run(set, text, size), reference(set, text), "{set:?} {text:?} {size}");
                }
            }
        }
    }

    #[test]
    fn holds_only_what_may_become_a_stop_string() {
        let mut matcher = matcher(&["own fox"]);
        assert_eq!(matcher.feed("The quick br"), Fed::Safe("The quick br".into()));
        assert_eq!(matcher.feed("own"), Fed::Safe(String::new()));
        assert_eq!(matcher.feed(" fa"), Fed::Safe("own fa".into()));
        assert_eq!(matcher.feed("x ow"), Fed::Safe("x ".into()));
        assert_eq!(matcher.flush(), "ow");
    }

    #[test]
    fn a_long_stop_string_takes_few_bytes_of_memory_for_each_of_its_own() {
        let long = "ab".repeat(50_000) + "c";
        let mut matcher = matcher(&[&long]);
        let bytes = matcher.automaton.nodes.capacity() * size_of::<Node>();
        assert!(bytes <= 25 * long.len(), "{bytes} bytes for {}", long.len());
        assert_eq!(matcher.feed("x"), Fed::Safe("x".into()));
        assert_eq!(matcher.feed(&long), Fed::Hit { before: String::new(), index: 0 });
    }

    #[test]
    fn empty_stop_strings_are_no_stop_strings() {
        let shared = SharedStops::default();
        assert!(StopMatcher::new(&[], &shared).is_none());
        assert!(StopMatcher::new(&[String::new()], &shared).is_none());
        let mut mixed = matcher(&["", "b"]);
        assert_eq!(mixed.feed("ab"), Fed::Hit { before: "a".into(), index: 1 });
    }

    #[test]
    fn answers_share_one_automaton_and_other_strings_get_their_own() {
        let shared = SharedStops::default();
        let make = |strings: &[&str]| StopMatcher::new(&owned(strings), &shared.clone()).unwrap();
        let (first, second, other) = (make(&["ab"]), make(&["ab"]), make(&["c"]));
        assert!(Arc::ptr_eq(&first.automaton, &second.automaton));
        assert_eq!(other.string(0), "c");
    }

    #[test]
    fn a_string_that_ends_while_disarmed_is_text() {
        let mut matcher = matcher(&["stop"]);
        matcher.arm(false);
        assert_eq!(matcher.feed("a stop st"), Fed::Safe("a stop ".into()));
        matcher.arm(true);
        assert_eq!(matcher.feed("op b"), Fed::Hit { before: String::new(), index: 0 });
    }
}
