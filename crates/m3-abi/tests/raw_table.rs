//! Rules that no host written with `m3_abi::load` can break: calls at once, and an instance's life through raw calls.
#![allow(unsafe_code, reason = "calls the entries of a table as a host in C does")]
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use std::ffi::c_void;
use std::sync::Mutex;

use m3_abi::table::{Query, Table};
use m3_abi::types::{OpenArgs, OutputArgs, STATUS_FATAL, STATUS_OK, Span, Text};
use m3_abi::{Driver, Plugin, load, log};

const NO_SPAN: Span = Span { data: std::ptr::null(), count: 0, stride: 0 };

fn table() -> &'static Table {
    // SAFETY: the library stays open, the symbol has this type, and the table lives until the process ends.
    unsafe {
        let library = libloading::Library::new(support::rust_plugin("faulty")).unwrap();
        let query = *library.get::<Query>(m3_abi::table::QUERY_SYMBOL.as_bytes()).unwrap();
        std::mem::forget(library);
        &*query(&load::this_host(), std::ptr::null_mut())
    }
}

fn open(script: &str) -> *mut c_void {
    let config = Span { data: script.as_ptr().cast(), count: script.len() as u64, stride: 1 };
    // SAFETY: all-zero is a valid argument struct.
    let zeroed: OpenArgs = unsafe { std::mem::zeroed() };
    let args = OpenArgs { size: size_of::<OpenArgs>() as u32, config, comm_id: NO_SPAN, ..zeroed };
    let mut handle = std::ptr::null_mut();
    // SAFETY: all pointers live through the call.
    assert_eq!(unsafe { table().open.unwrap()(&args, &mut handle, std::ptr::null_mut()) }, STATUS_OK);
    handle
}

#[test]
fn two_calls_at_once_are_fatal_and_harm_nobody() {
    struct Shared(*mut c_void);
    // SAFETY: sharing the instance between threads is what this test is about.
    unsafe impl Sync for Shared {}
    let shared = Shared(open("slow"));
    let (shared, table) = (&shared, table());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            // SAFETY: an output without room is all zero.
            let mut output: OutputArgs = unsafe { std::mem::zeroed() };
            output.size = size_of::<OutputArgs>() as u32;
            // SAFETY: the instance is open.
            unsafe { table.wait.unwrap()(shared.0, 1, &mut output, std::ptr::null_mut()) }
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        let mut room = [0_u8; 128];
        let mut text = Text { data: room.as_mut_ptr(), capacity: 128, len: 0 };
        let mut ticket = 7;
        // SAFETY: the instance is open.
        let status = unsafe { table.done.unwrap()(shared.0, &mut ticket, &mut text) };
        let said = std::str::from_utf8(&room[..text.len as usize]).unwrap();
        assert_eq!((status, said), (STATUS_FATAL, "done was called while another call on this instance ran"));
        assert_eq!(ticket, 7);
        assert_eq!(waiting.join().unwrap(), STATUS_OK);
    });
    // SAFETY: closed once.
    assert_eq!(unsafe { table.close.unwrap()(shared.0, std::ptr::null_mut()) }, STATUS_OK);
}

#[test]
fn lines_of_a_plugin_reach_the_hosts_sink() {
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    log::set_sink(|level, line| LINES.lock().unwrap().push(format!("{level} {line}")));
    let folder = tempfile::tempdir().unwrap();
    Plugin::open(&support::c_plugin(folder.path(), "c", "none")).unwrap();
    let plugin = Plugin::open(&support::rust_plugin("faulty")).unwrap();
    drop(plugin.open(&support::request()).unwrap());
    let lines = LINES.lock().unwrap();
    for line in ["3 hello from C", "3 opened by the faulty backend"] {
        assert!(lines.iter().any(|said| said == line), "{lines:?}");
    }
}
