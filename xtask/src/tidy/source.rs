//! Rules for one Rust file: its head, its size, its functions, its module names, what must not be left behind.

use super::Finding;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const MOST_FILE_LINES: usize = 600;
const MOST_FUNCTION_LINES: usize = 80;
const MOST_ARGUMENTS: usize = 6;
const FORBIDDEN_MODULES: [&str; 5] = ["utils", "helpers", "common", "manager", "misc"];

/// Written in halves so that this file does not break its own rule.
fn leftovers() -> [String; 5] {
    [("todo", "!("), ("unimplemented", "!("), ("FIX", "ME"), ("XX", "X"), ("#[ign", "ore")]
        .map(|(head, tail)| format!("{head}{tail}"))
}

pub(super) fn check(path: &str, text: &str, size_waived: bool, findings: &mut Vec<Finding>) {
    if !text.starts_with("//!") {
        findings.push(format!(
            "{path}:1: a file opens with a `//!` paragraph: what it is for and what it is not"
        ));
    }
    names(path, findings);
    for (number, line) in text.lines().enumerate() {
        for word in leftovers().iter().filter(|word| line.contains(word.as_str())) {
            findings.push(format!("{path}:{}: `{word}` must not be left behind", number + 1));
        }
    }
    wall_clock(path, text, findings);
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    match syn::parse_file(text) {
        Err(error) => findings.push(format!("{path}: does not parse: {error}")),
        Ok(file) => {
            let mut visitor = Sizes { path, test_lines: 0, findings, waived: size_waived || is_test };
            visitor.visit_file(&file);
            let lines = text.lines().count() - visitor.test_lines;
            if lines > MOST_FILE_LINES && !size_waived && !is_test {
                findings.push(format!("{path}: {lines} lines without tests; at most {MOST_FILE_LINES}"));
            }
        }
    }
}

/// Where the time of day may be read: to show it. Whatever lasts is measured by a clock that only goes forward.
const WALL_CLOCKS: [&str; 2] = ["crates/m3-server/src/clock.rs", "crates/m3-core/src/text/template/clock.rs"];

fn wall_clock(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let of_engine = path.starts_with("crates/") && path.contains("/src/") && !WALL_CLOCKS.contains(&path);
    for (number, _) in text.lines().enumerate().filter(|(_, line)| of_engine && line.contains("SystemTime")) {
        findings.push(format!(
            "{path}:{}: the time of day is read in {} alone; what lasts is measured by `Instant`",
            number + 1,
            WALL_CLOCKS.join(" and ")
        ));
    }
}

fn names(path: &str, findings: &mut Vec<Finding>) {
    for part in path.trim_end_matches(".rs").split('/') {
        if FORBIDDEN_MODULES.contains(&part) {
            findings.push(format!("{path}: `{part}` says nothing; name the module after what it holds"));
        }
    }
}

/// Walks functions; counts the lines of inline test modules so that they do not weigh on their file.
struct Sizes<'a> {
    path: &'a str,
    test_lines: usize,
    findings: &'a mut Vec<Finding>,
    waived: bool,
}

impl Sizes<'_> {
    fn function(&mut self, signature: &syn::Signature, whole: proc_macro2::Span) {
        let (first, last) = (signature.span().start().line, whole.end().line);
        let (lines, arguments) = (last + 1 - first, signature.inputs.len());
        let name = &signature.ident;
        if lines > MOST_FUNCTION_LINES && !self.waived {
            let path = self.path;
            self.findings
                .push(format!("{path}:{first}: `{name}` has {lines} lines; at most {MOST_FUNCTION_LINES}"));
        }
        if arguments > MOST_ARGUMENTS && signature.abi.is_none() && !self.waived {
            let path = self.path;
            self.findings.push(format!(
                "{path}:{first}: `{name}` takes {arguments} arguments; at most {MOST_ARGUMENTS}"
            ));
        }
    }
}

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Sizes<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if FORBIDDEN_MODULES.iter().any(|name| module.ident == name) {
            self.findings.push(format!("{}: module `{}` says nothing", self.path, module.ident));
        }
        if is_test_only(&module.attrs) {
            let span = module.span();
            self.test_lines += span.end().line + 1 - span.start().line;
        } else {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig, function.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.sig, function.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.function(&function.sig, function.span());
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(path, text, false, &mut findings);
        findings
    }

    #[test]
    fn clean_file_has_no_findings() {
        assert!(findings("crates/a/src/lib.rs", "//! Head.\nfn f(a: u8) -> u8 { a }\n").is_empty());
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let long = format!("//! Head.\nfn f() {{\n{}}}\n", "    g();\n".repeat(80));
        let many = "//! Head.\nfn f(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {}\n";
        let big = format!("//! Head.\n{}", "// A line.\n".repeat(600));
        let left = format!("//! Head.\nfn f() {{ {}!() }}\n", "todo");
        for (path, text, part) in [
            ("a.rs", "fn f() {}\n".to_owned(), "opens with"),
            ("a.rs", long, "82 lines"),
            ("a.rs", many.to_owned(), "7 arguments"),
            ("a.rs", big, "601 lines"),
            ("a.rs", left, "left behind"),
            ("crates/a/src/b.rs", "//! Head.\nuse std::time::SystemTime;\n".to_owned(), "time of day"),
            ("src/utils.rs", "//! Head.\n".to_owned(), "says nothing"),
            ("a.rs", "//! Head.\nmod misc {}\n".to_owned(), "says nothing"),
        ] {
            let found = findings(path, &text);
            assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
        }
    }

    #[test]
    fn inline_tests_do_not_weigh_on_their_file() {
        let text = format!("//! Head.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "    // A line.\n".repeat(700));
        assert!(findings("a.rs", &text).is_empty());
    }
}
