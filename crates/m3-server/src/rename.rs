//! Refusals in the caller's words. Bodies of other APIs are turned into chat requests, which is where they are checked;
//! what is wrong must then be named as the caller wrote it: `input[2]` and not `messages[3]`.

use crate::error::ApiError;

/// Field paths of the chat request and what they were in the original body. The longest match counts.
#[derive(Clone, Debug, Default)]
pub struct Renames(Vec<(String, String)>);

impl Renames {
    /// From pairs that hold for every request of an API.
    pub fn new(pairs: &[(&str, &str)]) -> Self {
        Renames(pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect())
    }

    /// One more pair.
    pub fn add(&mut self, from: impl Into<String>, to: impl Into<String>) {
        self.0.push((from.into(), to.into()));
    }

    /// The same refusal about the original body.
    pub fn apply(&self, mut error: ApiError) -> ApiError {
        error.param = error.param.map(|param| self.replace(&param));
        error.message = self.replace(&error.message);
        error
    }

    /// One pass: what has been replaced is not looked at again. Quoted text is the caller's own and stays.
    fn replace(&self, text: &str) -> String {
        let (mut out, mut at, mut quoted) = (String::with_capacity(text.len()), 0, false);
        while let Some(letter) = text[at..].chars().next() {
            let starts_word = !text[..at].ends_with(in_word);
            let found = if quoted || !starts_word { None } else { self.longest(&text[at..]) };
            if let Some((from, to)) = found {
                out.push_str(to);
                at += from.len();
                continue;
            }
            quoted ^= letter == '"';
            out.push(letter);
            at += letter.len_utf8();
        }
        out
    }

    fn longest(&self, text: &str) -> Option<&(String, String)> {
        let fits = |from: &str| {
            text.strip_prefix(from).is_some_and(|rest| from.ends_with(']') || !rest.starts_with(in_word))
        };
        self.0.iter().filter(|(from, _)| fits(from)).max_by_key(|(from, _)| from.len())
    }
}

fn in_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_renamed_in_one_pass_and_quotes_are_left_alone() {
        let mut renames = Renames::new(&[("max_tokens", "max_output_tokens"), ("messages", "input")]);
        renames.add("messages[1]", "messages[0]");
        renames.add("messages[0]", "system");
        renames.add("messages[12]", "input[7]");
        let error = ApiError::invalid(
            "messages[1].content",
            "messages[1].content is \"max_tokens\"; max_tokens, min_max_tokens and messages[12].role; messages",
        );
        let error = renames.apply(error);
        assert_eq!(error.param.as_deref(), Some("messages[0].content"));
        assert_eq!(
            error.message,
            "messages[0].content is \"max_tokens\"; max_output_tokens, min_max_tokens and input[7].role; input"
        );
    }
}
