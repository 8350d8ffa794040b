//! The handshake: this host with plugins in C that are older, newer, or wrong in one way each.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use m3_abi::types::{Host, PageCopy};
use m3_abi::{Backend, Driver, Error, Plugin, ProbeRequest, load};
use support::{c_plugin, compile, rust_plugin, serve, submit, wait, warmed};

fn opened(fault: &str) -> Plugin {
    let folder = tempfile::tempdir().unwrap();
    Plugin::open(&c_plugin(folder.path(), "c", fault)).unwrap()
}

/// The plugin does not load, and its sentence holds every one of these.
#[track_caller]
fn check_refused(fault: &str, sentences: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = c_plugin(folder.path(), "c", fault);
    let Err(Error::Unsupported(refusal)) = Plugin::open(&path) else { panic!("{fault}: was not refused") };
    for sentence in sentences.iter().chain(&[&*path.display().to_string()]) {
        assert!(refusal.contains(sentence), "{fault}: {refusal:?} lacks {sentence:?}");
    }
}

/// A call on an instance is Fatal with this sentence, and so is every later one.
#[track_caller]
fn check_fatal<T: std::fmt::Debug>(
    fault: &str,
    sentence: &str,
    call: impl FnOnce(&mut dyn Backend) -> m3_abi::Result<T>,
) {
    let mut instance = warmed(&opened(fault));
    let outcome = call(instance.as_mut());
    let Err(Error::Fatal(said)) = outcome else { panic!("{fault}: {outcome:?}") };
    assert!(said.contains(sentence), "{fault}: {said:?} lacks {sentence:?}");
    let later = instance.done();
    let Err(Error::Fatal(later)) = later else { panic!("{fault}: lives on: {later:?}") };
    assert!(later.contains("dead"), "{later}");
}

#[test]
fn plugin_in_c_serves_its_script() {
    let plugin = opened("none");
    assert_eq!((plugin.name(), plugin.version(), plugin.minor()), ("c", "0.1", 0));
    let report = plugin.probe(&ProbeRequest::default()).unwrap();
    assert_eq!((report.score, report.device.as_str(), report.arch.as_str()), (50, "a script in C", "c"));
    let mut instance = warmed(&plugin);
    assert_eq!(serve(instance.as_mut()).unwrap(), [7, 8]);
    assert_eq!(instance.done().unwrap(), m3_abi::Ticket(2));
}

#[test]
fn plugin_in_c_keeps_the_answers_of_two_steps_in_flight_apart() {
    let mut instance = warmed(&opened("none"));
    let vector = m3_abi::TensorView { shape: &[4], strides: &[1], ..support::embedding() };
    instance.load(&vector).expect("a checkpoint holds vectors too");
    let tickets = [0, 1].map(|index| submit(instance.as_mut(), index).unwrap());
    assert_eq!(tickets.map(|ticket| wait(instance.as_mut(), ticket).unwrap()), [7, 8]);
}

#[test]
fn optional_entries_of_a_plugin_in_c() {
    let mut instance = warmed(&opened("none"));
    instance.write_pages(&[1, 2], &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    instance.copy_pages(&[PageCopy { from: 2, to: 3 }]).unwrap();
    let mut bytes = Vec::new();
    instance.read_pages(&[3, 1], &mut bytes).unwrap();
    assert_eq!(bytes, [5, 6, 7, 8, 1, 2, 3, 4]);
    let regions = instance.regions().unwrap();
    assert_eq!((regions.len(), regions[99].base, regions[99].layout_hash), (100, 4096 * 99, 42));
    let media = instance.encode(&[0.0; 24], 3, &[[1, 2, 4]]).unwrap();
    assert_eq!((media.num_rows, media.handle, media.ticket.0), (2, 1, 1));
    instance.media_free(1).unwrap();
    let tap = instance.tap("logits").unwrap();
    assert_eq!(
        (tap.shape.as_slice(), tap.data.as_slice()),
        (&[2, 3][..], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0][..])
    );
    assert!(matches!(instance.tap("nothing"), Err(Error::Unsupported(_))));
    instance.trace(true).unwrap();
    instance.trace(false).unwrap();
    assert!(matches!(instance.media_free(9), Err(Error::Fatal(_))));
}

#[test]
fn newer_plugin_with_a_longer_table() {
    let plugin = opened("newer");
    assert_eq!(plugin.minor(), 7);
    assert_eq!(serve(warmed(&plugin).as_mut()).unwrap(), [7, 8]);
}

#[test]
fn older_plugin_whose_table_ends_after_close() {
    let mut instance = warmed(&opened("older"));
    assert_eq!(serve(instance.as_mut()).unwrap(), [7, 8]);
    let refusal = instance.copy_pages(&[]).unwrap_err();
    assert_eq!(refusal, Error::Unsupported("backend c cannot copy pages".to_owned()));
    assert!(instance.trace(true).is_err() && instance.regions().is_err() && instance.tap("logits").is_err());
    assert_eq!(submit(instance.as_mut(), 2).unwrap().0, 3, "a refusal changes nothing");
}

#[test]
fn null_optional_entry_means_cannot() {
    let refusal = warmed(&opened("no tap")).tap("logits").unwrap_err();
    assert_eq!(refusal, Error::Unsupported("backend c cannot read taps".to_owned()));
}

#[test]
fn tables_that_are_refused() {
    check_refused("wrong major", &["major 2", "major 1"]);
    check_refused("wrong major and size", &["major 2", "major 1"]);
    check_refused("small size", &["size 8", "at least 120"]);
    check_refused("huge size", &["size 1048576", "at most 4096"]);
    check_refused("odd size", &["size 181", "multiple of 8"]);
    check_refused("long for its minor", &["size 192", "minor 0", "at most 184"]);
    check_refused("short for its minor", &["size 176", "minor 1", "at least 184"]);
    check_refused("no submit", &["lacks the mandatory entries submit, done"]);
    check_refused("no name", &["name is null"]);
    check_refused("empty name", &["name is empty"]);
    check_refused("long name", &["name is longer than 64 bytes"]);
    check_refused("capital name", &["name \"SM90\"", "a-z, 0-9, _ and -"]);
    check_refused("named auto", &["name \"auto\"", "--backend"]);
    check_refused("name in lines", &["name \"a\\nb\"", "--backend"]);
    check_refused("version in lines", &["version \"1\\n", "control characters"]);
    check_refused("refuses", &["not on a tuesday"]);
    check_refused("refuses silently", &["without a reason"]);
}

#[test]
fn missing_symbol() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libm3_backend_other.so");
    compile("plugin.c", &path, &["-shared", "-fPIC", "-DSYMBOL=some_other_symbol"]);
    let refusal = Plugin::open(&path).unwrap_err().to_string();
    assert!(
        refusal.contains("no symbol m3_backend_query") && refusal.contains("libm3_backend_other.so"),
        "{refusal}"
    );
}

#[test]
fn files_that_are_no_libraries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libm3_backend_text.so");
    std::fs::write(&path, "not a library").unwrap();
    for path in [path, folder.path().join("missing.so"), folder.path().to_owned()] {
        let refusal = Plugin::open(&path).unwrap_err();
        assert!(matches!(&refusal, Error::Unsupported(said) if said.contains("cannot load")), "{refusal}");
    }
}

#[test]
fn truncated_library_is_refused_and_does_not_kill_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(rust_plugin("toy")).unwrap();
    let path = folder.path().join("libm3_backend_cut.so");
    for kept in [4, 63, 64, 100, 5_000, 100_000] {
        std::fs::write(&path, &whole[..kept]).unwrap();
        let refusal = Plugin::open(&path).unwrap_err().to_string();
        assert!(refusal.contains("cannot load"), "{kept}: {refusal}");
        assert!(
            kept < 100 || refusal.contains(&format!("truncated: the file has {kept} bytes")),
            "{refusal}"
        );
    }
}

#[cfg(unix)]
#[test]
fn pipe_or_folder_in_place_of_a_library_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("libm3_backend_pipe.so");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe, folder.path().to_owned()] {
        let refusal = Plugin::open(&path).unwrap_err().to_string();
        assert!(refusal.contains("it is no file"), "{refusal}");
    }
}

#[test]
fn hosts_of_other_versions_in_front_of_both_plugins() {
    let folder = tempfile::tempdir().unwrap();
    for path in [c_plugin(folder.path(), "c", "none"), rust_plugin("toy")] {
        let newer = Plugin::open_as(&path, &Host { minor: 9, ..load::this_host() }).unwrap();
        assert!(serve(warmed(&newer).as_mut()).is_ok());
        let quiet = Plugin::open_as(&path, &Host { log: None, ..load::this_host() });
        assert!(quiet.is_ok());
        let major = Plugin::open_as(&path, &Host { major: 2, ..load::this_host() }).unwrap_err().to_string();
        assert!(major.contains("speaks major 1"), "{major}");
        let small = Plugin::open_as(&path, &Host { size: 16, ..load::this_host() });
        assert!(small.is_err(), "{path:?}");
    }
}

#[test]
fn probe_that_refuses_or_has_no_score() {
    let refusal = opened("probe refuses").probe(&ProbeRequest::default()).unwrap_err();
    assert_eq!(refusal, Error::Unsupported("no device: the script has no hardware".to_owned()));
    let refusal = opened("score 0").probe(&ProbeRequest::default()).unwrap_err();
    assert!(matches!(&refusal, Error::Unsupported(said) if said.contains("score 0")), "{refusal}");
}

#[test]
fn texts_with_lying_lengths_or_control_characters_are_shown_clean() {
    let refusal = |fault| opened(fault).probe(&ProbeRequest::default()).unwrap_err().to_string();
    assert_eq!(refusal("text length"), "backend c refused probe without a reason");
    assert_eq!(refusal("text with terminator"), "no device");
    assert_eq!(refusal("text in lines"), "no device:  [31mred");
    let report = opened("probe lengths").probe(&ProbeRequest::default()).unwrap();
    assert_eq!((report.device.as_str(), report.arch.as_str()), ("a script in C", "c"));
    assert_eq!(report.paths, "sample: script\nembed: none");
}

#[test]
fn open_that_gives_nothing() {
    let Err(refusal) = opened("null instance").open(&support::request()) else { panic!("null was taken") };
    assert!(matches!(&refusal, Error::Fatal(said) if said.contains("gave null")), "{refusal}");
}

#[test]
fn ready_that_lies() {
    for (fault, sentence) in [
        ("ready overrun", "wrote past the 40 bytes of m3_ready"),
        ("ready size", "has size 4096 after ready; it was given 40"),
        ("zero page", "a page has 0 bytes"),
        ("too many pages", "18446744073709551615 pages of 4 bytes, more than 2^64"),
    ] {
        let mut instance = opened(fault).open(&support::request()).unwrap();
        instance.load(&support::embedding()).unwrap();
        let refusal = instance.ready().unwrap_err();
        assert!(matches!(&refusal, Error::Fatal(said) if said.contains(sentence)), "{fault}: {refusal}");
        assert!(matches!(instance.reserve(1), Err(Error::Fatal(_))), "{fault}: lives on");
    }
}

#[test]
fn answers_that_lie_while_serving() {
    check_fatal("status 7", "answered status 7 from submit; only 0, 1 and 2 exist", |it| submit(it, 0));
    check_fatal("silent death", "died in submit without a reason", |it| submit(it, 0));
    check_fatal("ticket skips", "gave ticket 3 from submit where 2 is next", serve);
    check_fatal("ticket stays", "gave ticket 1 from submit where 2 is next", serve);
    check_fatal("output count", "says it filled 2 slots", serve);
    check_fatal("done lies", "ticket 5 is the newest done; 0 is the newest given", |it| it.done());
    check_fatal("tap dims", "has 6 dimensions", |it| it.tap("logits"));
    check_fatal("tap values", "values; at most", |it| it.tap("logits"));
    check_fatal("region count", "1073741824 regions", |it| it.regions());
    check_fatal("page bytes", "2 pages have 1073741824 bytes", |it| it.read_pages(&[1, 2], &mut Vec::new()));
    check_fatal("page of 2^60", "2 pages have 2305843009213693952 bytes, more than memory has", |it| {
        it.read_pages(&[1, 2], &mut Vec::new())
    });
    check_fatal("encode rows", "1000 embedding rows of 8 patches", |it| {
        it.encode(&[0.0; 24], 3, &[[1, 2, 4]])
    });
}

#[test]
fn tickets_that_were_never_given_are_refused_and_nothing_dies() {
    let mut instance = warmed(&opened("none"));
    let ticket = submit(instance.as_mut(), 0).unwrap();
    for never in [0, 2, u64::MAX] {
        let refusal = wait(instance.as_mut(), m3_abi::Ticket(never)).unwrap_err();
        assert!(matches!(&refusal, Error::Unsupported(said) if said.contains("never given")), "{refusal}");
    }
    assert_eq!(wait(instance.as_mut(), ticket).unwrap(), 7);
}

#[test]
fn outputs_of_unequal_length_are_refused() {
    let mut instance = warmed(&opened("none"));
    let ticket = submit(instance.as_mut(), 0).unwrap();
    let mut output = m3_abi::Output::with_capacity(2, 1);
    output.top_ids.pop();
    assert!(matches!(instance.wait(ticket, &mut output), Err(Error::Unsupported(_))));
}

#[test]
fn two_plugins_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (c, toy) = (Plugin::open(&c_plugin(folder.path(), "c", "none")), Plugin::open(&rust_plugin("toy")));
    let (mut c, mut toy) = (warmed(&c.unwrap()), warmed(&toy.unwrap()));
    let tickets = [submit(c.as_mut(), 0).unwrap(), submit(toy.as_mut(), 0).unwrap()];
    let later = [submit(c.as_mut(), 1).unwrap(), submit(toy.as_mut(), 1).unwrap()];
    assert_eq!(wait(toy.as_mut(), tickets[1]).unwrap(), 7);
    assert_eq!(wait(toy.as_mut(), later[1]).unwrap(), 4);
    assert_eq!(wait(c.as_mut(), later[0]).unwrap(), 8);
}

#[test]
fn two_instances_of_one_plugin_do_not_share() {
    let plugin = Plugin::open(&rust_plugin("toy")).unwrap();
    let (mut one, mut other) = (warmed(&plugin), warmed(&plugin));
    assert_eq!(serve(one.as_mut()).unwrap(), [7, 4]);
    assert_eq!(serve(other.as_mut()).unwrap(), [7, 4]);
}
