//! Memory over many requests of all sorts: answers, refusals and clients that leave.

use futures_util::StreamExt;
use serde_json::json;

use crate::asking::{APIS, Ask, Came};
use crate::program::{Model, Program};
use crate::refusals::kinds;
use crate::{echo, record, size};

/// Requests at once.
const AT_ONCE: usize = 48;
/// Looks at the memory, evenly spread.
const LOOKS: u64 = 20;
/// MiB that may be added after the first quarter, in which caches, buffers and the allocator's arenas fill. In a sample
/// they still do, so that it only finds large leaks.
fn may_grow_mib() -> f64 {
    size(48.0, 16.0)
}

/// Few pages, so that the cache is full soon and what grows later is no cache.
fn small_cache() -> serde_json::Value {
    let mut settings = echo(0);
    settings["max_pages"] = 1024.into();
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_flat_over_many_requests() {
    let requests = size(5_000, 200_000);
    let program = Program::start(Model::Null(small_cache()), &["--max-running-requests", "48"]).await;
    let kinds: Vec<_> = kinds().into_iter().filter(|bad| bad.needs_no_key()).collect();
    let one = async |number: u64| {
        let ask = Ask {
            api: APIS[number as usize % APIS.len()],
            stream: number.is_multiple_of(2),
            number,
            repeats: 1 + number as usize % 4,
        };
        match number % 20 {
            0 | 1 => kinds[(number / 20) as usize % kinds.len()].expect_refusal(&program.base).await,
            2..=4 => {
                let left = Ask { stream: true, ..ask }.leave_after(&program.client, &program.base, 1).await;
                left.unwrap_or_else(|sentence| panic!("{ask:?}: {sentence}"));
            }
            _ => assert_eq!(ask.whole(&program.client, &program.base).await, Came::Right, "{ask:?}"),
        }
    };
    let mut looks = vec![program.resident_mib()];
    for look in 0..LOOKS {
        let (from, to) = (look * requests / LOOKS, (look + 1) * requests / LOOKS);
        futures_util::stream::iter(from..to).for_each_concurrent(AT_ONCE, one).await;
        looks.push(program.resident_mib());
        eprintln!("{to} requests: {:.1} MiB", program.resident_mib());
    }
    let pages = program.idle_pages().await;
    let (warm, last) = (looks[looks.len() / 4], program.resident_mib());
    record(
        "memory",
        &json!({
            "requests": requests, "at_once": AT_ONCE, "ready_mib": looks[0], "after_a_quarter_mib": warm, "at_the_end_mib": last,
            "may_grow_mib": may_grow_mib(), "looks_mib": looks, "pages": pages,
        }),
    );
    assert!(last - warm < may_grow_mib(), "{warm:.1} MiB after a quarter, {last:.1} at the end: {looks:.1?}");
}
