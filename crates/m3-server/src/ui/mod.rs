//! The page at `/`: chat and a live view of the load, as files that are part of the program. No framework, nothing from
//! elsewhere, no build step; what serves them is `routes::ui`.
//!
//! The page is a client like any other: it asks `/v1/chat/completions`, `/metrics` and the info routes, with the user's key.

/// One file under `/ui/`.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    pub name: &'static str,
    pub content_type: &'static str,
    pub text: &'static str,
}

/// The page itself.
pub const PAGE: &str = include_str!("assets/index.html");

/// Nothing from elsewhere, no inline code, images only as data, and no string may become markup: with these the browser
/// itself keeps what a model writes from being run.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                          connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                          require-trusted-types-for 'script'; trusted-types 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($name:literal, $content_type:expr) => {
        Asset { name: $name, content_type: $content_type, text: include_str!(concat!("assets/", $name)) }
    };
}

/// Everything the page loads.
pub const ASSETS: &[Asset] = &[
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    asset!("app.js", SCRIPT),
    asset!("api.js", SCRIPT),
    asset!("attachments.js", SCRIPT),
    asset!("chat.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("markdown.js", SCRIPT),
    asset!("plot.js", SCRIPT),
    asset!("prometheus.js", SCRIPT),
    asset!("settings.js", SCRIPT),
    asset!("sse.js", SCRIPT),
    asset!("status.js", SCRIPT),
    asset!("turn.js", SCRIPT),
];

/// The file of this name.
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ui/assets");
        let there =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let served = ASSETS.iter().map(|asset| asset.name.to_owned()).chain(["index.html".to_owned()]);
        assert_eq!(there.collect::<BTreeSet<_>>(), served.collect::<BTreeSet<_>>());
    }

    #[test]
    fn what_is_loaded_is_served_and_nothing_comes_from_elsewhere() {
        for text in ASSETS.iter().map(|asset| asset.text).chain([PAGE]) {
            for loaded in
                text.split('"').filter_map(|word| word.strip_prefix("./").or(word.strip_prefix("ui/")))
            {
                assert!(asset(loaded).is_some(), "{loaded}");
            }
            for outside in ["src=\"http", "href=\"http", "url(", "@import", "//cdn"] {
                assert!(!text.contains(outside), "{outside}");
            }
        }
    }

    #[test]
    fn no_script_can_make_markup_of_text() {
        let sinks = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "createContextualFragment",
            "setHTML",
            "srcdoc",
        ];
        for asset in ASSETS {
            for sink in sinks {
                assert!(!asset.text.contains(sink), "{} has {sink}", asset.name);
            }
        }
        // Inline code would not run under the policy either.
        assert!(!PAGE.contains("style=") && !PAGE.contains(" on") && !PAGE.contains("<style"));
    }
}
