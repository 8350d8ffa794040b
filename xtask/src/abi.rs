//! `cargo xtask abi`: the header in C and C++ against the Rust structs and the committed lock.
//!
//! `--bless` rewrites the lock, but only for a change that the growth rules allow: within a major, everything that
//! was there stays where it was. Whether the functions do what the header says is for the tests of m3-abi.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use m3_abi::layout;

const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-pedantic", "-Wpadded", "-Werror"];

/// Compares; with `bless`, rewrites `include/m3_backend.lock` when the change is allowed.
pub(crate) fn run(root: &Path, bless: bool) -> Result<()> {
    let include = root.join("include");
    let listing = layout::listing();
    ensure!(layout::padded().is_empty(), "implicit padding in {}", layout::padded().join(", "));
    let c = printed(&include, &compiler("CC", "cc"), "c", &["-std=c99"])?;
    let cpp = printed(&include, &compiler("CXX", "c++"), "cpp", &["-std=c++11", "-Wno-invalid-offsetof"])?;
    same("the header in C", &c, &listing)?;
    same("the header in C++", &cpp, &listing)?;

    let path = include.join("m3_backend.lock");
    let lock = match std::fs::read_to_string(&path) {
        Ok(lock) => lock,
        Err(error) if bless && error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let broken = broken_promises(&lock, &listing);
    ensure!(broken.is_empty(), "within a major nothing may move:\n{}", broken.join("\n"));
    if bless {
        return std::fs::write(&path, listing).with_context(|| format!("cannot write {}", path.display()));
    }
    same("the lock (cargo xtask abi --bless rewrites it)", &lock, &listing)
}

fn compiler(variable: &str, usual: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
}

/// What the program says that prints the header's layout.
fn printed(include: &Path, compiler: &str, extension: &str, flags: &[&str]) -> Result<String> {
    let folder = std::env::temp_dir().join(format!("m3-abi-{}-{extension}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let outcome = compiled(include, &folder, compiler, extension, flags);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn compiled(
    include: &Path,
    folder: &Path,
    compiler: &str,
    extension: &str,
    flags: &[&str],
) -> Result<String> {
    let (source, program) = (folder.join("layout").with_extension(extension), folder.join("layout"));
    std::fs::write(&source, layout::c_program())?;
    let mut command = Command::new(compiler);
    command.args(WARNINGS).args(flags).arg("-I").arg(include).arg(&source).arg("-o").arg(&program);
    let result = command.output().with_context(|| format!("cannot run {compiler}"))?;
    if !result.status.success() {
        bail!("{compiler} refuses the header:\n{}", String::from_utf8_lossy(&result.stderr));
    }
    Ok(String::from_utf8(Command::new(&program).output()?.stdout)?)
}

fn same(what: &str, theirs: &str, ours: &str) -> Result<()> {
    let difference = theirs.lines().zip(ours.lines()).find(|(theirs, ours)| theirs != ours);
    if let Some((theirs, ours)) = difference {
        bail!("{what} says {theirs:?} where the Rust structs say {ours:?}");
    }
    let (theirs, ours) = (theirs.lines().count(), ours.lines().count());
    ensure!(theirs == ours, "{what} has {theirs} lines where the Rust structs have {ours}");
    Ok(())
}

/// Lines of the lock that the new listing takes back. Sizes may grow; the minor may; everything else must stay,
/// unless the major was raised.
fn broken_promises(lock: &str, listing: &str) -> Vec<String> {
    let entries = |text: &str| -> HashMap<String, String> {
        text.lines()
            .filter_map(|line| {
                let mut words = line.splitn(3, ' ');
                let key = format!("{} {}", words.next()?, words.next()?);
                Some((key, words.next()?.to_owned()))
            })
            .collect()
    };
    let (old, new) = (entries(lock), entries(listing));
    let major = "constant M3_MAJOR";
    if old.get(major) != new.get(major) {
        return Vec::new();
    }
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    let kept = |key: &str, was: &str| match new.get(key) {
        Some(is) if key.starts_with("struct ") || key == "constant M3_MINOR" => number(is) >= number(was),
        Some(is) => is == was,
        None => false,
    };
    let mut broken: Vec<String> = old
        .iter()
        .filter(|(key, was)| !kept(key, was))
        .map(|(key, was)| format!("{key} was {was} and is {}", new.get(key).map_or("gone", String::as_str)))
        .collect();
    broken.sort();
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str =
        "constant M3_MAJOR 1\nconstant M3_MINOR 0\nstruct m3_a 8\nfield m3_a.size 0 4\nfield m3_a.x 4 4\n";

    #[track_caller]
    fn check(change: (&str, &str), broken: &[&str]) {
        assert_eq!(broken_promises(LOCK, &LOCK.replace(change.0, change.1)), broken);
    }

    #[test]
    fn appending_is_allowed_within_a_major() {
        check(("struct m3_a 8", "struct m3_a 16\nfield m3_a.y 8 8"), &[]);
        check(("constant M3_MINOR 0", "constant M3_MINOR 1"), &[]);
    }

    #[test]
    fn moving_shrinking_and_removing_are_not() {
        check(("m3_a.x 4 4", "m3_a.x 8 4"), &["field m3_a.x was 4 4 and is 8 4"]);
        check(("struct m3_a 8", "struct m3_a 4"), &["struct m3_a was 8 and is 4"]);
        check(("field m3_a.x 4 4\n", ""), &["field m3_a.x was 4 4 and is gone"]);
    }

    #[test]
    fn a_new_major_starts_over() {
        check(("constant M3_MAJOR 1\nconstant M3_MINOR 0\nstruct m3_a 8", "constant M3_MAJOR 2"), &[]);
    }

    #[test]
    fn this_header_passes() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root");
        run(root, false).unwrap();
    }
}
