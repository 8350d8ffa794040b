//! A thousand streams at once, and clients that leave in the middle of an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::Barrier;

use crate::asking::{APIS, Api, Ask, Came};
use crate::program::{Model, Program};
use crate::{echo, record, size};

const STREAMS: usize = 1000;

fn ask(number: u64) -> Ask {
    Ask { api: APIS[number as usize % APIS.len()], stream: true, number, repeats: 2 + number as usize % 3 }
}

/// A stream whose first piece has come waits for everybody's before it reads on, so that all are open at once.
async fn together(program: &Program, ask: Ask, all: &Barrier) -> Came {
    let answer = match ask.send(&program.client, &program.base).await {
        Ok(answer) => answer,
        Err(sentence) => {
            all.wait().await;
            return Came::Wrong(sentence);
        }
    };
    let mut bytes = answer.bytes_stream();
    let mut text = Vec::new();
    let mut piece = bytes.next().await;
    all.wait().await;
    while let Some(bytes_of_it) = piece {
        match bytes_of_it {
            Ok(more) => text.extend_from_slice(&more),
            Err(error) => return Came::Wrong(error.to_string()),
        }
        piece = bytes.next().await;
    }
    ask.judge(&ask.said(&String::from_utf8_lossy(&text)))
}

/// Looks for the most requests that ran at once until `done`.
async fn most_running(program: &Program, done: &tokio::sync::Notify) -> f64 {
    let mut most: f64 = 0.0;
    loop {
        tokio::select! {
            () = done.notified() => return most,
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        most = most.max(program.metric("m3_requests_running", "").await);
    }
}

fn sum(outcomes: &[Came]) -> (usize, usize) {
    let mixed: Vec<&Came> = outcomes.iter().filter(|came| matches!(came, Came::Mixed(_))).collect();
    assert!(mixed.is_empty(), "{} answers have somebody else's words: {:?}", mixed.len(), mixed[0]);
    (outcomes.iter().filter(|came| **came == Came::Right).count(), mixed.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn n12_a_thousand_streams_each_echo_their_own_nonce() {
    let rounds = size(1, 20);
    let flags = ["--max-running-requests", "1000", "--client-timeout", "300"];
    let program = Program::start(Model::Null(echo(10_000)), &flags).await;
    let (mut right, mut mixed, mut most) = (0, 0, 0.0f64);
    for round in 0..rounds {
        let (all, done) = (Barrier::new(STREAMS), tokio::sync::Notify::new());
        let first = (round * STREAMS) as u64;
        let streams = async {
            let streams = (0..STREAMS as u64).map(|number| together(&program, ask(first + number), &all));
            let outcomes = join_all(streams).await;
            done.notify_one();
            outcomes
        };
        let (outcomes, running) = tokio::join!(streams, most_running(&program, &done));
        let (these, others) = sum(&outcomes);
        let wrong = outcomes.iter().find(|came| **came != Came::Right);
        assert!(
            wrong.is_none(),
            "round {round}: {these} of {STREAMS} are right; {wrong:?}\n{}",
            program.log()
        );
        (right, mixed, most) = (right + these, mixed + others, most.max(running));
    }
    // Reading /metrics beside a thousand streams is not exact, so not all of them are asked for.
    assert!(most > STREAMS as f64 * 0.5, "only {most} ran at once");
    let pages = program.idle_pages().await;
    record(
        "streams-null",
        &json!({
            "streams_at_once": STREAMS, "rounds": rounds, "right": right, "mixed_up": mixed,
            "most_running_seen": most, "pages": pages,
        }),
    );
}

/// The trained miniature copies words; it is not always right, but what it writes is never somebody else's.
#[tokio::test(flavor = "multi_thread")]
async fn n12_streams_of_a_real_model_copy_their_own_words() {
    let streams = size(48, STREAMS);
    let flags = ["--kv-cache-memory-bytes", "1G", "--client-timeout", "600", "--max-running-requests", "64"];
    let program = Program::start(Model::Trained, &flags).await;
    let copied = join_all((0..streams as u64).map(|number| copy(&program, number))).await;
    let (right, _) = sum(&copied);
    let failed =
        copied.iter().find(|came| matches!(came, Came::Wrong(sentence) if !sentence.contains("copied")));
    assert!(failed.is_none(), "{failed:?}\n{}", program.log());
    assert!(
        right * 10 >= streams * 9,
        "only {right} of {streams} were copied: {:?}",
        copied.iter().find(|came| **came != Came::Right)
    );
    let pages = program.idle_pages().await;
    record(
        "streams-cpu",
        &json!({
            "streams_at_once": streams, "copied_exactly": right, "mixed_up": 0, "pages": pages,
        }),
    );
}

/// Five numbers that no other request has at the same place.
async fn copy(program: &Program, number: u64) -> Came {
    let digits: Vec<String> =
        (0..5u64).map(|at| ((number * 7919 + at * 104_729) % 900_000 + 100_000).to_string()).collect();
    let text = digits.join(" ");
    let body = json!({
        "messages": [{"role": "user", "content": format!("Repeat: {text}")}], "temperature": 0, "max_tokens": 64,
        "stream": true, "thinking": {"type": "disabled"},
    });
    let sent = program.client.post(format!("{}/v1/chat/completions", program.base)).json(&body).send().await;
    let answer = match sent {
        Ok(answer) if answer.status() == 200 => answer.text().await.map_err(|error| error.to_string()),
        Ok(answer) => Err(format!("{}", answer.status())),
        Err(error) => Err(error.to_string()),
    };
    let said = match answer {
        Ok(text) => Ask { api: Api::Chat, stream: true, number, repeats: 1 }.said(&text),
        Err(sentence) => return Came::Wrong(sentence),
    };
    if said.trim() == text {
        return Came::Right;
    }
    let others = |word: &str| {
        word.len() == 6
            && !text.contains(word)
            && (0..2000).any(|other| other != number && first(other) == word)
    };
    match said.split_whitespace().find(|word| others(word)) {
        Some(word) => Came::Mixed(format!("{word} in {said:?} for {text:?}")),
        None => Came::Wrong(format!("copied {said:?} for {text:?}")),
    }
}

/// The first number of a request.
fn first(number: u64) -> String {
    ((number * 7919) % 900_000 + 100_000).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_clients_that_leave_at_random_leave_no_page_behind() {
    let requests = size(1500u64, 10_000);
    // Room for a part of them, so that some leave while they wait.
    let flags = ["--max-running-requests", "200", "--max-queued-requests", "4096"];
    let program = Arc::new(Program::start(Model::Null(echo(2000)), &flags).await);
    let (left, stayed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let one = async |number: u64| {
        let ask = ask(number);
        // A third leave while the answer is on its way, a third before it begins, a third stay.
        let came = match number % 3 {
            0 => {
                ask.leave_after(&program.client, &program.base, 1 + number as usize % 7).await.map(|()| None)
            }
            1 => {
                let patience = Duration::from_millis(number * 37 % 400);
                let _ = tokio::time::timeout(patience, ask.whole(&program.client, &program.base)).await;
                Ok(None)
            }
            _ => Ok(Some(ask.whole(&program.client, &program.base).await)),
        };
        match came {
            Ok(None) => left.fetch_add(1, Ordering::Relaxed),
            Ok(Some(Came::Right)) => stayed.fetch_add(1, Ordering::Relaxed),
            Ok(Some(other)) => panic!("{ask:?}: {other:?}"),
            Err(sentence) => panic!("{ask:?}: {sentence}"),
        };
    };
    futures_util::stream::iter(0..requests).for_each_concurrent(400, one).await;
    let pages = program.idle_pages().await;
    let aborted = program.metric("m3_requests_aborted_total", "").await;
    assert!(aborted > requests as f64 / 20.0, "only {aborted} requests were seen to leave");
    record(
        "disconnects",
        &json!({
            "requests": requests, "left": left.into_inner(), "seen_to_leave": aborted, "right": stayed.into_inner(),
            "mixed_up": 0, "pages": pages,
        }),
    );
}
