//! What a hub says of a model: its commit, its files, and what each of them hashes to. One type for both kinds of hub.

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::HubOptions;
use crate::error::cut;

/// A hub, by its way of talking, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    HuggingFace(String),
    ModelScope(String),
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// Inside the model, with `/`.
    pub(super) path: String,
    pub(super) size: u64,
    /// Lower-case hex; the hub has none of small files.
    pub(super) sha256: Option<String>,
    /// What the cache calls its content.
    pub(super) blob: String,
}

#[derive(Debug)]
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<Remote>,
}

/// Kinds of files that hold data alone.
pub(super) fn is_data(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let plain = !path.contains('/') || path.split('/').all(|part| !part.is_empty() && !part.starts_with('.'));
    plain
        && !path.starts_with('.')
        && (["safetensors", "json", "jinja", "txt", "md"].contains(&extension) || path.starts_with("LICENSE"))
}

#[derive(Deserialize)]
struct HfModel {
    sha: String,
    siblings: Vec<HfFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HfFile {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<HfLfs>,
}

#[derive(Deserialize)]
struct HfLfs {
    sha256: String,
    size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScopeAnswer {
    #[serde(default)]
    message: Option<String>,
    data: Option<ScopeFiles>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScopeFiles {
    files: Vec<ScopeFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScopeFile {
    path: String,
    size: u64,
    #[serde(default)]
    sha256: Option<String>,
    #[serde(default, rename = "Type")]
    kind: Option<String>,
}

impl Site {
    /// A hub's name, and its address where it is not the usual one.
    pub fn new(name: &str, endpoint: Option<&str>) -> Option<Self> {
        let at = |usual: &str| endpoint.unwrap_or(usual).trim_end_matches('/').to_owned();
        match name {
            "huggingface" | "hf" => Some(Site::HuggingFace(at("https://huggingface.co"))),
            "modelscope" => Some(Site::ModelScope(at("https://modelscope.cn"))),
            _ => None,
        }
    }

    /// The branch that a model has when none was named.
    pub fn usual_revision(&self) -> &'static str {
        match self {
            Site::HuggingFace(_) => "main",
            Site::ModelScope(_) => "master",
        }
    }

    /// What a revision holds.
    pub(super) async fn list(
        &self,
        client: &reqwest::Client,
        name: &str,
        options: &HubOptions,
    ) -> anyhow::Result<Listing> {
        let revision = &options.revision;
        match self {
            Site::HuggingFace(at) => {
                let address = format!("{at}/api/models/{name}/revision/{}?blobs=true", escaped(revision));
                listed(ask::<HfModel>(client, &address, name, options).await?)
            }
            Site::ModelScope(at) => {
                let address = format!(
                    "{at}/api/v1/models/{name}/repo/files?Revision={}&Recursive=true",
                    escaped(revision)
                );
                let answer: ScopeAnswer = ask(client, &address, name, options).await?;
                let said = answer.message.unwrap_or_default();
                let files = answer
                    .data
                    .with_context(|| format!("the hub has no list of {name}: {}", cut(&said, 200)))?;
                Ok(scoped(revision, files))
            }
        }
    }

    /// Where a file is.
    pub(super) fn address(&self, name: &str, commit: &str, path: &str) -> String {
        match self {
            Site::HuggingFace(at) => format!("{at}/{name}/resolve/{commit}/{}", escaped(path)),
            Site::ModelScope(at) => {
                format!(
                    "{at}/api/v1/models/{name}/repo?Revision={}&FilePath={}",
                    escaped(commit),
                    escaped(path)
                )
            }
        }
    }
}

fn listed(model: HfModel) -> anyhow::Result<Listing> {
    ensure!(is_hex(&model.sha, 40), "the hub names the commit \"{}\", which is none", cut(&model.sha, 80));
    let files = model.siblings.into_iter().map(|file| {
        let blob = file.lfs.as_ref().map(|lfs| lfs.sha256.clone()).or(file.blob_id);
        let size = file.lfs.as_ref().map(|lfs| lfs.size).or(file.size);
        let size = size.with_context(|| format!("the hub does not say how long {} is", file.rfilename))?;
        let blob = blob.with_context(|| format!("the hub does not say what {} is", file.rfilename))?;
        checked(Remote { path: file.rfilename, size, sha256: file.lfs.map(|lfs| lfs.sha256), blob })
    });
    Ok(Listing { commit: model.sha, files: files.collect::<anyhow::Result<_>>()? })
}

/// Names from outside become paths here.
fn checked(file: Remote) -> anyhow::Result<Remote> {
    let steps = file.path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let good = steps && !file.path.contains('\\') && file.path.chars().all(|letter| !letter.is_control());
    ensure!(good, "the hub names the file {:?}, which is no path inside a model", cut(&file.path, 100));
    ensure!(
        is_hex(&file.blob, 40) || is_hex(&file.blob, 64),
        "the hub gives {:?} a hash that is none",
        file.path
    );
    Ok(file)
}

/// ModelScope tells no commit: the revision stands for it, and the hashes for what it holds.
fn scoped(revision: &str, files: ScopeFiles) -> Listing {
    let files = files.files.into_iter().filter(|file| file.kind.as_deref() != Some("tree"));
    let files = files.filter_map(|file| {
        let sha256 = file.sha256.filter(|hash| is_hex(hash, 64)).map(|hash| hash.to_ascii_lowercase())?;
        checked(Remote { path: file.path, size: file.size, blob: sha256.clone(), sha256: Some(sha256) }).ok()
    });
    Listing { commit: revision.to_owned(), files: files.collect() }
}

async fn ask<T: DeserializeOwned>(
    client: &reqwest::Client,
    address: &str,
    name: &str,
    options: &HubOptions,
) -> anyhow::Result<T> {
    let request = authorized(client.get(address), options);
    let response = request.send().await.map_err(reqwest::Error::without_url);
    let response =
        response.with_context(|| format!("the hub cannot be asked for {name}; is there a network?"))?;
    match response.status().as_u16() {
        200..=299 => {}
        401 | 403 => bail!("the hub does not let this machine have {name}; set HF_TOKEN to a token that may"),
        404 => bail!("the hub has no model {name} at revision {}", options.revision),
        status => bail!("the hub answers {status} when asked for {name}"),
    }
    let read = response.json().await.map_err(reqwest::Error::without_url);
    read.with_context(|| format!("the hub's list of {name} cannot be read"))
}

pub(super) fn authorized(request: reqwest::RequestBuilder, options: &HubOptions) -> reqwest::RequestBuilder {
    match &options.token {
        Some(token) => request.bearer_auth(&token.0),
        None => request,
    }
}

pub(super) fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A path within an address; its slashes stay.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let each = path
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_is_wanted() {
        for path in [
            "config.json",
            "model-00001-of-00002.safetensors",
            "chat_template.jinja",
            "LICENSE",
            "merges.txt",
        ] {
            assert!(is_data(path), "{path}");
        }
        for path in [
            "pytorch_model.bin",
            "model.pt",
            "modeling_m3.py",
            "x.pkl",
            ".gitattributes",
            ".cache/a.json",
            "a/.b/c.json",
        ] {
            assert!(!is_data(path), "{path}");
        }
    }

    #[test]
    fn names_that_would_leave_the_folder_are_refused() {
        let remote = |path: &str| Remote { path: path.into(), size: 1, sha256: None, blob: "a".repeat(40) };
        for path in ["../x", "a/../../x", "/etc/x", "a//b", "a\\b", "a\nb", ""] {
            assert!(checked(remote(path)).is_err(), "{path}");
        }
        assert!(checked(remote("a/b.json")).is_ok());
        assert!(checked(Remote { blob: "../../x".into(), ..remote("a") }).is_err());
        assert_eq!(escaped("a b/ü?"), "a%20b/%C3%BC%3F");
    }
}
