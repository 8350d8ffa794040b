//! What a child in the sandbox cannot do, tried with a shell.

use super::{Workplace, confines_files};
use crate::error::{Error, Kind};
use crate::policy::Limits;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;

/// Runs a line of bash in the sandbox; its output, or "failed" behind it.
async fn bash(line: &str, limits: &Limits) -> String {
    let workplace = Workplace::new(b"the video").await.expect("a workplace");
    let arguments = ["--norc".to_owned(), "-c".into(), line.to_owned()];
    let mut child = workplace.start(Path::new("/bin/bash"), &arguments, limits).expect("bash starts");
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).await.expect("text");
    if !child.wait().await.expect("it ends").success() {
        text.push_str("failed");
    }
    text
}

#[tokio::test]
async fn the_input_can_be_read() {
    assert_eq!(bash("cat input", &Limits::default()).await, "the video");
}

#[tokio::test]
async fn nothing_can_be_written() {
    for line in ["echo more > input", "echo new > other && test -s other", "echo more >> input"] {
        assert!(bash(line, &Limits::default()).await.ends_with("failed"), "{line}");
    }
}

/// What a decoder that a video has taken over could do to its surroundings without writing a byte.
#[tokio::test]
async fn files_elsewhere_stay_as_they_are_and_no_process_gets_a_signal() {
    let folder = tempfile::tempdir().expect("a folder");
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "content").expect("written");
    let before = std::fs::metadata(&victim).expect("it is there");
    let shown = victim.display();
    for line in [
        format!("truncate -s 0 {shown}"),
        format!(": > {shown}"),
        format!("chmod 777 {shown}"),
        format!("touch -d 1970-01-02 {shown}"),
        format!("mv {shown} {shown}.gone"),
        format!("ln {shown} {shown}.too"),
        format!("ln -s {shown} {shown}.too"),
        format!("rm -f {shown}"),
        format!("mkdir {shown}.folder"),
        "kill -0 $PPID".to_owned(),
        format!("kill -0 {}", std::process::id()),
    ] {
        assert!(bash(&line, &Limits::default()).await.ends_with("failed"), "{line}");
    }
    let after = std::fs::metadata(&victim).expect("it is still there");
    assert_eq!(std::fs::read_to_string(&victim).expect("text"), "content");
    assert_eq!((after.permissions(), after.modified().ok()), (before.permissions(), before.modified().ok()));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let outside = std::process::Command::new("/bin/bash").args(["-c", "kill -0 $PPID"]).status();
    assert!(
        outside.expect("bash starts").success(),
        "a signal must work outside, or this test shows nothing"
    );
}

#[tokio::test]
async fn no_connection_can_be_made() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    assert!(bash(&line, &Limits::default()).await.ends_with("failed"));
    let outside = std::process::Command::new("/bin/bash").args(["-c", &line]).status().expect("bash starts");
    assert!(outside.success(), "the same line must work outside, or this test shows nothing");
}

/// Where the kernel has Landlock the child sees no file but its own; elsewhere that is said aloud, and the filter of
/// system calls must be there at least: a sandbox of neither is no sandbox.
#[tokio::test]
async fn other_files_cannot_be_read_or_the_lack_of_it_is_said_aloud() {
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "secret").expect("written");
    let text = bash(&format!("cat {}", secret.path().display()), &Limits::default()).await;
    if confines_files() {
        assert_eq!(text, "failed");
        assert_eq!(bash("cat /proc/self/status", &Limits::default()).await, "failed");
        return;
    }
    m3_testdata::skip("this kernel has no Landlock: that a child reads no other files was not tried");
    assert_eq!(text, "secret", "without Landlock nothing else keeps files away, and the documents say so");
    let status = bash("cat /proc/self/status", &Limits::default()).await;
    assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
}

#[tokio::test]
async fn memory_is_limited() {
    let limits = Limits { video_memory: 64 << 20, ..Limits::default() };
    let line = |length: u32| format!("printf -v text '%{length}s' x; echo ${{#text}}");
    assert!(!bash(&line(40_000_000), &limits).await.contains("40000000"));
    assert_eq!(bash(&line(3000), &limits).await, "3000\n");
    assert_eq!(bash(&line(40_000_000), &Limits::default()).await, "40000000\n");
}

#[tokio::test]
async fn processor_time_is_limited() {
    let begun = Instant::now();
    let limits = Limits { video_time: Duration::from_secs(1), ..Limits::default() };
    assert!(bash("while :; do :; done", &limits).await.ends_with("failed"));
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn the_environment_is_empty() {
    let text = bash("export -p | grep -c HOME=", &Limits::default()).await;
    assert_eq!(text, "0\nfailed");
}

#[tokio::test]
async fn a_dropped_child_is_killed_and_its_folder_removed() {
    let workplace = Workplace::new(b"the video").await.expect("a workplace");
    let folder = workplace.folder.path().to_owned();
    let child =
        workplace.start(Path::new("/bin/sleep"), &["600".into()], &Limits::default()).expect("it starts");
    let process = format!("/proc/{}/stat", child.id().expect("it runs"));
    drop(child);
    drop(workplace);
    assert!(!folder.exists());
    let gone = || std::fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "));
    for _ in 0..100 {
        if gone() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the child still runs");
}

#[tokio::test]
async fn an_absent_program_is_named() {
    let workplace = Workplace::new(b"the video").await.expect("a workplace");
    let error =
        workplace.start(Path::new("ffmpeg-that-is-absent"), &[], &Limits::default()).expect_err("absent");
    assert_eq!(
        error.to_string(),
        "ffmpeg-that-is-absent is not installed on this server, so video cannot be decoded"
    );
    assert!(matches!(error, Error::Absent { .. }) && error.kind() == Kind::Invalid);
}
