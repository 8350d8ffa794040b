//! Finding stop strings in text that arrives in pieces. One automaton over all strings (Aho and Corasick) reads
//! each byte once; it holds back exactly the longest suffix that could still become a stop string.
//! It knows nothing of tokens: stop token ids are the engine's business.

/// Finds the first stop string of a set. When several end at the same byte the longest wins; otherwise the one
/// that ends first. That choice does not depend on how the text is cut.
#[derive(Debug, Clone)]
pub(super) struct StopMatcher {
    nodes: Vec<Node>,
    strings: Vec<String>,
    state: usize,
    /// Text that may be the beginning of a stop string; always `nodes[state].depth` bytes.
    held: String,
}

#[derive(Debug, Clone, Default)]
struct Node {
    edges: Vec<(u8, usize)>,
    fallback: usize,
    depth: usize,
    /// Index of the longest stop string that ends here.
    ends: Option<usize>,
}

/// What one piece of text led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// Text that can no longer be part of a stop string.
    Safe(String),
    /// Text before the stop string, and the string's index. Text after it is gone.
    Hit { before: String, index: usize },
}

impl StopMatcher {
    /// A matcher for `strings`; `None` when none of them has a character.
    pub(super) fn new(strings: &[String]) -> Option<Self> {
        let strings: Vec<String> = strings.iter().filter(|text| !text.is_empty()).cloned().collect();
        if strings.is_empty() {
            return None;
        }
        let mut nodes = vec![Node::default()];
        for (index, text) in strings.iter().enumerate() {
            let end = text.bytes().fold(0, |at, byte| child_or_new(&mut nodes, at, byte));
            nodes[end].ends.get_or_insert(index);
        }
        link_fallbacks(&mut nodes);
        Some(Self { nodes, strings, state: 0, held: String::new() })
    }

    /// The stop string with this index.
    pub(super) fn string(&self, index: usize) -> &str {
        &self.strings[index]
    }

    /// Reads a piece of text.
    pub(super) fn feed(&mut self, text: &str) -> Fed {
        let held_before = self.held.len();
        self.held.push_str(text);
        for at in held_before..self.held.len() {
            self.state = self.next(self.state, self.held.as_bytes()[at]);
            if let Some(index) = self.nodes[self.state].ends {
                let start = at + 1 - self.strings[index].len();
                self.held.truncate(start);
                self.state = 0;
                return Fed::Hit { before: std::mem::take(&mut self.held), index };
            }
        }
        // A stop string starts with a whole character, so this cut never splits one.
        let keep_from = self.held.len() - self.nodes[self.state].depth;
        let keep = self.held.split_off(keep_from);
        Fed::Safe(std::mem::replace(&mut self.held, keep))
    }

    /// Gives back what is held, because the text ends or something else comes between, and starts anew.
    pub(super) fn flush(&mut self) -> String {
        self.state = 0;
        std::mem::take(&mut self.held)
    }

    fn next(&self, mut state: usize, byte: u8) -> usize {
        loop {
            if let Some(target) = edge(&self.nodes[state], byte) {
                return target;
            }
            if state == 0 {
                return 0;
            }
            state = self.nodes[state].fallback;
        }
    }
}

fn edge(node: &Node, byte: u8) -> Option<usize> {
    node.edges.iter().find(|(label, _)| *label == byte).map(|(_, target)| *target)
}

fn child_or_new(nodes: &mut Vec<Node>, at: usize, byte: u8) -> usize {
    if let Some(target) = edge(&nodes[at], byte) {
        return target;
    }
    let target = nodes.len();
    let depth = nodes[at].depth + 1;
    nodes.push(Node { depth, ..Node::default() });
    nodes[at].edges.push((byte, target));
    target
}

/// Breadth first: the fallback of a node is the longest proper suffix of its text that is itself a prefix.
fn link_fallbacks(nodes: &mut [Node]) {
    let mut order: std::collections::VecDeque<usize> =
        nodes[0].edges.iter().map(|(_, child)| *child).collect();
    while let Some(at) = order.pop_front() {
        for (byte, child) in nodes[at].edges.clone() {
            let mut back = nodes[at].fallback;
            while back != 0 && edge(&nodes[back], byte).is_none() {
                back = nodes[back].fallback;
            }
            nodes[child].fallback = edge(&nodes[back], byte).unwrap_or(0);
            order.push_back(child);
        }
        let inherited = nodes[nodes[at].fallback].ends;
        let ends = &mut nodes[at].ends;
        *ends = ends.or(inherited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(strings: &[&str]) -> StopMatcher {
        StopMatcher::new(&strings.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).unwrap()
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
    fn empty_stop_strings_are_no_stop_strings() {
        assert!(StopMatcher::new(&[]).is_none());
        assert!(StopMatcher::new(&[String::new()]).is_none());
    }
}
