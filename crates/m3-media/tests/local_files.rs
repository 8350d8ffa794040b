//! Local files: below the folder, without links, regular, within the limit.

use m3_media::{Fetcher, Kind, Limits, Policy, Source, Wanted};
use std::os::unix::fs::symlink;
use std::path::Path;

async fn read(folder: Option<&Path>, address: &str) -> Result<Vec<u8>, m3_media::Error> {
    let limits = Limits { max_image_bytes: 100, ..Limits::default() };
    let policy = Policy { folder: folder.map(Path::to_owned), limits, ..Policy::default() };
    let fetcher = Fetcher::new(policy).expect("a fetcher");
    fetcher.fetch(&Source::parse(address)?, Wanted::Image).await.map(|bytes| bytes.to_vec())
}

#[tokio::test]
async fn only_plain_files_below_the_folder_are_read() {
    let home = tempfile::tempdir().expect("a folder");
    let root = std::fs::canonicalize(home.path()).expect("a path");
    let allowed = root.join("allowed");
    std::fs::create_dir_all(allowed.join("deep/er")).expect("folders");
    std::fs::create_dir_all(root.join("allowed-not")).expect("folders");
    for (name, text) in [
        ("allowed/a b.png", "one"),
        ("allowed/deep/er/b.png", "two"),
        ("secret.png", "secret"),
        ("allowed-not/c.png", "secret"),
        ("allowed/..d.png", "three"),
    ] {
        std::fs::write(root.join(name), text).expect("written");
    }
    std::fs::write(allowed.join("large.png"), [0; 101]).expect("written");
    symlink(root.join("secret.png"), allowed.join("link.png")).expect("a link");
    symlink(allowed.join("deep"), allowed.join("inside")).expect("a link");
    symlink(&root, allowed.join("outside")).expect("a link");
    let path = allowed.join("pipe.png");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    let address = |name: &str| format!("file://{}/{name}", allowed.display());
    for (name, wanted) in
        [("a%20b.png", "one"), ("deep/er/b.png", "two"), ("deep//er/b.png", "two"), ("..d.png", "three")]
    {
        assert_eq!(read(Some(&allowed), &address(name)).await.expect(name), wanted.as_bytes(), "{name}");
    }
    for (name, rule) in [
        ("../secret.png", "must not contain . or .."),
        ("%2e%2e/secret.png", "must not contain . or .."),
        ("deep/../../secret.png", "must not contain . or .."),
        ("./a%20b.png", "must not contain . or .."),
        ("link.png", "must not contain links"),
        ("inside/er/b.png", "must not contain links"),
        ("outside/secret.png", "must not contain links"),
        ("absent.png", "does not exist or cannot be read"),
        ("deep", "is not a regular file"),
        ("pipe.png", "is not a regular file"),
        ("", "not below the folder"),
        ("a%20b.png/x", "must not contain links"),
    ] {
        let error = read(Some(&allowed), &address(name)).await.expect_err(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}");
        assert!(error.to_string().contains(rule), "{name}: {error}");
        assert!(!error.to_string().contains("allowed/"), "{error}");
    }
    for path in
        [root.join("secret.png"), root.join("allowed-not/c.png"), "/etc/passwd".into(), "/dev/zero".into()]
    {
        let error = read(Some(&allowed), &format!("file://{}", path.display())).await.expect_err("outside");
        assert_eq!(error.to_string(), "the file is not below the folder of allowed media");
    }
    let error = read(Some(&allowed), &address("large.png")).await.expect_err("too large");
    assert_eq!(error.to_string(), "the image in bytes is 101, above the limit of 100");
    let error = read(None, &address("a%20b.png")).await.expect_err("no folder");
    assert!(error.to_string().contains("--allowed-local-media-path"), "{error}");
}

#[tokio::test]
async fn a_folder_that_is_none_is_the_operator_s_error() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for (folder, wanted) in [
        (Path::new("relative"), "is not an absolute path"),
        (Path::new("/absent/folder"), "cannot open"),
        (file.path(), "is not a folder"),
    ] {
        let policy = Policy { folder: Some(folder.to_owned()), ..Policy::default() };
        let error = Fetcher::new(policy).err().expect(wanted);
        assert!(error.to_string().contains(wanted), "{error}");
    }
}
