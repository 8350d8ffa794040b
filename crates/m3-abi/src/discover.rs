//! Which backend serves: `--backend auto|NAME|PATH` and `--backend-dir`.
//!
//! A name is looked for among the linked backends, then as `libm3_backend_NAME.so` beside the executable, then in the
//! given folder; the first that is there is the one, and its refusal is final. A path loads that file. `auto` probes
//! everything that is there; the best score wins, on equal scores a linked one, then the first name; one that serves
//! only by name (a test backend) never wins.
//! A file of any other name is never loaded unless its path is given; a broken file is a refusal, never an error.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::backend::{Driver, ProbeReport, ProbeRequest};
use crate::load::{LinkedBackend, Origin, Plugin, is_name};
use crate::types::PROBE_BY_NAME_ONLY;

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Auto,
    Name(String),
    Path(PathBuf),
}

impl Choice {
    /// Refuses what is neither `auto`, a name (`a-z 0-9 _ -`), nor a path (with a separator, or ending as a library).
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Choice::Auto);
        }
        if text.contains(std::path::is_separator) || text.ends_with(std::env::consts::DLL_SUFFIX) {
            return Ok(Choice::Path(PathBuf::from(text)));
        }
        if !is_name(text) {
            return Err(format!("backend {text:?} is neither auto, a name (a-z, 0-9, _ and -), nor a path"));
        }
        Ok(Choice::Name(text.to_owned()))
    }
}

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Places<'a> {
    pub linked: &'a [LinkedBackend],
    /// Folder of the executable; see [`beside_executable`].
    pub beside: Option<PathBuf>,
    /// `--backend-dir`.
    pub dir: Option<PathBuf>,
}

/// Folder of the running executable.
pub fn beside_executable() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    executable.canonicalize().unwrap_or(executable).parent().map(Path::to_owned)
}

/// One backend that was looked at.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub name: String,
    pub origin: Origin,
    /// Version as the table says; empty when it did not get that far.
    pub version: String,
    /// The sentence of the refusal is for the user.
    pub outcome: Result<ProbeReport, String>,
    /// There when the table loaded, even if probing refused.
    pub plugin: Option<Plugin>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}): ", self.name, self.origin)?;
        match &self.outcome {
            Ok(report) => {
                write!(formatter, "score {}, {} x {}", report.score, report.num_devices, report.device)
            }
            Err(refusal) => formatter.write_str(refusal),
        }
    }
}

impl Candidate {
    /// Why it does not serve.
    fn refusal(&self) -> String {
        match &self.outcome {
            Ok(_) => format!("{} ({}): serves only when asked for by name or path", self.name, self.origin),
            Err(_) => self.to_string(),
        }
    }
}

/// Everything that was looked at, and which one serves.
#[derive(Clone, Debug)]
pub struct Discovery {
    pub candidates: Vec<Candidate>,
    chosen: Option<usize>,
    /// Why none was chosen, when there is nothing to blame among the candidates.
    absence: String,
}

impl Discovery {
    /// The backend to serve with, or a sentence with every refusal in it.
    pub fn chosen(&self) -> Result<(&Plugin, &ProbeReport), String> {
        if let Some(candidate) = self.chosen.map(|index| &self.candidates[index])
            && let (Some(plugin), Ok(report)) = (&candidate.plugin, &candidate.outcome)
        {
            return Ok((plugin, report));
        }
        if self.candidates.is_empty() {
            return Err(self.absence.clone());
        }
        let refusals: Vec<String> = self.candidates.iter().map(Candidate::refusal).collect();
        Err(format!("no backend can serve: {}", refusals.join("; ")))
    }

    /// The candidates that were refused, for the log.
    pub fn refused(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|candidate| candidate.outcome.is_err())
    }
}

/// Loads and probes what `choice` asks for. Never fails: failures are outcomes of candidates.
pub fn discover(choice: &Choice, places: &Places<'_>, request: &ProbeRequest) -> Discovery {
    match choice {
        Choice::Auto => auto(places, request),
        Choice::Name(name) => by_name(name, places, request),
        Choice::Path(path) => {
            only(probed(file_stem(path), Origin::File(path.clone()), load(path, None), request))
        }
    }
}

fn auto(places: &Places<'_>, request: &ProbeRequest) -> Discovery {
    let mut candidates: Vec<Candidate> =
        places.linked.iter().map(|linked| linked_one(linked, request)).collect();
    for (name, path) in plugin_files(places) {
        let plugin = load(&path, Some(&name));
        candidates.push(probed(name, Origin::File(path), plugin, request));
    }
    let chosen = best(&candidates);
    let absence = format!("no backend is linked in and none was found {}", searched(places, "*"));
    Discovery { candidates, chosen, absence }
}

fn best(candidates: &[Candidate]) -> Option<usize> {
    let usable = candidates.iter().enumerate().filter_map(|(index, candidate)| {
        let report = candidate.outcome.as_ref().ok()?;
        let file = candidate.origin != Origin::Linked;
        if report.flags & PROBE_BY_NAME_ONLY != 0 {
            return None;
        }
        Some((std::cmp::Reverse(report.score), file, candidate.name.as_str(), index))
    });
    usable.min().map(|(.., index)| index)
}

fn by_name(name: &str, places: &Places<'_>, request: &ProbeRequest) -> Discovery {
    if let Some(linked) = places.linked.iter().find(|linked| linked.name == name) {
        return only(linked_one(linked, request));
    }
    let file = file_name(name);
    let folders = [&places.beside, &places.dir];
    let mut paths = folders.into_iter().flatten().map(|folder| folder.join(&file));
    // A broken link is there: its refusal tells more than its absence.
    match paths.find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => {
            let plugin = load(&path, Some(name));
            only(probed(name.to_owned(), Origin::File(path), plugin, request))
        }
        None => {
            let linked: Vec<&str> = places.linked.iter().map(|linked| linked.name).collect();
            let linked = if linked.is_empty() { "none".to_owned() } else { linked.join(", ") };
            let searched = searched(places, name);
            let absence =
                format!("no backend is named {name}: linked in are {linked}; no file was found {searched}");
            Discovery { candidates: Vec::new(), chosen: None, absence }
        }
    }
}

fn only(candidate: Candidate) -> Discovery {
    let chosen = candidate.outcome.is_ok().then_some(0);
    Discovery { candidates: vec![candidate], chosen, absence: String::new() }
}

fn searched(places: &Places<'_>, name: &str) -> String {
    let folders: Vec<String> = [&places.beside, &places.dir]
        .into_iter()
        .flatten()
        .map(|folder| folder.display().to_string())
        .collect();
    let folders =
        if folders.is_empty() { "anywhere".to_owned() } else { format!("in {}", folders.join(" or ")) };
    format!("as {} {folders}", file_name(name))
}

/// File name of the plugin with this name, e.g. `libm3_backend_sm90.so`.
pub fn file_name(name: &str) -> String {
    use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
    format!("{DLL_PREFIX}m3_backend_{name}{DLL_SUFFIX}")
}

/// The name inside a plugin's file name; `None` for any other file.
fn name_in(file: &str) -> Option<&str> {
    let template = file_name("*");
    let (prefix, suffix) = template.split_once('*').expect("the template holds the star");
    file.strip_prefix(prefix)?.strip_suffix(suffix).filter(|name| !name.is_empty())
}

fn file_stem(path: &Path) -> String {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name_in(&file).map_or(file.clone(), str::to_owned)
}

/// Plugin files of both folders, by name within a folder, each file once under each name: a link of another
/// name is refused and must not hide the file.
fn plugin_files(places: &Places<'_>) -> Vec<(String, PathBuf)> {
    let mut seen = Vec::new();
    let mut files = Vec::new();
    for folder in [&places.beside, &places.dir].into_iter().flatten() {
        let Ok(entries) = std::fs::read_dir(folder) else {
            crate::log::say(crate::log::WARN, &format!("cannot list backends in {}", folder.display()));
            continue;
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| Some(name_in(entry.file_name().to_str()?)?.to_owned()))
            .collect();
        names.sort();
        for name in names {
            let path = folder.join(file_name(&name));
            let real = (name.clone(), path.canonicalize().unwrap_or_else(|_| path.clone()));
            if !seen.contains(&real) {
                seen.push(real);
                files.push((name, path));
            }
        }
    }
    files
}

fn load(path: &Path, expected: Option<&str>) -> Result<Plugin, String> {
    let plugin = Plugin::open(path).map_err(|error| error.to_string())?;
    match expected {
        Some(expected) if plugin.name() != expected => {
            Err(format!("{} calls itself {}, not {expected}", path.display(), plugin.name()))
        }
        _ => Ok(plugin),
    }
}

fn linked_one(linked: &LinkedBackend, request: &ProbeRequest) -> Candidate {
    let plugin = Plugin::linked(linked).map_err(|error| error.to_string());
    probed(linked.name.to_owned(), Origin::Linked, plugin, request)
}

fn probed(name: String, origin: Origin, plugin: Result<Plugin, String>, request: &ProbeRequest) -> Candidate {
    match plugin {
        Ok(plugin) => Candidate {
            name: plugin.name().to_owned(),
            origin,
            version: plugin.version().to_owned(),
            outcome: plugin.probe(request).map_err(|error| error.to_string()),
            plugin: Some(plugin),
        },
        Err(refusal) => {
            Candidate { name, origin, version: String::new(), outcome: Err(refusal), plugin: None }
        }
    }
}
